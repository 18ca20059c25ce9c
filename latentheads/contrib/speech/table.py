"""Reads utterances from tables (``.tsv``), or from folders of audio files beside text files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from latentheads.contrib.speech.waveform import AUDIO_EXTENSIONS
from latentheads.corpora.text import find_file, iterate_lines
from latentheads.errors import shown
from latentheads.files import write_text

REQUIRED_COLUMNS = ("id", "audio", "tgt_text")
"""Columns that every table must have."""

COLUMNS = (*REQUIRED_COLUMNS, "src_lang", "tgt_lang", "speaker", "domain")
"""Columns that are read; others are ignored."""

BYTE_RANGE = re.compile(r":[0-9]+:[0-9]+$")
"""A byte range of a zip file, by which tables of fairseq S2T refer to features."""


@dataclass(frozen=True)
class Utterance:
    """An audio file and its text.

    Attributes:
        audio: The audio file.
        text: Its transcript or translation.
        location: The line of the table, or the audio file in a folder, for error messages.
        source: Spoken language; empty if it is not known.
        target: Language of the text; empty if it is not known.
        speaker: The speaker; empty if not known.
        domain: The domain; empty if not known.
    """

    audio: Path
    text: str
    location: str
    source: str = ""
    target: str = ""
    speaker: str = ""
    domain: str = ""


def find_utterances(folder: Path, part: str, stem: str | None = None) -> Path:
    """The table of a part, such as ``train.tsv``, or the folder of that name."""
    names = [stem] if stem else [part, *(("val", "dev") if part == "valid" else ())]
    for name in names:
        tables = (folder / f"{name}.{suffix}" for suffix in ("tsv", "tsv.gz"))
        if (folder / name).is_dir() and not any(table.exists() for table in tables):
            return folder / name
    return find_file(folder, part, "tsv", stem)


def read_utterances(path: Path) -> Iterator[Utterance]:
    """Reads a table, or a folder with a text file beside each audio file: ``a.wav`` and ``a.txt``.

    A table is UTF-8 text with columns separated by tabs, and their names in the first line. Paths
    are relative to the table's folder.

    Raises:
        ValueError: A line or a file is malformed; the message has its location.
    """
    return _read_folder(path) if path.is_dir() else _read_table(path)


def text_files(path: Path) -> list[Path]:
    """The files from which the texts are read: the table, or the text files of a folder."""
    return list(map(_transcript_path, _find_audio(path))) if path.is_dir() else [path]


def write_table(path: Path, rows: Sequence[Sequence[str]]) -> None:
    """Writes a table that `read_utterances` reads."""
    names = COLUMNS[: max(map(len, rows), default=len(COLUMNS))]
    lines = ("\t".join(row) + "\n" for row in (names, *rows))
    write_text(path, "".join(lines))


def _read_folder(folder: Path) -> Iterator[Utterance]:
    files = _find_audio(folder)
    if not files:
        raise ValueError(f"{folder} has no audio file ({', '.join(AUDIO_EXTENSIONS)})")
    for audio in files:
        text = _transcript_path(audio)
        lines = list(iterate_lines(text)) if text.is_file() and text.stat().st_size else [""]
        if not text.is_file():
            raise ValueError(f"{audio} has no text: there is no {text.name} beside it")
        if len(lines) > 1:
            raise ValueError(f"{text} has {len(lines):,} lines: one is expected")
        yield Utterance(audio, lines[0].strip(), str(audio))


def _find_audio(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix[1:].lower() in AUDIO_EXTENSIONS)


def _transcript_path(audio: Path) -> Path:
    return audio.with_suffix(".txt")


def _read_table(path: Path) -> Iterator[Utterance]:
    lines = iterate_lines(path)
    names = _read_header(path, next(lines))
    line_of_id: dict[str, int] = {}
    number = 1
    for number, line in enumerate(lines, 2):
        location = f"{path}, line {number}"
        cells = line.split("\t")
        if len(cells) != len(names):
            raise ValueError(f"{location}: {len(cells)} columns, {len(names)} in the first line")
        row = dict(zip(names, cells, strict=True))
        if (first_line := line_of_id.setdefault(row["id"], number)) != number:
            raise ValueError(f"{location}: id {shown(row['id'])} is that of line {first_line} too")
        audio = path.parent / row["audio"]
        if not row["audio"] or not audio.is_file():
            hint = (
                ": byte ranges of a file are not supported"
                if BYTE_RANGE.search(row["audio"])
                else ""
            )
            raise ValueError(f"{location}: there is no file {audio}{hint}")
        optional = (row.get(name, "") for name in COLUMNS[len(REQUIRED_COLUMNS) :])
        yield Utterance(audio, row["tgt_text"].strip(), location, *optional)
    if number == 1:
        raise ValueError(f"{path} has no utterance: its first line names columns")


def _read_header(path: Path, line: str) -> list[str]:
    """The column names in the first line of a table."""
    names = line.split("\t")
    if missing := [name for name in REQUIRED_COLUMNS if name not in names]:
        raise ValueError(
            f"{path}, line 1 must name the columns, tabs between, "
            f"{', '.join(REQUIRED_COLUMNS)} among them: there is no {', '.join(missing)}"
        )
    return names
