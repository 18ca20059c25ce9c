"""Reading files from untrusted sources within limits, and writing files atomically.

Text, JSON and YAML of the library and its programs are read and written here; safetensors in
:mod:`latentheads.training.checkpoints`, and lines of a corpus in :mod:`latentheads.corpora.text`.
No more of a file is read than its limit; :mod:`latentheads.plain` parses it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from latentheads.plain import MAX_YAML_BYTES, parse_json, parse_yaml

MAX_BYTES = 2**26
"""Most bytes of a JSON file: a vocabulary of a million words has half as many."""

LOG_TAIL_BYTES = 4096
"""Bytes at the end of a log in which its last line is searched."""

TEMPORARY_PREFIX = ".latentheads-"
"""Prefix of the folders that hold files until they are whole."""


LOCK = ".lock"
"""The file that a process locks to reserve a folder."""


def lock_folder(folder: Path) -> int:
    """Locks a folder for this process; the system releases the lock when the process ends.

    Returns:
        A file descriptor; closing it releases the lock.

    Raises:
        OSError: The folder is not writable, or another process has locked it.
    """
    lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        _lock(lock)
    except OSError:
        os.close(lock)
        raise
    return lock


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OSError(errno.EBUSY, "another process is writing it") from None


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Locks a folder within the context, without a lock file."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(lock)
        yield
    finally:
        os.close(lock)


def last_line(log: Path) -> str:
    """The last non-empty line of a log; an empty string if there is no log yet."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def read_text(path: Path, max_bytes: int = MAX_BYTES, errors: str = "strict") -> str:
    """Reads a UTF-8 text file.

    Args:
        path: The file.
        max_bytes: Most bytes that it may have.
        errors: How invalid UTF-8 is treated, as for ``bytes.decode``.

    Raises:
        OSError: It cannot be read.
        ValueError: It is a folder, too large, or not UTF-8.
    """
    if path.is_dir():
        raise ValueError("it is a folder")
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)  # a pipe or a device has no size to look at before
    if len(content) > max_bytes:
        raise ValueError(f"at most {max_bytes:,} bytes are accepted, and it has more")
    return content.decode("utf-8", errors)


def read_json(path: Path, max_bytes: int = MAX_BYTES) -> Any:
    """Reads a JSON file; see :func:`read_text` and :func:`parse_json`."""
    return parse_json(read_text(path, max_bytes))


def read_yaml(path: Path) -> Any:
    """Reads a YAML file; see :func:`read_text` and :func:`parse_yaml`."""
    return parse_yaml(read_text(path, MAX_YAML_BYTES))


@contextmanager
def reading_file(path: Path) -> Iterator[None]:
    """Adds the name of the file to what is wrong with its content."""
    try:
        yield
    except (OSError, KeyError, TypeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"{path} cannot be read: {reason}") from error


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Adds the name of the file to errors of writing it."""
    try:
        yield
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror or error}") from error


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Writes a file atomically: yields a temporary path, which replaces the file on success.

    The temporary file has a folder of its own beside the file, hidden and with a random name, so
    that no file of the user is in its way, nor any that a library puts beside it. If the process is
    killed, or the disk is full, the old file is unchanged.

    Args:
        path: The file. A link to one is replaced; a pipe or a device has nothing to replace, and
            is written to.

    Raises:
        OSError: It cannot be written.
    """
    with naming_file(path):
        if path.exists() and not (path.is_file() or path.is_dir()):
            with TemporaryDirectory() as folder:  # safetensors would put a file in its place
                partial = Path(folder, "whole")
                yield partial
                path.write_bytes(partial.read_bytes())
            return
        with _temporary_folder(path.parent) as temporary:
            partial = temporary / "whole"
            partial.touch()
            mode = partial.stat().st_mode  # safetensors creates files that only the owner can read
            yield partial
            partial.chmod(mode)
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.replace(path)
        sync_folder(path.parent)


@contextmanager
def _temporary_folder(parent: Path) -> Iterator[Path]:
    """A folder within the context; Ctrl-C while it is made or removed leaves none, either."""
    folder = parent / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        try:
            shutil.rmtree(folder, ignore_errors=True)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def is_same_file(first: str | Path, second: str | Path) -> bool:
    """Whether two paths lead to one file, by links too, or would once it is written."""
    try:
        return os.path.samefile(first, second)
    except (OSError, ValueError):
        return os.path.realpath(first) == os.path.realpath(second)


def sync_folder(folder: Path) -> None:
    """Syncs a folder to disk, so that new names in it survive a power failure."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:  # some file systems do not support it
        if error.errno not in (errno.EINVAL, errno.EACCES, errno.EBADF, errno.ENOTSUP):
            raise


def remove_temporary(folder: Path) -> None:
    """Removes temporary files of :func:`atomic_write` that killed processes have left.

    Args:
        folder: A folder whose lock this process holds: no other one is writing there.
    """
    for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Writes a UTF-8 text file atomically; see :func:`atomic_write`."""
    with atomic_write(path) as partial:
        partial.write_text(text, encoding="utf-8")


def format_json(value: Any) -> str:
    """Formats a value as the JSON of a file; see :func:`finite`."""
    return json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file atomically; see :func:`format_json`."""
    write_text(path, format_json(value))


def finite(value: Any) -> Any:
    """Converts a value for JSON: NaN and infinity, which JSON does not have, become None.

    Tensors and arrays, and numbers of NumPy, become lists and numbers.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
