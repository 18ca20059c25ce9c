"""Plain text: one sentence a line, a file for each language."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from latentheads.checks import check_word

__all__ = ["PARTS", "Pair", "find", "lines_of", "read_lines", "read_pairs"]

Pair = tuple[str, str]
"""A source sentence and its target."""

PARTS = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test",)}
"""The parts of a corpus, and the names of a file of each before its first dot, the usual first."""

BYTE_ORDER = b"\xef\xbb\xbf"

UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""The byte order marks of UTF-16 (and, with zeros behind, of UTF-32), which is not read."""

LISTED = 12
"""Files of a folder that an error names at most."""


def read_lines(path: str | Path) -> list[str]:
    """Reads the lines of a file, as `lines_of`."""
    return list(lines_of(path))


def lines_of(path: str | Path) -> Iterator[str]:
    r"""Reads a UTF-8 file line by line, compressed where its name ends in ``.gz``.

    Lines end at "\n" alone: U+0085 and U+2028 stand inside sentences in some corpora. A "\r" before
    "\n" and a byte order mark at the beginning are left out; nothing else is changed.

    Raises:
        ValueError: The file is missing, unreadable, empty, or no UTF-8 text.
    """
    path, number = Path(path), 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield _text(line.removeprefix(BYTE_ORDER) if number == 1 else line, path, number)
    except FileNotFoundError as reason:
        raise ValueError(f"there is no file {path}") from reason
    except (OSError, EOFError, zlib.error) as reason:
        said = getattr(reason, "strerror", None) or reason
        raise ValueError(f"cannot read {path}: {said}") from reason
    if not number:
        raise ValueError(f"{path} is empty: one sentence a line is expected")


def _text(line: bytes, path: Path, number: int) -> str:
    """The text of a line, without its end."""
    if number == 1 and line.startswith(UTF_16):
        raise ValueError(f"{path} is UTF-16 or UTF-32: convert the file to UTF-8")
    if b"\0" in line:
        raise ValueError(
            f"{path}, line {number}: a NUL byte; text in UTF-8 has none, text in UTF-16 has: "
            "convert the file to UTF-8"
        )
    try:
        return line.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as reason:
        raise ValueError(
            f"{path}, line {number}: byte 0x{line[reason.start]:02x} is no UTF-8; "
            "convert the file to UTF-8"
        ) from reason


def find(folder: str | Path, part: str, language: str, stem: str | None = None) -> Path:
    """Finds the file of a part in a language, such as ``train.de`` or ``train.de.gz``.

    Args:
        folder: Where it is.
        part: One of ``train``, ``valid`` (its file may be called valid, val or dev), ``test``.
        language: What the name ends in.
        stem: What stands before the language where it is another name, as in
            ``test_2016_flickr.de``.

    Raises:
        ValueError: There is no such file, or a folder in its place.
    """
    folder = Path(folder)
    names = [name for s in _stems(part, stem) for name in _names(s, language)]
    for name in names:
        if (folder / name).is_file():
            return folder / name
        if os.path.lexists(folder / name):
            what = "a folder" if (folder / name).is_dir() else "a link to nothing, or a device"
            raise ValueError(f"{folder / name} is {what}, not a file")
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}, where {names[0]} was looked for")
    raise ValueError(f"{folder} has no {' or '.join(names)}; it has {_listed(folder)}")


def _stems(part: str, stem: str | None) -> Sequence[str]:
    if stem is not None:
        return [stem]
    check_word("part", part, PARTS)
    return PARTS[part]


def _names(stem: str, language: str) -> list[str]:
    return [f"{stem}.{language}", f"{stem}.{language}.gz"]


def _listed(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return (", ".join(names[:LISTED]) or "no file") + more


def read_pairs(
    folder: str | Path, part: str, source: str, target: str, stem: str | None = None
) -> list[Pair]:
    """Reads the two files of a part.

    Args:
        folder: Where they are.
        part: One of ``train``, ``valid``, ``test``.
        source: Language translated from.
        target: Language translated into.
        stem: As in `find`.

    Raises:
        ValueError: A file is missing or broken, or the two do not belong together.
    """
    paths = find(folder, part, source, stem), find(folder, part, target, stem)
    lefts, rights = (read_lines(path) for path in paths)
    if len(lefts) != len(rights):
        raise ValueError(
            f"{paths[0]} has {len(lefts):,} lines and {paths[1]} {len(rights):,}: line n of one "
            "must translate line n of the other"
        )
    return list(zip(lefts, rights))
