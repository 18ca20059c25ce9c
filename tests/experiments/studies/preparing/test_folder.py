"""What corpora are distributed in: folders, tar files and packages of Debian."""

from __future__ import annotations

from pathlib import Path

import pytest

from latentheads.experiments.studies.preparing.folder import opened
from tests.experiments.studies.preparing.packages import write_package


def test_of_a_package_what_is_needed_is_unpacked(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a.txt").write_text("one")
    (folder / "deep" / "a.png").write_text("two")
    package = write_package(tmp_path / "a.deb", folder)
    with opened([package, folder], [".txt"]) as (first, second):
        paths = [path for path in first.rglob("*") if path.is_file()]
        assert [path.relative_to(first).as_posix() for path in paths] == ["deep/a.txt"]
        assert second == folder
    assert not first.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"!<arch>\n", "it has no data.tar"),
        (b"!<arch>\ndata.tar.zst" + b" " * 36 + b"4         `\nnone", "packed by zstd: unpack it"),
        (b"text", "file could not be opened"),
    ],
)
def test_what_is_no_package_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.deb").write_bytes(content)
    with (
        pytest.raises(ValueError, match=rf"a\.deb cannot be read as .* package: .*{message}"),
        opened([tmp_path / "a.deb"], [".txt"]),
    ):
        pass
