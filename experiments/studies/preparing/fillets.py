"""Fish Fillets: the dialogues of a game, spoken in Czech and Dutch and written in eleven languages.

Actors speak (https://fillets.sourceforge.net, GPL-2). Each level has a file of dialogues for each
language: ``dialogId("name", "font", "English")``, then ``dialogStr("translation")``; the sound is
called as the dialogue is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from latentheads.experiments.studies.preparing.fetching import DEBIAN
from latentheads.experiments.studies.preparing.folder import Origin
from latentheads.experiments.studies.preparing.recordings import (
    Found,
    RecordedCorpus,
    Recording,
    said_in,
    tidy,
)
from latentheads.files import read_text

SPOKEN = ("cs", "nl")
LANGUAGES = ("bg", "cs", "de", "en", "es", "fr", "it", "nl", "pl", "ru", "sv")
"""The languages with texts; others have few."""

ENDINGS = (".ogg", *(f"dialogs_{language}.lua" for language in LANGUAGES))

ORIGIN = Origin(
    "fillets",
    "those of fillets-ng-data, fillets-ng-data-cs and fillets-ng-data-nl 1.0.1",
    "ea06d78dcb3527e00e5d0127053aa6aa9a809eee422dc93f1d6434eaefff4dd8",
    "Dialogues of Fish Fillets - Next Generation, https://fillets.sourceforge.net, from the Debian "
    "packages fillets-ng-data, fillets-ng-data-cs and fillets-ng-data-nl 1.0.1: copyright ALTAR "
    "interactive, Ivo Danihelka, Pavel Danihelka and others, whom the packages name.\n"
    "Licence: GPL-2.\n",
    urls=tuple(
        f"{DEBIAN}/f/fillets-ng-data/fillets-ng-data{language}_1.0.1-1.1_all.deb"
        for language in ("", "-cs", "-nl")
    ),
)

TEXT = r'"((?:[^"\\]|\\.)*)"'
"""A text of Lua, within quotes."""

DIALOGUE = re.compile(
    rf"dialogId\(\s*{TEXT},\s*{TEXT},\s*{TEXT}\s*\)|dialogStr\(\s*{TEXT}\s*\)", re.DOTALL
)

Dialogue = tuple[str, str]
"""The speaker, and the text."""


def find_fillets(folders: Sequence[Path]) -> Found:
    """The dialogues, and the sound in the languages that are spoken."""
    files: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*dialogs_*.lua")):
            if path.stem.rpartition("_")[2] in LANGUAGES and "script" in path.parts:
                files[_name_within("script", path)] = path
        for path in sorted(folder.rglob("*.ogg")):
            if path.parent.name in SPOKEN and "sound" in path.parts:
                files[_name_within("sound", path)] = path
    return Found(files, _read_recordings(files))


FILLETS = RecordedCorpus(ORIGIN, ENDINGS, find_fillets)


def _name_within(room: str, path: Path) -> str:
    """The name of a file from a folder of the game on, wherever the game is."""
    inside = path.parts[::-1].index(room)
    return "/".join(path.parts[-1 - inside :])


def _read_recordings(files: Mapping[str, Path]) -> Iterator[Recording]:
    written: dict[tuple[str, str], dict[str, Dialogue]] = {}
    for name in sorted(files):
        if name.endswith(".lua"):
            level, language = name.split("/")[1], Path(name).stem.rpartition("_")[2]
            found = _read_dialogues(read_text(files[name]), english=language == "en")
            written.setdefault((level, language), {}).update(found)
    for name in sorted(files):
        if name.endswith(".ogg"):
            yield _find_texts(name, files[name], written)


def _find_texts(
    name: str, path: Path, written: Mapping[tuple[str, str], Mapping[str, Dialogue]]
) -> Recording:
    """A sound with the texts of its dialogue."""
    level, spoken = name.split("/")[1], path.parent.name
    missing: Dialogue = ("", "")
    found = {
        language: written.get((level, language), {}).get(path.stem, missing)
        for language in LANGUAGES
    }
    texts = {
        language: said_in(text) if language == spoken else text
        for language, (_, text) in found.items()
    }
    return Recording(
        f"{spoken}/{level}/{path.stem}",
        path,
        spoken,
        {language: text for language, text in texts.items() if text},
        speaker=found[spoken][0],
        domain=level,
    )


def _read_dialogues(script: str, english: bool) -> dict[str, Dialogue]:
    """The dialogues of a file, by name; those that leave a place for a figure are left out."""
    found: dict[str, Dialogue] = {}
    name = font = ""
    for match in DIALOGUE.finditer(script):
        if match[1] is not None:
            name, font = match[1], match[2].removeprefix("font_")
        text = match[3] if english else match[4]
        if text and "%" not in text:
            found[name] = font, tidy(re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL))
    return found
