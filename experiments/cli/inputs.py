"""Standard input, read a chunk of lines at a time while it is still being written."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

__all__ = ["chunks"]


def chunks(text: Iterable[bytes], size: int) -> Iterator[list[str]]:
    """Lines in chunks of a size, cut as `latentheads.corpora.text.read_lines` cuts a file.

    Raises:
        ValueError: A line is no UTF-8; those before it have been given.
    """
    chunk: list[str] = []
    for number, line in enumerate(text, 1):
        line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        try:
            chunk.append(line.decode("utf-8").removesuffix("\n").removesuffix("\r"))
        except UnicodeDecodeError:
            yield chunk
            raise ValueError(f"line {number} of the input is no UTF-8") from None
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
