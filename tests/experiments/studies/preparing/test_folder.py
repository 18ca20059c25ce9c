"""What corpora are distributed in: folders, tar files and packages of Debian."""

from __future__ import annotations

import gzip
import io
import tarfile
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
        (
            b"!<arch>\ndebian-binary" + b" " * 35 + b"four      `\n",
            "size that is not a number, 'four'",
        ),
        (
            b"!<arch>\ndebian-binary" + b" " * 35 + b"-60       `\n",
            "size that is not a number, '-60'",
        ),
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


def pack_member(member: tarfile.TarInfo, content: bytes = b"") -> bytes:
    packed = io.BytesIO()
    member.size = len(content)
    with tarfile.open(fileobj=packed, mode="w") as file:
        file.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def link_to_nothing() -> bytes:
    member = tarfile.TarInfo("a.txt")
    member.type, member.linkname = tarfile.LNKTYPE, "b.png"
    return pack_member(member)


def damage_gzip() -> bytes:
    content = b"".join(b"%d " % number for number in range(30_000))
    whole = bytearray(gzip.compress(pack_member(tarfile.TarInfo("a.txt"), content)))
    half = len(whole) // 2
    whole[half : half + 99] = b"\xff" * 99
    return bytes(whole)


@pytest.mark.parametrize(
    "content",
    [link_to_nothing(), damage_gzip(), pack_member(tarfile.TarInfo("../a.txt"), b"text")],
    ids=["link", "gzip", "outside"],
)
def test_a_tar_file_that_lies_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(content)
    message = r"a\.tar cannot be read as a tar file or a Debian package: "
    with pytest.raises(ValueError, match=message), opened([tmp_path / "a.tar"], [".txt"]):
        pass
