"""Checkpoints are whole or not there, and only ours are read."""

import resource
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from latentheads import checkpoints
from tests.tiny import attach, build


def test_weights_and_facts_come_back(tmp_path: Path) -> None:
    model = build()
    guide = attach("cascaded", model)
    path = tmp_path / "last.safetensors"
    saved = checkpoints.weights(model=model, guide=guide)
    expected = {name: tensor.detach().clone() for name, tensor in saved.items()}
    checkpoints.save(path, saved, {"step": 7, "best": None})
    with torch.no_grad():
        for tensor in saved.values():
            tensor.zero_()
    tensors, facts = checkpoints.load(path)
    checkpoints.restore(path, tensors, model=model, guide=guide)
    assert facts == {"step": 7, "best": None}
    for name, tensor in checkpoints.weights(model=model, guide=guide).items():
        assert torch.equal(tensor, expected[name]), name
    assert [file.name for file in tmp_path.iterdir()] == ["last.safetensors"]


def test_a_shared_table_is_kept_once() -> None:
    names = checkpoints.weights(model=build("language-model"))
    assert "model.embedding.table.weight" in names or "model.output.table.weight" in names
    assert not {"model.embedding.table.weight", "model.output.table.weight"} <= set(names)


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_a_truncated_file_is_refused_in_one_line(kept: int, tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    checkpoints.save(path, checkpoints.weights(model=build()), {})
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"is no whole checkpoint: .*$") as mistake:
        checkpoints.load(path)
    assert "\n" not in str(mistake.value)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "foreign.safetensors"
    save_file({"x": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match="is no checkpoint of latentheads"):
        checkpoints.load(path)
    path.write_text("hello, I am no checkpoint at all")
    with pytest.raises(ValueError, match="is no whole checkpoint"):
        checkpoints.load(path)
    with pytest.raises(ValueError, match="there is no checkpoint"):
        checkpoints.load(tmp_path / "missing.safetensors")


def test_weights_of_another_model_change_nothing(tmp_path: Path) -> None:
    small, large = build(width=6), build(width=12)
    before = {n: t.detach().clone() for n, t in checkpoints.weights(model=large).items()}
    path = tmp_path / "small"
    with pytest.raises(ValueError, match=r"belongs to another model: model.* has shape"):
        checkpoints.restore(path, checkpoints.weights(model=small), model=large)
    with pytest.raises(ValueError, match=r"belongs to another model: it lacks model\."):
        checkpoints.restore(path, checkpoints.weights(other=large), model=large)
    for name, tensor in checkpoints.weights(model=large).items():
        assert torch.equal(tensor, before[name])


def test_what_cannot_be_written_leaves_the_older_file(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    checkpoints.save(path, {"x": torch.ones(3)}, {"step": 1})
    path.with_name(path.name + ".part").mkdir()
    with pytest.raises(OSError, match="cannot write"):
        checkpoints.save(path, {"x": torch.zeros(3)}, {"step": 2})
    tensors, facts = checkpoints.load(path)
    assert facts == {"step": 1}
    assert torch.equal(tensors["x"], torch.ones(3))


def test_a_file_that_cannot_grow_leaves_the_older_one(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    checkpoints.save(path, {"x": torch.ones(3)}, {"step": 1})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"cannot write .*last.safetensors: File too large"):
            checkpoints.save(path, {"x": torch.zeros(3000)}, {"step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert checkpoints.load(path)[1] == {"step": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["last.safetensors"]


def test_the_average_is_the_mean(tmp_path: Path) -> None:
    for place in range(3):
        tensors = {"x": torch.full((2,), float(place), dtype=torch.float32)}
        checkpoints.save(tmp_path / str(place), tensors, {})
    mean = checkpoints.average([tmp_path / str(place) for place in range(3)])
    assert mean["x"].tolist() == [1.0, 1.0]
    assert mean["x"].dtype == torch.float32
    checkpoints.save(tmp_path / "other", {"y": torch.zeros(2)}, {})
    with pytest.raises(ValueError, match="belongs to another model"):
        checkpoints.average([tmp_path / "0", tmp_path / "other"])
    with pytest.raises(ValueError, match="no checkpoint to average"):
        checkpoints.average([])
