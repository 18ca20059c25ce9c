"""Stamps of Tux Paint: descriptions of pictures, said in nine languages and written in more.

For each language a volunteer says what is on some nine hundred pictures (https://tuxpaint.org,
GPL-2). Beside a picture's sound stands a file of text: its first line is English, each other one
names its language.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from latentheads.corpora.text import iterate_lines
from latentheads.experiments.studies.preparing.fetching import DEBIAN
from latentheads.experiments.studies.preparing.folder import Origin
from latentheads.experiments.studies.preparing.recordings import (
    Found,
    RecordedCorpus,
    Recording,
    said_in,
    tidy,
)

LANGUAGES = ("be", "bg", "ca", "da", "el", "es", "fr", "ro", "ru")

ENDINGS = (*(f"_desc_{language}.ogg" for language in LANGUAGES), ".txt")

INSTALLED = Path("usr/share/tuxpaint/stamps")
"""Where the stamps are in their package."""

ORIGIN = Origin(
    "stamps",
    "those of tuxpaint-stamps-default 2022.06.04",
    "ddca76797f90ba9afeb50f3eefe0cb1a88148ee8600ca7102f3a3e0791cdfdb0",
    "Descriptions of the stamps of Tux Paint, https://tuxpaint.org, from the Debian package "
    "tuxpaint-stamps-default 2022.06.04: copyright 2002-2022 by Bill Kendrick; its changelog names "
    "who speaks and who translated.\nLicence: GPL-2.\n",
    urls=(f"{DEBIAN}/t/tuxpaint-stamps/tuxpaint-stamps-default_2022.06.04-1_all.deb",),
)


def find_stamps(folders: Sequence[Path], languages: Sequence[str] = LANGUAGES) -> Found:
    """The sound of some languages, and the texts beside it."""
    name = re.compile(rf"(.+)_desc_({'|'.join(languages)})\.ogg")
    files: dict[str, Path] = {}
    sounds: list[tuple[str, str, Path]] = []
    for folder in folders:
        root = folder / INSTALLED if (folder / INSTALLED).is_dir() else folder
        for path in sorted(root.rglob("*.ogg")):
            if found := name.fullmatch(path.relative_to(root).as_posix()):
                sounds.append((found[1], found[2], path))
                text = root / f"{found[1]}.txt"
                files |= {f"{found[1]}.txt": text} if text.is_file() else {}
                files[found[0]] = path
    return Found(files, _read_recordings(files, sounds))


STAMPS = RecordedCorpus(ORIGIN, ENDINGS, find_stamps)


def _read_recordings(
    files: Mapping[str, Path], sounds: Sequence[tuple[str, str, Path]]
) -> Iterator[Recording]:
    for stamp, language, path in sounds:
        text = files.get(f"{stamp}.txt")
        english, written = ("", {}) if text is None else _read_text(text)
        said = said_in(written.get(language, ""))
        texts = {language: said, "en": english}
        yield Recording(
            f"{language}/{stamp}",
            path,
            language,
            {name: each for name, each in texts.items() if each},
            domain=stamp.partition("/")[0],
        )


def _read_text(path: Path) -> tuple[str, dict[str, str]]:
    """The description of a picture in English, and in the languages that are named."""
    english, *others = iterate_lines(path)
    lines = (line.partition("=") for line in others)
    return tidy(english), {name.removesuffix(".utf8"): text for name, _, text in lines}
