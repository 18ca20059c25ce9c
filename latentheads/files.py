"""Files as data: read within limits, for they may come from anywhere, and written whole.

Neither JSON nor YAML can run code here, but a short text of either can ask for more memory than
there is. So the size of a file is looked at before it is read, and the depth of its content before
it is walked through.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

__all__ = [
    "LOCK",
    "last_line",
    "lock_folder",
    "locked_folder",
    "naming",
    "parse_json",
    "parse_yaml",
    "read_json",
    "read_text",
    "read_yaml",
    "refuse_links",
    "remove_partial",
    "sync_folder",
    "write_text",
    "written_whole",
]

MOST_BYTES = 2**26
"""Bytes of a file of JSON: a vocabulary of a million words has half as many."""

MOST_YAML = 2**16
"""Bytes of a configuration: a long one has a tenth of them."""

MOST_SAID = 4096
"""Bytes of a log in which its last line is looked for."""

MOST_DEPTH = 32
"""Lists and mappings that may stand one in the other."""


LOCK = ".lock"
"""The file that a process locks to keep a folder for itself."""


def lock_folder(folder: Path) -> int:
    """Keeps a folder for this process; the system frees it when the process ends.

    Returns:
        A descriptor: closing it frees the folder, too.

    Raises:
        OSError: It cannot be written, or another process holds it.
    """
    lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o644)
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
    """Keeps a folder for this process as long as the context is open, without a file in it.

    Raises:
        OSError: Another process holds it.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(lock)
        yield
    finally:
        os.close(lock)


def last_line(log: Path) -> str:
    """The last line of a log that is not empty; nothing where there is no log yet."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - MOST_SAID))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def read_text(path: Path, most: int = MOST_BYTES, errors: str = "strict") -> str:
    """Reads a file of UTF-8 text.

    Args:
        path: The file.
        most: Bytes that it may have.
        errors: How bytes that are no UTF-8 are treated, as for ``bytes.decode``.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no file, or too large, or no UTF-8.
    """
    if path.exists() and not path.is_file():  # a pipe would never end
        raise ValueError("no file of text")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ValueError(f"at most {most:,} bytes are accepted, got {size:,}")
        return file.read(most).decode("utf-8", errors)


def parse_json(text: str) -> Any:
    """Makes what a text of JSON describes.

    Raises:
        ValueError: It is no JSON, or nested too deeply.
    """
    try:
        found = json.loads(text)
    except RecursionError:
        raise _too_deep() from None
    level = [found]
    for _ in range(MOST_DEPTH):
        level = [inner for outer in level for inner in _nested(outer)]
        if not level:
            return found
    raise _too_deep()


def read_json(path: Path, most: int = MOST_BYTES) -> Any:
    """Reads a file of JSON; see :func:`read_text` and :func:`parse_json`."""
    return parse_json(read_text(path, most))


def parse_yaml(text: str) -> Any:
    """Makes what a text of YAML describes, of plain values alone.

    Raises:
        ValueError: It is no YAML, too long, nested too deeply, or has aliases or tags.
    """
    if len(text) > MOST_YAML:
        raise ValueError(f"at most {MOST_YAML:,} characters are accepted, got {len(text):,}")
    try:
        return yaml.load(text, _PlainLoader)
    except yaml.YAMLError as reason:
        raise ValueError(f"not YAML: {' '.join(str(reason).split())}") from reason


def read_yaml(path: Path) -> Any:
    """Reads a file of YAML; see :func:`read_text` and :func:`parse_yaml`."""
    return parse_yaml(read_text(path, MOST_YAML))


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Says which file cannot be written, and why."""
    try:
        yield
    except OSError as reason:
        raise OSError(f"cannot write {path}: {reason.strerror or reason}") from reason


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Gives the place of a new file, which takes that of an older one when it is whole.

    A process killed at any moment, or a full disk, leaves the older file as it was.

    Args:
        path: The file. A link there gives way to it.

    Raises:
        OSError: It cannot be written, or is a device.
    """
    partial = path.with_name(path.name + ".part")
    with naming(path):
        if not path.is_symlink() and (path.is_char_device() or path.is_block_device()):
            raise OSError("it is a device")
        try:
            partial.unlink(missing_ok=True)  # it might be a link to somewhere else
            partial.touch(exist_ok=False)
            mode = partial.stat().st_mode  # safetensors makes files that others cannot read
            yield partial
            partial.chmod(mode)
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.replace(path)
            sync_folder(path.parent)
        except BaseException:
            with suppress(OSError):
                partial.unlink()
            raise


def sync_folder(folder: Path) -> None:
    """Waits until the disk knows which files are in a folder: a new name may be lost with power."""
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(place)
        finally:
            os.close(place)
    except OSError as reason:  # a file system that cannot do it keeps what it has been given
        if reason.errno not in (errno.EINVAL, errno.EACCES, errno.EBADF, errno.ENOTSUP):
            raise


def remove_partial(folder: Path, patterns: Iterable[str]) -> None:
    """Removes what a process that was killed left of files that it wrote; hold the lock.

    Args:
        folder: Where they lie.
        patterns: How they are named, as for ``Path.glob``.
    """
    for path in [path for pattern in patterns for path in folder.glob(pattern)]:
        if path.is_file() or path.is_symlink():
            path.unlink(missing_ok=True)


def refuse_links(folder: Path, names: Iterable[str]) -> None:
    """Refuses a folder with a link in place of one of its own files: it leads elsewhere.

    Args:
        folder: The folder; it may itself be named by a link.
        names: The files and folders that are looked at.

    Raises:
        ValueError: It names the link.
    """
    for name in names:
        if os.path.islink(folder / name):  # of a name that is too long it says no
            raise ValueError(f"{folder / name} is a link: a run folder holds its own files")


def write_text(path: Path, text: str) -> None:
    """Writes a file of UTF-8 text whole or not at all; see :func:`written_whole`."""
    with written_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


class _PlainLoader(yaml.SafeLoader):
    """Reads YAML without aliases or tags, to a depth."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Makes a node of the tree that values are made of, where it may stand."""
        event: Any = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"alias *{event.anchor}: write out what it stands for")
        if event.tag:
            raise ValueError(f"tag {event.tag!r}: only plain values are accepted")
        inner = isinstance(event, yaml.CollectionStartEvent)
        self.depth += inner
        if self.depth > MOST_DEPTH:
            raise _too_deep()
        node = super().compose_node(parent, index)
        self.depth -= inner
        return node


def _nested(value: Any) -> Iterator[Any]:
    """The lists and mappings right inside a value."""
    inside = value.values() if isinstance(value, dict) else value
    if isinstance(value, (dict, list)):
        yield from (inner for inner in inside if isinstance(inner, (dict, list)))


def _too_deep() -> ValueError:
    return ValueError(f"at most {MOST_DEPTH} lists and mappings may stand one in the other")
