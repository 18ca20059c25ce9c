"""The folder of a corpus that is prepared: once, and whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from latentheads.corpora.corpus import Log
from latentheads.experiments.studies.preparing.fetching import fetch_files
from latentheads.experiments.studies.preparing.package import opened
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
