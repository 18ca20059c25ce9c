"""What the tests of runs share with those of the programs."""

from __future__ import annotations

from tests.experiments.conftest import figures_without_paint, tiny_run

__all__ = ["figures_without_paint", "tiny_run"]
