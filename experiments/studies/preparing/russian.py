"""Russian in three domains: sentences that a man reads, descriptions of pictures, a telephone.

The first are those that a voice of Festival was made of (festvox-ru, BSD-like), with marks for its
reader: a plus before a vowel that is stressed, commas for pauses. The second are `stamps`. The
third are the prompts of a telephone exchange, of 8 kHz (asterisk-core-sounds-ru-wav, CC BY 3.0).
Their package has no texts; those of the list of prompts are taken, in any version of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from pathlib import Path

from latentheads.corpora.text import iterate_lines
from latentheads.experiments.studies.preparing.fetching import DEBIAN
from latentheads.experiments.studies.preparing.folder import Origin
from latentheads.experiments.studies.preparing.recordings import (
    Found,
    RecordedCorpus,
    Recording,
    said_in,
)
from latentheads.experiments.studies.preparing.stamps import STAMPS, find_stamps
from latentheads.files import read_text

ENDINGS = (".wav", "/txt.done.data", "_desc_ru.ogg", ".txt")

PROMPTS = "core-sounds-ru.txt"
VOICE = "ru_RU_*"
"""The folder of who speaks on the telephone."""

RATE = 7_600
"""Samples a second that hold all frequencies of the preset's frames; a telephone has 8,000."""

LATIN = re.compile("[A-Za-z]")

SENTENCES = "txt.done.data"
SENTENCE = re.compile(r'\(\s*(\w+)\s+"([^"]*)"\s*\)')

ORIGIN = Origin(
    "russian",
    "those of festvox-ru 0.5, asterisk-core-sounds-ru-wav 1.6.1 and, in Russian, of "
    "tuxpaint-stamps-default 2022.06.04",
    "9056cd53b1aad816953cd429512dcf597ee266d92be04e255b06bf610cac2cfb",
    "Domain read: sentences from the Debian package festvox-ru 0.5, copyright 2005 Nickolay V. "
    "Shmyrev; licence: BSD-like, it is in the package.\n"
    "Domain captions: descriptions of the stamps of Tux Paint, https://tuxpaint.org, from the "
    "Debian package tuxpaint-stamps-default 2022.06.04, copyright 2002-2022 by Bill Kendrick; "
    "licence: GPL-2.\n"
    "Domain telephone: prompts from the Debian package asterisk-core-sounds-ru-wav 1.6.1, "
    "copyright 2010 Maxim Topal, http://www.ivrvoice.ru; licence: CC BY 3.0.\n",
    urls=(
        f"https://raw.githubusercontent.com/pbxware/asterisk-sounds/HEAD/{PROMPTS}",
        f"{DEBIAN}/f/festvox-ru/festvox-ru_0.5+dfsg-6_all.deb",
        f"{DEBIAN}/a/asterisk-core-sounds/asterisk-core-sounds-ru-wav_1.6.1-1_all.deb",
        *STAMPS.origin.urls,
    ),
)


def find_russian(folders: Sequence[Path]) -> Found:
    """The sentences that are read, the stamps, and the prompts of a telephone."""
    stamps = find_stamps(folders, ["ru"])
    read: dict[str, Path] = {}
    prompts: dict[str, Path] = {}
    for folder in folders:
        for table in sorted(folder.rglob(SENTENCES)):
            sounds = sorted((table.parent.parent / "wav").glob("*.wav"))
            read |= {SENTENCES: table, **{path.name: path for path in sounds}}
        for voice in sorted(folder.rglob(VOICE)):
            sounds = sorted(voice.rglob("*.wav"))
            prompts |= {path.relative_to(voice).as_posix(): path for path in sounds}
    lists = [path for folder in folders for path in sorted(folder.rglob(PROMPTS))]
    if prompts and not lists:
        raise ValueError(f"no {PROMPTS} in what is given: give it, too; it has the texts")
    captions = (
        replace(each, texts={"ru": each.texts.get("ru", "")}, domain="captions")
        for each in stamps.recordings
    )
    return Found(
        {**stamps.files, **read, **prompts},
        chain(captions, _read_sentences(read), _read_prompts(prompts, lists)),
    )


RUSSIAN = RecordedCorpus(ORIGIN, ENDINGS, find_russian, attrgetter("domain"), RATE)


def _read_sentences(files: Mapping[str, Path]) -> Iterator[Recording]:
    texts = dict(SENTENCE.findall(read_text(files[SENTENCES]))) if SENTENCES in files else {}
    for path in files.values():
        if path.suffix == ".wav":
            said = said_in(texts.get(path.stem, "").replace("+", ""))
            yield Recording(f"ru/read/{path.stem}", path, "ru", {"ru": said}, domain="read")


def _read_prompts(sounds: Mapping[str, Path], lists: Sequence[Path]) -> Iterator[Recording]:
    """Prompts, of which those have no text that are no words: "[sound of monkeys screaming]"."""
    lines = (line.partition(":") for path in lists for line in iterate_lines(path))
    texts = {name: text for name, _, text in lines}
    for file, path in sounds.items():
        name = file.removesuffix(".wav")
        text = texts.get(name, "")
        said = "" if LATIN.search(text) else said_in(text)
        yield Recording(f"ru/telephone/{name}", path, "ru", {"ru": said}, domain="telephone")
