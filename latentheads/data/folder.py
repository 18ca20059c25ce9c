"""What all data from a folder has in common: where the files of its parts are."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from latentheads.data.base import Cached, Log

if TYPE_CHECKING:
    from latentheads.corpora.corpus import Corpus


@dataclass(frozen=True, kw_only=True)
class FolderData(Cached):
    """Data from a folder; the base stands before that of the kind of data.

    Attributes:
        folder: Where the files are.
        train_name: Name of the training files before the dot.
        valid_name: The same for validation; empty: valid, val or dev.
        test_name: The same for test.
    """

    folder: str = field(default="", kw_only=False)
    train_name: str = "train"
    valid_name: str = ""
    test_name: str = "test"

    def _check(self) -> None:
        super()._check()
        if not self.folder:
            raise ValueError("folder must name a folder")

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.folder).expanduser()

    def _make(self, log: Log | None, keep: bool) -> Corpus:
        self._check_files()
        return super()._make(log, keep)

    def _check_files(self) -> None:
        """Raises a ValueError where the folder cannot hold such data."""
        if not self.path.is_dir():
            raise ValueError(f"data must be an existing folder, got {self.folder!r}")

    def _stem(self, part: str) -> str | None:
        """The name of a part's files before the dot; None: the usual ones."""
        return getattr(self, f"{part}_name") or None
