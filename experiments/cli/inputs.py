"""Inputs of programs: standard input in chunks, while it is still being written; folders."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from pathlib import Path


def check_folder(folder: str | Path) -> None:
    """Checks that a network's folder is there: transformers would ask its hub for another name."""
    if not Path(folder).is_dir():
        raise ValueError(f"there is no folder {folder}")


def read_chunks(lines: Iterable[bytes], size: int) -> Iterator[list[str]]:
    """Yields chunks of lines, split as `latentheads.corpora.text.read_lines` splits a file.

    Raises:
        ValueError: A line is not UTF-8; the lines before it have been yielded.
    """
    chunk: list[str] = []
    for number, line in enumerate(lines, 1):
        line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        try:
            chunk.append(line.decode("utf-8").removesuffix("\n").removesuffix("\r"))
        except UnicodeDecodeError:
            yield chunk
            raise ValueError(f"line {number} of the input is not UTF-8") from None
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
