"""What the tests of runs share with those of the programs."""

from __future__ import annotations

from tests.experiments.conftest import tiny_run

__all__ = ["tiny_run"]
