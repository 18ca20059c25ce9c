"""The sources of a corpus: a folder, a tar file, a package of Debian, or a file as it is."""

from __future__ import annotations

import lzma
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

ARCHIVE = b"!<arch>\n"
"""How a package of Debian begins: it is an archive of ar, one of whose members is a tar file."""

HEAD = 60
"""Bytes before each member of an archive: its name in the first 16, its size from 48 to 58."""

DAMAGES = (tarfile.TarError, lzma.LZMAError, zlib.error, OSError, EOFError, KeyError, ValueError)
"""Errors of reading a damaged file: a KeyError where a link has no target."""


@contextmanager
def opened(sources: Sequence[Path], endings: Sequence[str]) -> Iterator[list[Path]]:
    """The folders of what a corpus is distributed in; those of packed files while it is open."""
    with ExitStack() as stack:
        yield [stack.enter_context(_opened(source, endings)) for source in sources]


@contextmanager
def _opened(source: Path, endings: Sequence[str]) -> Iterator[Path]:
    if source.is_dir():
        yield source
        return
    if not source.is_file():
        raise ValueError(
            f"there is no {source}: give the folder of the data set, a tar file or a Debian package"
        )
    with tempfile.TemporaryDirectory() as place:
        if source.name.endswith(tuple(endings)):
            shutil.copy(source, place)
            yield Path(place)
            return
        try:
            with source.open("rb") as file, _open_tar(file) as tar:
                needed = (member for member in tar if member.name.endswith(tuple(endings)))
                tar.extractall(place, needed, filter="data")
        except DAMAGES as reason:
            raise ValueError(
                f"{source} cannot be read as a tar file or a Debian package: {reason}"
            ) from reason
        yield Path(place)


def _open_tar(file: BinaryIO) -> tarfile.TarFile:
    """The tar file that a file is, or that a package of Debian holds."""
    if file.read(len(ARCHIVE)) != ARCHIVE:
        file.seek(0)
        return tarfile.open(fileobj=file)
    while len(head := file.read(HEAD)) == HEAD:
        if head.startswith(b"data.tar.zst"):
            raise ValueError("it is packed by zstd: unpack it by dpkg -x, and give the folder")
        if head.startswith(b"data.tar"):
            return tarfile.open(fileobj=file, mode="r|*")  # from here on
        if not (digits := head[48:58].strip()).isdigit():  # a size below 0 would lead back here
            raise ValueError(
                f"it names a size that is not a number, {digits.decode(errors='replace')!r}"
            )
        size = int(digits)
        file.seek(size + size % 2, os.SEEK_CUR)
    raise ValueError("it has no data.tar")
