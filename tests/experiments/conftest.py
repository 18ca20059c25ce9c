"""What the tests of the programs share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.experiments.programs import SHORT, TINY, inside, unpainted


@pytest.fixture(scope="package", autouse=True)
def figures_without_paint() -> Iterator[None]:
    """Painting takes longer than a tiny run; a test of a picture itself asks for ``painted``."""
    with unpainted():
        yield


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on the grammar, made by ``[*TINY, *SHORT]``: copy it before you change it."""
    out = tmp_path_factory.mktemp("tiny") / "run"
    done = inside("run.py", *TINY, *SHORT, "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out
