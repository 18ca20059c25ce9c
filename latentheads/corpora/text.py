"""Plain text: one sentence per line, one file per language."""

from __future__ import annotations

import gzip
import re
import unicodedata
import zlib
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from latentheads.checks import check_as_many, check_instance, check_list

SentencePair = tuple[str, str]
"""A source sentence and its target."""


@runtime_checkable
class SizedPairs(Protocol):
    """Pairs by their index, as a ``Dataset`` of PyTorch has them."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> SentencePair: ...


PARTS = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test",)}
"""The parts of a corpus, and the file name stems of each, in the order in which they are tried."""

BYTE_ORDER = b"\xef\xbb\xbf"

BLANKS = re.compile(r"[ \t]{2,}|\t")
"""Blanks and tabs that are not one blank already, so that most lines stay the object they are."""

LISTED = 12
"""Maximum number of files of a folder that an error lists."""


def read_lines(path: str | Path) -> list[str]:
    """Reads the lines of a file into a list; see `iterate_lines`."""
    return list(iterate_lines(path))


def iterate_lines(path: str | Path) -> Iterator[str]:
    r"""Reads a UTF-8 file line by line; it is decompressed if its name ends in ``.gz``.

    Lines end at "\n" only, since U+0085 and U+2028 occur inside sentences in some corpora. A "\r"
    before "\n" and a byte order mark at the beginning are removed; nothing else is changed.

    Raises:
        ValueError: The file is missing, unreadable, empty, or no UTF-8 text.
    """
    path, number = Path(path), 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield decode_line(
                    line.removeprefix(BYTE_ORDER) if number == 1 else line, path, number
                )
    except FileNotFoundError as error:
        raise ValueError(f"there is no file {path}") from error
    except (OSError, EOFError, zlib.error) as error:
        message = getattr(error, "strerror", None) or error
        raise ValueError(f"cannot read {path}: {message}") from error
    if not number:
        raise ValueError(f"{path} is empty: one sentence a line is expected")


def normalise_whitespace(line: str) -> str:
    """Replaces every run of blanks and tabs by one blank; leading and trailing ones are removed.

    Other white space, such as U+00A0 or U+3000, stays as it is.
    """
    return BLANKS.sub(" ", line).strip(" ")


def split_punctuation(line: str) -> list[str]:
    """Splits a line at spaces, and punctuation off the beginning and the end of its words.

    Punctuation within a word stays, such as that of "don't" or "well-known"; adjacent punctuation
    is one word.

    >>> split_punctuation('He said: "Wait...", well-known.')
    ['He', 'said', ':', '"', 'Wait', '...",', 'well-known', '.']
    """
    return [part for word in line.split() for part in split_word(word)]


def split_word(word: str) -> list[str]:
    """The punctuation before a word without spaces, the word, and the punctuation after it."""
    start = len(list(takewhile(is_punctuation, word)))
    end = len(word) - len(list(takewhile(is_punctuation, reversed(word[start:]))))
    return [part for part in (word[:start], word[start:end], word[end:]) if part]


def is_punctuation(character: str) -> bool:
    """Whether a character is punctuation or a symbol, by its category in Unicode."""
    return unicodedata.category(character)[0] in "PS"


def decode_line(line: bytes, path: str | Path, number: int) -> str:
    """Decodes a line and removes its line break."""
    if b"\0" in line:
        raise ValueError(
            f"{path}, line {number}: a NUL byte; text in UTF-8 has none, text in UTF-16 has: "
            "convert the file to UTF-8"
        )
    try:
        return line.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {number}: byte 0x{line[error.start]:02x} is not UTF-8; "
            "convert the file to UTF-8"
        ) from error


def find_file(folder: str | Path, part: str, language: str, stem: str | None = None) -> Path:
    """Finds the file of a part in a language, such as ``train.de`` or ``train.de.gz``.

    Args:
        folder: The folder of the corpus.
        part: One of ``train``, ``valid`` (its file may be named valid, val or dev), ``test``.
        language: Ending of the file name.
        stem: Stem of the file name where it is not the usual one, as in ``test_2016_flickr.de``.

    Raises:
        ValueError: There is no such file, or it is a folder.
    """
    folder = Path(folder)
    suffixes = (language, f"{language}.gz")
    stems = PARTS[part] if stem is None else [stem]
    names = [f"{prefix}.{suffix}" for prefix in stems for suffix in suffixes]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}, where {names[0]} was looked for")
    files = _list_files(folder) or "no file"
    raise ValueError(f"{folder} has no {' or '.join(names)}; it has {files}")


def _list_files(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    suffix = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + suffix


def read_pairs(
    folder: str | Path, part: str, source: str, target: str, stem: str | None = None
) -> list[SentencePair]:
    """Reads the two files of a part of a parallel corpus.

    Raises:
        ValueError: A file is missing or broken, or the files differ in the number of lines.
    """
    return pair_lines(*(find_file(folder, part, side, stem) for side in (source, target)))


def pair_lines(source: str | Path, target: str | Path) -> list[SentencePair]:
    """Reads two files, of which line n of one translates line n of the other; as `read_pairs`."""
    source_lines, target_lines = (read_lines(path) for path in (source, target))
    check_as_many(f"lines of {source}", source_lines, f"those of {target}", target_lines)
    return list(zip(source_lines, target_lines))


def list_texts(name: str, texts: Any) -> list[str]:
    """Makes a list of texts."""
    check_list(name, texts)
    as_list = list(texts)
    for text in as_list:
        check_instance(name, text, str, "texts")
    return as_list
