"""What the tests of the attack share with those of the programs."""

from tests.experiments.conftest import tiny_run

__all__ = ["tiny_run"]
