"""Tiny runs, trained and opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

SMALL = ["--network.width=8", "--network.feed_forward=8", "--network.heads=2", "--network.layers=1"]
BRIEF = ["--train.steps=3", "--train.report_every=2", "--train.tokens=128", "--num_samples=2"]


def train(out: Path, *words: str) -> Any:
    """A run, trained but not reported on."""
    from latentheads.experiments.cli.options import read_settings, trainer_of

    given = [*SMALL, *BRIEF, *words, "--out", str(out)]
    settings, options, _ = read_settings(given, "run.py", "")
    trainer = trainer_of(settings, options)
    trainer.train(quiet=True)
    return trainer


def load(*given: Any) -> Any:
    from latentheads.runs.loading import load_run

    return load_run(*given)


def refused(*given: Any) -> str:
    with pytest.raises(ValueError) as caught:
        load(*given)
    assert "\n" not in str(caught.value)
    return str(caught.value)
