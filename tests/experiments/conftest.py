"""What the tests of the programs share."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.programs import SHORT, TINY, inside


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on the grammar, made by ``[*TINY, *SHORT]``: copy it before you change it."""
    out = tmp_path_factory.mktemp("tiny") / "run"
    done = inside("run.py", *TINY, *SHORT, "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def settings() -> Any:
    """Reads the settings that a command line says."""
    read = import_module("latentheads.experiments.cli.options").read_settings

    def made(*words: str) -> Any:
        return read(list(words), "run.py", "")[0]

    return made
