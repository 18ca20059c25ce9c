"""Tiny runs, trained and opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

SMALL = ["--width=8", "--feed_forward=8", "--heads=2", "--layers=1"]
BRIEF = ["--steps=3", "--report_every=2", "--tokens=128", "--samples=2"]


def train(out: Path, *words: str) -> Any:
    """A run, trained but not reported on."""
    from latentheads.experiments.cli.options import read_settings, trainer_of

    given = [*SMALL, *BRIEF, *words, "--out", str(out)]
    found = trainer_of(*read_settings(given, "run.py", ""))
    found.train(quiet=True)
    return found


def load(*given: Any) -> Any:
    from latentheads.runs.loading import load_run

    return load_run(*given)


def refused(*given: Any) -> str:
    with pytest.raises(ValueError) as caught:
        load(*given)
    assert "\n" not in str(caught.value)
    return str(caught.value)
