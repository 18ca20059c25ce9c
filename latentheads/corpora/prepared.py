"""Corpora that are prepared once, of the files that they are distributed in."""

from __future__ import annotations

import json
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from latentheads.files import read_json

__all__ = ["Preparation", "open_source"]


@dataclass(frozen=True)
class Preparation:
    """How a folder is made of another one, whole or not at all.

    Attributes:
        mark: A file in it that says what it was made of.
        digest: What the mark says.
        write: Writes the folder that is named second, of the files of the first; gives a line about
            what was done.
    """

    mark: str
    digest: str
    write: Callable[[Path, Path], str]

    def run(self, source: Path, out: Path, tell: Callable[[str], object] | None = None) -> Path:
        """Makes the folder; does nothing where that is done.

        Args:
            source: The folder of the files that are read, or a tar file.
            out: Where the corpus goes.
            tell: Called with a line about what was done.

        Returns:
            Where the corpus is.

        Raises:
            ValueError: The source cannot be read, or the place holds something else.
        """
        said = f"{out} is prepared already"
        if not self._is_done(out):
            if out.exists():
                raise ValueError(
                    f"{out} is there already and holds something else: choose another out"
                )
            with open_source(source) as folder:
                said = f"{out}: {self._write_whole(folder, out)}"
        if tell is not None:
            tell(said)
        return out

    def _write_whole(self, folder: Path, out: Path) -> str:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{out.name}.", dir=out.parent) as place:
            whole = Path(place) / "whole"
            whole.mkdir()
            said = self.write(folder, whole)
            mark = json.dumps({"digest": self.digest}) + "\n"
            (whole / self.mark).write_text(mark, encoding="utf-8")
            try:
                os.replace(whole, out)
            except OSError:
                if not self._is_done(out):  # by another process, meanwhile
                    raise
        return said

    def _is_done(self, out: Path) -> bool:
        """Whether a folder holds the corpus already, whole."""
        try:
            found = read_json(out / self.mark)
        except (OSError, ValueError):
            return False
        return isinstance(found, dict) and found.get("digest") == self.digest


@contextmanager
def open_source(source: Path) -> Iterator[Path]:
    """The folder of a data set; that of a tar file while it is open.

    Raises:
        ValueError: It is neither a folder nor a tar file.
    """
    if source.is_dir():
        yield source
        return
    if not source.is_file():
        raise ValueError(f"there is no {source}: give the folder of the data set, or a tar file")
    with tempfile.TemporaryDirectory() as place:
        try:
            with tarfile.open(source) as file:
                file.extractall(place, filter="data")
        except (tarfile.TarError, OSError, EOFError) as reason:
            raise ValueError(f"{source} cannot be read as a tar file: {reason}") from reason
        yield Path(place)
