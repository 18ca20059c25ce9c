"""Output files of programs, checked before the work so that no result is lost."""

from __future__ import annotations

import io
import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from latentheads.files import is_same_file, naming_file

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def check_output_file(name: str | Path, option: str = "--out") -> Path:
    """Checks that an output file can be written, by writing a byte that is thrown away.

    Returns:
        The real path of a file, with links resolved; a pipe or a device stays as it is.
    """
    _check_named(option, str(name))
    out, path = Path(name), Path(os.path.realpath(name))
    mode = stat.S_IFREG
    try:
        with naming_file(out):
            with suppress(FileNotFoundError):
                mode = os.stat(out).st_mode  # is_dir() of Python 3.14 has no error for a long name
            if stat.S_ISDIR(mode):
                raise ValueError(f"{option}: cannot write {out}: it is a folder")
            if not stat.S_ISREG(mode):
                return out
            _write_byte(path.parent)
    except OSError as error:
        raise ValueError(f"{option}: {error}") from error
    return path


def _write_byte(folder: Path) -> None:
    """Writes a byte that is thrown away: on a full disk a file can be made that takes none."""
    with tempfile.TemporaryFile(dir=folder) as temporary:
        temporary.write(b"\n")
        temporary.flush()


def _check_named(option: str, name: str) -> None:
    """Checks that an output is not ``-``, standard output of other tools; ``./-`` is a file.

    Nor is it one that would be taken for compressed when it is read.
    """
    if name in ("", "-"):
        raise ValueError(f"{option}: cannot write {name or repr(name)}: name a file")
    if name.endswith(".gz"):
        raise ValueError(f"{option}: cannot write {name}: name a file without .gz, it is text")


def check_distinct_files(
    outputs: Iterable[tuple[str, str | Path | None]], inputs: Iterable[str | Path | None] = ()
) -> None:
    """Checks that no output replaces an input or another output, also by a link.

    Args:
        outputs: Files to write, each with the option that names it; None is no file.
        inputs: Files to read, and run folders; None is no file.
    """
    to_read = [path for name in inputs if name is not None for path in _files_of(Path(name))]
    others: list[tuple[str, str | Path]] = []
    for option, out in outputs:
        if out is None:
            continue
        if any(is_same_file(out, path) for path in to_read):
            raise ValueError(f"{option}: cannot write {out}: it is read too, name another file")
        for other, path in others:
            if is_same_file(out, path):
                raise ValueError(f"{other} and {option} need a file each, got {out} for both")
        others.append((option, out))


def _files_of(path: Path) -> list[Path]:
    """The files of a run folder, but for its page; or the file itself."""
    if not path.is_dir():
        return [path]
    from latentheads.runs.folder import PAGE, RUN_FILES  # slow to import

    names = [name for name in RUN_FILES if name != PAGE]
    return [*(path / name for name in names), *(path / "checkpoints").glob("*")]


def check_no_run(out: Path, option: str = "--out") -> None:
    """Checks that a folder is not that of a run, whose own files might be replaced."""
    if (out / "config.yaml").exists():
        raise ValueError(f"{out} is a run folder: choose another {option}")


def make_output_folder(out: Path, option: str = "--out") -> Path:
    """Creates the output folder, and checks that a byte can be written into it."""
    check_no_run(out, option)
    try:
        out.mkdir(parents=True, exist_ok=True)
        _write_byte(out)
    except OSError as error:
        raise ValueError(f"{option}: cannot write {out}: {error.strerror}") from error
    return out


class _Output(io.FileIO):
    """A file that keeps its old content until something is written; its errors name it."""

    def __init__(self, name: str) -> None:
        self._emptied = False
        with naming_file(Path(name)):
            super().__init__(name, "a")

    def empty(self) -> None:
        """Removes its old content, once."""
        if not self._emptied:
            self._emptied = True
            with suppress(OSError):  # only a regular file has old content
                self.truncate(0)

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes some of the bytes."""
        self.empty()
        with naming_file(Path(str(self.name))):
            return super().write(data)


def _is_stdin(descriptor: int) -> bool:
    """Whether standard input is the same file on disk."""
    try:
        status = os.fstat(sys.stdin.fileno())
    except (OSError, ValueError):  # closed, or without a descriptor
        return False
    return stat.S_ISREG(status.st_mode) and os.path.samestat(status, os.fstat(descriptor))


@contextmanager
def open_output(option: str, name: str | None) -> Iterator[TextIO | None]:
    """Opens an optional output file besides standard output.

    If the work fails before anything is written, the file is unchanged.

    Raises:
        ValueError: It cannot be opened, or is standard input too.
        OSError: Writing or flushing fails later.
    """
    if name is None:
        yield None
        return
    _check_named(f"--{option}", name)
    try:
        output = _Output(name)
    except OSError as reason:
        raise ValueError(f"--{option}: {reason}") from reason
    if _is_stdin(output.fileno()):
        output.close()
        raise ValueError(f"--{option}: cannot write {name}: it is standard input too")
    file = io.TextIOWrapper(io.BufferedWriter(output), encoding="utf-8")
    try:
        yield file
    except BaseException:
        with suppress(OSError, ValueError):  # the first error is raised already
            file.close()
        raise
    output.empty()
    file.close()
