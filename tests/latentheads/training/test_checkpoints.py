"""Checkpoints are whole or not there, and only ours are read."""

import os
import resource
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest
import torch
from safetensors.torch import save_file

from latentheads.training import checkpoints
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


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "foreign.safetensors"
    save_file({"x": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match="is not a checkpoint of latentheads"):
        checkpoints.load(path)
    path.write_text("hello, I am no checkpoint at all")
    with pytest.raises(ValueError, match="is not a complete checkpoint"):
        checkpoints.load(path)
    with pytest.raises(ValueError, match="there is no checkpoint"):
        checkpoints.load(tmp_path / "missing.safetensors")


def test_weights_of_another_model_change_nothing(tmp_path: Path) -> None:
    small, large = build(width=6), build(width=12)
    before = {n: t.detach().clone() for n, t in checkpoints.weights(model=large).items()}
    path = tmp_path / "small"
    with pytest.raises(ValueError, match=r"belongs to another model: model.* has shape"):
        checkpoints.restore(path, checkpoints.weights(model=small), model=large)
    with pytest.raises(ValueError, match=r"belongs to another model: it has no model\."):
        checkpoints.restore(path, checkpoints.weights(other=large), model=large)
    for name, tensor in checkpoints.weights(model=large).items():
        assert torch.equal(tensor, before[name])


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
    for index in range(3):
        tensors = {"x": torch.tensor([index, 1 if index else 2**24], dtype=torch.float32)}
        checkpoints.save(tmp_path / str(index), tensors, {})
    mean = checkpoints.average([tmp_path / str(position) for position in range(3)])
    assert mean["x"].tolist() == [1.0, 5592406.0]  # in float32 the sum would stay 2**24
    assert mean["x"].dtype == torch.float32
    checkpoints.save(tmp_path / "other", {"y": torch.zeros(2)}, {})
    with pytest.raises(ValueError, match="belongs to another model"):
        checkpoints.average([tmp_path / "0", tmp_path / "other"])


SMALL = {
    "weight": torch.tensor([[0.5, -1.25], [3.0, 0.0]], dtype=torch.float32),
    "noise": torch.arange(5, dtype=torch.uint8),
    **{"kept": torch.tensor([True, False]), "none": torch.zeros(0, 3)},
    "scalar": torch.tensor(2.0, dtype=torch.float64),
    "transposed": torch.arange(6.0, dtype=torch.float32).view(2, 3).mT,
}


def test_every_flipped_bit_and_cut_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    checkpoints.save(path, SMALL, {"step": 3, "best": -1.5})
    loaded, _ = checkpoints.load(path)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in SMALL.items())
    whole = path.read_bytes()
    for bit in range(0, 8 * len(whole), 61):
        spoilt = bytearray(whole)
        spoilt[bit // 8] ^= 1 << bit % 8
        path.write_bytes(spoilt)
        with pytest.raises(ValueError, match=r"last\.safetensors") as caught:
            checkpoints.load(path)
        assert "\n" not in str(caught.value)
    for kept in (0, 5, 100, -1):
        path.write_bytes(whole[:kept])
        with pytest.raises(ValueError, match=r"is not a complete checkpoint: [^\n]*$"):
            checkpoints.load(path)


def test_a_file_that_may_not_be_read_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "last.safetensors"
    checkpoints.save(path, SMALL, {})
    refuse = mock.Mock(side_effect=PermissionError(13, "Permission denied"))
    monkeypatch.setattr(checkpoints, "safe_open", refuse)
    with pytest.raises(ValueError, match=r"^cannot read .*last.safetensors: Permission denied$"):
        checkpoints.load(path)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_is_not_saved(tmp_path: Path, value: float) -> None:
    path = tmp_path / "last.safetensors"
    checkpoints.save(path, SMALL, {"step": 1})
    spoilt = {**SMALL, "weight": SMALL["weight"].clone()}
    spoilt["weight"][1, 0] = value
    with pytest.raises(FloatingPointError, match="is not written: weight is not finite"):
        checkpoints.save(path, spoilt, {"step": 2})
    assert checkpoints.load(path)[1] == {"step": 1}


@pytest.mark.parametrize("kind", [torch.float64, torch.int64, torch.bool, torch.uint8])
def test_numbers_of_another_kind_are_not_copied(tmp_path: Path, kind: torch.dtype) -> None:
    model = build().float()
    given = dict(checkpoints.weights(model=model))
    name = next(iter(given))
    before = given[name].detach().clone()
    given[name] = torch.ones(before.shape, dtype=kind)
    with pytest.raises(ValueError, match=rf"belongs to another model: {name} is {kind}, not "):
        checkpoints.restore(tmp_path, given, model=model)
    assert torch.equal(checkpoints.weights(model=model)[name], before)
    finer = build()
    checkpoints.restore(tmp_path, {**checkpoints.weights(model=model)}, model=finer)
    assert torch.equal(checkpoints.weights(model=finer)[name], before.double())


@pytest.mark.parametrize(
    ("format_name", "message"),
    [
        ("latentheads checkpoint 1", "is not a checkpoint"),
        (checkpoints.FORMAT, "is not a complete"),
    ],
)
def test_a_file_without_a_checksum_is_refused(
    tmp_path: Path, format_name: str, message: str
) -> None:
    header = {"format": format_name, "facts": '{"step": 2}'}
    save_file({"x": torch.ones(2)}, tmp_path / "x", header)
    with pytest.raises(ValueError, match=message):
        checkpoints.load(tmp_path / "x")


def test_a_pipe_stays_one(tmp_path: Path) -> None:
    pipe, copied = tmp_path / "pipe", tmp_path / "copied"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reader:
        content = reader.submit(pipe.read_bytes)
        checkpoints.save(pipe, {"a": torch.ones(3)}, {"step": 7})
        copied.write_bytes(content.result())
    assert pipe.is_fifo()
    assert checkpoints.load(copied)[1] == {"step": 7}
