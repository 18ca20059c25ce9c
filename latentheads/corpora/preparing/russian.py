"""Russian in two domains: sentences of novels that a man reads, and descriptions of pictures.

The first are those that a voice of Festival was made of (festvox-ru, BSD-like), with marks for its
reader: a plus before a vowel that is stressed, commas for pauses. The second are `stamps`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from pathlib import Path

from latentheads.corpora.preparing.folder import Origin
from latentheads.corpora.preparing.recordings import (
    Found,
    RecordedCorpus,
    Recording,
    said_in,
)
from latentheads.corpora.preparing.stamps import find_stamps
from latentheads.files import read_text

__all__ = ["RUSSIAN", "find_russian"]

ENDINGS = (".wav", "/txt.done.data", "_desc_ru.ogg", ".txt")

SENTENCES = "txt.done.data"
SENTENCE = re.compile(r'\(\s*(\w+)\s+"([^"]*)"\s*\)')

ORIGIN = Origin(
    "russian",
    "those of festvox-ru 0.5 and, in Russian, of tuxpaint-stamps-default 2022.06.04",
    "f4458706596544b8f021ecb365f473ebd6c488a89c8326689727fdcc109af114",
    "Domain read: sentences from the Debian package festvox-ru 0.5, copyright 2005 Nickolay V. "
    "Shmyrev; licence: BSD-like, it is in the package.\n"
    "Domain captions: descriptions of the stamps of Tux Paint, https://tuxpaint.org, from the "
    "Debian package tuxpaint-stamps-default 2022.06.04, copyright 2002-2022 by Bill Kendrick; "
    "licence: GPL-2.\n",
)


def find_russian(folders: Sequence[Path]) -> Found:
    """The sentences that are read, and the stamps.

    Args:
        folders: Where to look.
    """
    stamps = find_stamps(folders, ["ru"])
    read: dict[str, Path] = {}
    for folder in folders:
        for table in sorted(folder.rglob(SENTENCES)):
            sounds = sorted((table.parent.parent / "wav").glob("*.wav"))
            read |= {SENTENCES: table, **{path.name: path for path in sounds}}
    captions = (
        replace(each, texts={"ru": each.texts.get("ru", "")}, domain="captions")
        for each in stamps.recordings
    )
    return Found({**stamps.files, **read}, chain(captions, _read_sentences(read)))


RUSSIAN = RecordedCorpus(ORIGIN, ENDINGS, find_russian, attrgetter("domain"))


def _read_sentences(files: Mapping[str, Path]) -> Iterator[Recording]:
    texts = dict(SENTENCE.findall(read_text(files[SENTENCES]))) if SENTENCES in files else {}
    for path in files.values():
        if path.suffix == ".wav":
            said = said_in(texts.get(path.stem, "").replace("+", ""))
            yield Recording(f"ru/read/{path.stem}", path, "ru", {"ru": said}, domain="read")
