"""A corpus that is prepared: of which files, and in a folder that is whole or not there at all."""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from latentheads.corpora.part import Log
from latentheads.experiments.studies.preparing.fetching import fetch_files
from latentheads.files import read_json


@dataclass(frozen=True)
class Origin:
    """The files that a corpus is made of.

    Attributes:
        name: What the corpus is called.
        holds: What its files are, such as "the 3,000 recordings of ...".
        digest: SHA-256 of their names and contents.
        licence: Who made them, and what may be done with them.
        unit: What they are called where they are other ones.
        urls: Where they are published.
    """

    name: str
    holds: str
    digest: str
    licence: str
    unit: str = "files"
    urls: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        """The file of a folder that says that the corpus in it is whole."""
        return f"{self.name}.json"

    def name_sources(self, given: Sequence[Path]) -> str:
        """What errors call the files that are given, or fetched where none are."""
        return " ".join(map(str, given or self.urls))

    def fetch(self, beside: Path, tell: Log | None = None) -> Path:
        """Fetches the files into a folder beside one that is written, and gives that folder."""
        return fetch_files(self.urls, beside.with_name("fetched"), tell)

    @contextmanager
    def opened(
        self, given: Sequence[Path], endings: Sequence[str], beside: Path, tell: Log | None = None
    ) -> Iterator[list[Path]]:
        """The folders of what is given, or else fetched; those of packed files while it is open."""
        sources = given or self.fetch(beside, tell).iterdir()
        with opened(list(sources), endings) as folders:
            yield folders

    def check(self, files: Mapping[str, Path | bytes], given: Sequence[Path]) -> None:
        """Validates that the files are those of the corpus; ``given`` is where they come from."""
        source = self.name_sources(given)
        if not files:
            raise ValueError(f"{source} holds no such {self.unit} as {self.holds}")
        total = hashlib.sha256()
        for name in sorted(files):
            file = files[name]
            content = file if isinstance(file, bytes) else file.read_bytes()
            total.update(name.encode() + hashlib.sha256(content).digest())
        if total.hexdigest() != self.digest:
            raise ValueError(
                f"{source} holds {len(files):,} {self.unit} that are not {self.holds}: "
                f"their SHA-256 is {total.hexdigest()[:16]}, not {self.digest[:16]}"
            )

    def is_prepared(self, out: Path) -> bool:
        """Whether a folder holds the corpus already, whole."""
        try:
            found = read_json(out / self.mark)
        except (OSError, ValueError):
            return False
        return isinstance(found, dict) and found.get("digest") == self.digest


def prepare_once(
    origin: Origin, out: Path, write: Callable[[Path], str], tell: Log | None = None
) -> Path:
    """Writes a corpus where it is not yet.

    It is written beside its place and moved there when it is whole: a process that is killed leaves
    nothing there, and two that do the same do not disturb each other.
    """
    tell = tell or str
    if origin.is_prepared(out):
        tell(f"{out} is prepared already")
        return out
    if _is_taken(out):
        raise ValueError(f"{out} is there already and holds something else: choose another out")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{out.name}.", dir=out.parent) as place:
        whole = Path(place) / "whole"
        whole.mkdir()
        said = write(whole)
        (whole / "README.txt").write_text(origin.licence, encoding="utf-8")
        mark = json.dumps({"digest": origin.digest}) + "\n"
        (whole / origin.mark).write_text(mark, encoding="utf-8")
        try:
            os.replace(whole, out)
        except OSError:
            if not origin.is_prepared(out):  # by another process, meanwhile
                raise
    tell(f"{out}: {said}")
    return out


def _is_taken(out: Path) -> bool:
    """Whether a new folder cannot take the place: it can take that of an empty one."""
    if out.is_symlink() or not out.is_dir():
        return os.path.lexists(out)
    return any(out.iterdir())


ARCHIVE = b"!<arch>\n"
"""How a package of Debian begins: it is an archive of ar, one of whose members is a tar file."""

HEAD = 60
"""Bytes before each member of an archive: its name in the first 16, its size from 48 to 58."""

DAMAGES = (tarfile.TarError, lzma.LZMAError, zlib.error, OSError, EOFError, KeyError, ValueError)
"""Errors of reading a damaged file: a KeyError where a link has no target."""


@contextmanager
def opened(sources: Sequence[Path], endings: Sequence[str]) -> Iterator[list[Path]]:
    """The folders of the sources of a corpus: folders, tar files, Debian packages, files as such.

    Those of packed files are there while it is open.
    """
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
        size = int(head[48:58])
        file.seek(size + size % 2, os.SEEK_CUR)
    raise ValueError("it has no data.tar")
