"""A damaged run folder: one line, or the run finishes; weights that are whole are never lost."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import yaml

from latentheads.contrib.plot import draw_bound, draw_kl, save
from latentheads.errors import UnfinishedError
from latentheads.experiments.cli.options import read_settings, trainer_of
from latentheads.runs.checkpoint_manager import CheckpointManager
from latentheads.training import checkpoints
from tests.experiments.breaks import stopped_in
from tests.experiments.programs import SHORT, TINY, inside, painted, succeed, timeless_results_of

LAST, BEST = Path("checkpoints", "last.safetensors"), Path("checkpoints", "best.safetensors")


pytestmark = pytest.mark.usefixtures("as_the_programs_do")


@pytest.fixture
def trained(tiny_run: Path, tmp_path: Path) -> Path:
    """A run that was killed after training, before its report."""
    out = Path(shutil.copytree(tiny_run, tmp_path / "run"))
    (out / "results.json").unlink()
    return out


@pytest.fixture(scope="module")
def halted_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 6 updates that was stopped after 5; its last checkpoint is of step 4."""
    out = tmp_path_factory.mktemp("halted") / "run"
    with stopped_in(5):
        done = again(out, "--train.steps=6")
    assert done.returncode == 130
    message = f"run.py: stopped after step 5: {out / LAST} is of step 4; the same command goes on"
    assert done.stderr.splitlines()[-1] == message
    return out


@pytest.fixture
def halted(halted_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(halted_run, tmp_path / "run"))


def again(out: Path, *words: str) -> Any:
    """The same command again."""
    return inside("run.py", *TINY, *SHORT, *words, "--out", str(out))


def test_a_stop_behind_a_resumption_names_the_checkpoint_that_there_is(halted: Path) -> None:
    with stopped_in(5):
        done = again(halted, "--train.steps=6")
    assert f"stopped after step 5: {halted / LAST} is of step 4; " in done.stderr


@lru_cache
def corpus(data: Any) -> Any:
    return data.load()


@lru_cache
def settings_of(words: tuple[str, ...]) -> Any:
    return read_settings([*TINY, *SHORT, *words], "run.py", "")


def taken_up(out: Path, *words: str) -> Any:
    """What the same command takes up, before it trains."""
    settings, options, _ = settings_of(words)
    return trainer_of(settings, replace(options, out=str(out)), corpus(settings.data))


def trained_again(out: Path, *words: str) -> Any:
    """The run after training, with the weights that it would report on."""
    trainer = taken_up(out, *words)
    trainer.train(quiet=True)
    trainer.folder.release()
    return trainer


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def scramble(path: Path) -> None:
    path.write_bytes(bytes(range(256)))


def without_numbers(path: Path) -> None:
    tensors, facts = checkpoints.load(path)
    checkpoints.save(path, {name: torch.zeros(1) for name in tensors}, facts)


def without_facts(path: Path) -> None:
    checkpoints.save(path, checkpoints.load(path)[0], {})


@pytest.mark.parametrize(
    "spoils",
    [
        {"metrics.jsonl": Path.unlink, "results.json": scramble, "vocabulary.json": scramble},
        {"metrics.jsonl": shorten, "results.json": empty, str(BEST): Path.unlink},
    ],
)
def test_a_trained_run_finishes_whatever_else_is_lost(
    tiny_run: Path, trained: Path, spoils: dict[str, Callable[[Path], object]]
) -> None:
    (trained / "results.json").write_text("{}")
    for name, spoil in spoils.items():
        spoil(trained / name)
    done = again(trained)
    assert done.returncode == 0, done.stderr
    assert "bound (ELBO)" in done.stdout
    # its best weights are its last
    assert timeless_results_of(trained) == timeless_results_of(tiny_run)
    succeed("translate.py", str(trained), text="the dog\n")


LOST: list[tuple[Callable[[Path], object], str]] = [
    (Path.unlink, "there is no checkpoint"),
    (shorten, "is not a complete checkpoint"),
    (without_numbers, "belongs to another model"),
]


