"""Tiny runs, trained and opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.experiments.programs import SHORT

SMALL = ["--network.width=8", "--network.feed_forward=8", "--network.heads=2", "--network.layers=1"]


def train(out: Path, *words: str) -> Any:
    """A run, trained but not reported on."""
    from latentheads.experiments.cli.options import read_settings, trainer_of

    given = [*SMALL, *SHORT, *words, "--out", str(out)]
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
