"""Utterances: tables of them, and folders of sound beside text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from latentheads.corpora.speech.sound import ENDINGS
from latentheads.corpora.text import find, lines_of

__all__ = [
    "COLUMNS",
    "NEEDED",
    "Utterance",
    "read_utterances",
    "source_of",
    "text_files",
    "write_table",
]

NEEDED = ("id", "audio", "tgt_text")
"""Columns that every table has."""

COLUMNS = (*NEEDED, "src_lang", "tgt_lang", "speaker", "domain")
"""Columns that are read; a table may have more."""

STRETCH = re.compile(r":[0-9]+:[0-9]+$")
"""Where the tables of fairseq S2T name features in a zip, by their offset and length."""


@dataclass(frozen=True)
class Utterance:
    """A file of sound and its text.

    Attributes:
        audio: The file.
        text: What is said in it, or its translation.
        where: The line that names it; in a folder the file of sound.
        source: Language that is spoken; empty where it is not known.
        target: Language of the text; the same.
        speaker: Who speaks; the same.
        domain: What it is about; the same.
    """

    audio: Path
    text: str
    where: str
    source: str = ""
    target: str = ""
    speaker: str = ""
    domain: str = ""


def source_of(folder: Path, part: str, stem: str | None = None) -> Path:
    """The table of a part, as ``train.tsv``; or a folder of that name, of sound beside text.

    Raises:
        ValueError: There is neither.
    """
    names = [stem] if stem else [part, *(("val", "dev") if part == "valid" else ())]
    for name in names:
        if not (folder / f"{name}.tsv").exists() and (folder / name).is_dir():
            return folder / name
    return find(folder, part, "tsv", stem)


def read_utterances(path: Path) -> Iterator[Utterance]:
    """Reads a table, or a folder with a file of text beside each of sound, ``a.wav`` and ``a.txt``.

    A table is text in UTF-8 with tabs between its columns; its first line names them. Files are
    named from the folder that the table is in.

    Raises:
        ValueError: A line or a file is not as it should be; it is named.
    """
    return _read_folder(path) if path.is_dir() else _read_table(path)


def text_files(path: Path) -> list[Path]:
    """The files that the texts of a table, or of a folder, are read from."""
    return list(map(_text_beside, _find_sounds(path))) if path.is_dir() else [path]


def write_table(path: Path, rows: Sequence[Sequence[str]]) -> None:
    """Writes a table that `read_utterances` reads.

    Args:
        path: The table.
        rows: The cells of each line, as many of the columns from the first on as there are.
    """
    names = COLUMNS[: max(map(len, rows), default=len(COLUMNS))]
    lines = ("\t".join(row) + "\n" for row in (names, *rows))
    path.write_text("".join(lines), encoding="utf-8")


def _read_folder(folder: Path) -> Iterator[Utterance]:
    files = _find_sounds(folder)
    if not files:
        raise ValueError(f"{folder} has no file of sound ({', '.join(ENDINGS)})")
    for audio in files:
        text = _text_beside(audio)
        lines = list(lines_of(text)) if text.is_file() and text.stat().st_size else [""]
        if not text.is_file():
            raise ValueError(f"{audio} has no text: there is no {text.name} beside it")
        if len(lines) > 1:
            raise ValueError(f"{text} has {len(lines):,} lines: one is expected")
        yield Utterance(audio, lines[0].strip(), str(audio))


def _find_sounds(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix[1:].lower() in ENDINGS)


def _text_beside(audio: Path) -> Path:
    return audio.with_suffix(".txt")


def _read_table(path: Path) -> Iterator[Utterance]:
    lines = lines_of(path)
    names = _read_names(path, next(lines))
    seen: dict[str, int] = {}
    number = 1
    for number, line in enumerate(lines, 2):
        where = f"{path}, line {number}"
        cells = line.split("\t")
        if len(cells) != len(names):
            raise ValueError(f"{where}: {len(cells)} columns, {len(names)} in the first line")
        row = dict(zip(names, cells, strict=True))
        if (first := seen.setdefault(row["id"], number)) != number:
            raise ValueError(f"{where}: id {row['id']!r} is that of line {first} too")
        audio = path.parent / row["audio"]
        if not row["audio"] or not audio.is_file():
            more = ": stretches of a file are not read" if STRETCH.search(row["audio"]) else ""
            raise ValueError(f"{where}: there is no file {audio}{more}")
        others = (row.get(name, "") for name in COLUMNS[len(NEEDED) :])
        yield Utterance(audio, row["tgt_text"].strip(), where, *others)
    if number == 1:
        raise ValueError(f"{path} has no utterance: its first line names columns")


def _read_names(path: Path, line: str) -> list[str]:
    """The columns that the first line of a table names."""
    names = line.split("\t")
    if lacks := [name for name in NEEDED if name not in names]:
        raise ValueError(
            f"{path}, line 1 must name the columns, tabs between, {', '.join(NEEDED)} among them: "
            f"it lacks {', '.join(lacks)}"
        )
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{path}, line 1 names column {twice[0]!r} twice")
    return names