@pytest.mark.parametrize(("spoil", "message"), LOST)
def test_where_the_best_weights_are_lost_the_last_are_reported(
    trained: Path, spoil: Callable[[Path], object], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = checkpoints.load(trained / LAST)[0]
    spoil(trained / BEST)
    run = trained_again(trained)
    stderr = capsys.readouterr().err
    assert message in stderr
    assert stderr.startswith("note: ")
    assert stderr.endswith("; the last weights are reported on\n")
    assert stderr.count("\n") == 1
    assert run.checkpoint_manager.reported == 2
    kept, facts = checkpoints.load(trained / BEST)
    assert facts == {"step": 2}
    assert all(torch.equal(before[name], kept[name]) for name in kept)


@pytest.mark.parametrize("spoil", [Path.unlink, shorten])
def test_lost_best_weights_are_looked_for_anew(
    halted: Path, spoil: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(halted / BEST)
    run = trained_again(halted, "--train.steps=6")
    assert "; the search for the best weights restarts\n" in capsys.readouterr().err
    assert run.checkpoint_manager.reported == 6


def test_an_average_without_one_of_its_checkpoints_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, words = (
        tmp_path / "run",
        ["--train.steps=3", "--train.report_every=1", "--train.average=3"],
    )
    assert trained_again(out, *words).checkpoint_manager.averaged == 3
    kept = sorted((out / "checkpoints").glob("step-*"))
    shorten(kept[1])
    refused = rf"^{kept[1]} is not a complete checkpoint.*: remove it to average the others$"
    with pytest.raises(UnfinishedError, match=refused):
        trained_again(out, *words)
    kept[1].unlink()
    run = trained_again(out, *words)
    assert (run.checkpoint_manager.averaged, run.checkpoint_manager.reported) == (2, 3)
    for path in (kept[0], kept[2]):
        path.unlink()
    capsys.readouterr()
    run = trained_again(out, *words)
    assert (run.checkpoint_manager.averaged, run.checkpoint_manager.reported) == (0, 3)
    assert "no checkpoint to average; the last weights are reported on" in capsys.readouterr().err
    assert checkpoints.load(out / "checkpoints" / "average.safetensors")[1] == {"step": 3}


def at(name: str | Path, spoil: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda out: spoil(out / name)


REFUSED: list[tuple[Callable[[Path], object], str]] = [
    (at(LAST, scramble), "last.safetensors is not a complete checkpoint"),
    (at(LAST, without_numbers), "belongs to another model"),
    (at(LAST, without_facts), "it holds weights, and no state of a training"),
    (at("config.yaml", empty), "cannot read "),
]


@pytest.mark.parametrize(("spoil", "message"), REFUSED)
def test_what_cannot_be_gone_on_from_costs_one_line(
    halted: Path, spoil: Callable[[Path], object], message: str
) -> None:
    spoil(halted)
    before = {path: path.lstat().st_mtime_ns for path in halted.rglob("*")}
    with pytest.raises(ValueError) as caught:
        taken_up(halted, "--train.steps=6")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert before == {path: path.lstat().st_mtime_ns for path in halted.rglob("*")}


def test_metrics_that_are_lost_cost_no_training(halted: Path) -> None:
    empty(halted / "metrics.jsonl")
    assert trained_again(halted, "--train.steps=6").engine.step == 6
    lines = (halted / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [6]


def test_with_overwrite_it_says_which_command_goes_on(tmp_path: Path) -> None:
    with stopped_in(1):
        done = again(tmp_path / "run", "--overwrite")
    assert done.returncode == 130
    assert done.stderr.endswith("of step 0; without --overwrite the same command goes on\n")


def test_a_stop_before_the_first_checkpoint_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CheckpointManager, "on_save", mock.Mock(side_effect=KeyboardInterrupt))
    done = again(tmp_path / "run")
    message = (
        f"stopped after step 0: {tmp_path / 'run'} has no checkpoint yet; the same command goes"
    )
    assert message in done.stderr


@pytest.mark.parametrize("step", [0, 2])
def test_a_stop_just_behind_a_checkpoint_names_it(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = checkpoints.save

    def stop(path: Path, tensors: Any, facts: Any) -> None:
        save(path, tensors, facts)
        if path.name == LAST.name and facts["step"] == step:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "save", stop)
    done = again(tmp_path / "run", "--train.checkpoint_every=1")
    assert (
        f"stopped after step {step}: {tmp_path / 'run' / LAST} is of step {step}; " in done.stderr
    )


def test_a_run_folder_has_no_aliases(tmp_path: Path) -> None:
    """What reads it refuses them."""
    words = ["--preset=wikitext103", "--recipe=coda"]
    settings, *_ = read_settings(words, "run.py", "")
    assert "*" not in settings.to_yaml()
    assert yaml.safe_load(settings.to_yaml())["network"]["adaptive"]["cutoffs"]


def test_a_full_disk_is_said_with_the_file(halted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    folder, path = taken_up(halted, "--train.steps=6").folder, halted / "kl.png"
    monkeypatch.setattr(Figure, "savefig", full)
    with pytest.raises(OSError, match=rf"^cannot write {path}: No space left on device$"):
        save(draw_kl({}), path)
    assert not path.exists()
    monkeypatch.setattr(os, "fsync", full)
    for write, name in (
        (lambda: folder.append({"step": 9}), "metrics.jsonl"),
        (lambda: folder.write("results.json", "{}"), "results.json"),
    ):
        with pytest.raises(OSError, match=rf"^cannot write .*{name}: No space left on device$"):
            write()


def test_figures_are_drawn_of_the_metrics_that_are_left(tmp_path: Path) -> None:
    with painted():
        save(draw_bound([]), tmp_path / "bound.png")
    assert (tmp_path / "bound.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["bound.png"]
