"""Runs that are stopped, and whether two of them end alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from latentheads.training import checkpoints
from latentheads.training.progress import ProgressBar
from tests.experiments.programs import SHORT, assert_refused, inside, succeed


def told(out: Path) -> list[dict]:
    lines = (out / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    for record in records:
        del record["tokens_per_second"]
    return records


@contextmanager
def stopped_in(update: int) -> Iterator[None]:
    """Runs are stopped, as by Ctrl-C, behind so many updates and before what follows them."""
    show_step = ProgressBar.on_step_end

    def stop(self: ProgressBar, step: int) -> None:
        show_step(self, step)
        if step == update:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProgressBar, "on_step_end", stop)
        yield


def assert_same_ends(whole: Path, other: Path) -> None:
    """Two folders have the same checkpoints, bit for bit, and tell the same."""
    for name in ("last", "best"):
        one, facts = checkpoints.load(whole / "checkpoints" / f"{name}.safetensors")
        two, others = checkpoints.load(other / "checkpoints" / f"{name}.safetensors")
        for clock in (facts, others):
            clock.pop("seconds", None)
        assert facts == others
        assert one.keys() == two.keys()
        assert all(torch.equal(one[key], two[key]) for key in one)
    assert told(whole) == told(other)


def assert_resumes(words: list[str], out: Path, update: int) -> Path:
    """A run that is stopped in an update, and resumed, ends as one that was not."""
    whole, halted = out / "whole", out / "halted"
    succeed("run.py", *words, "--out", str(whole))
    with stopped_in(update):
        assert inside("run.py", *words, "--out", str(halted)).returncode == 130
    assert "resumed at step" in succeed("run.py", *words, "--out", str(halted)).stdout
    assert_same_ends(whole, halted)
    return whole


def assert_data_refused(
    folder: Path, act: Callable[[Path], object] | None, words: Iterable[str], says: str
) -> None:
    """A mistake in a folder of text, or in words about it, costs a line and writes nothing."""
    if act is not None:
        act(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder.parent)
        assert_refused(
            "run.py", "--data", folder.name, "--out=run", *SHORT, *words, says=says, quiet=False
        )
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
