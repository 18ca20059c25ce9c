"""Recordings with their texts in one language or several, and the tables that are made of them."""

from __future__ import annotations

import hashlib
import shutil
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from latentheads.contrib.speech.features import Filterbank
from latentheads.contrib.speech.table import write_table
from latentheads.contrib.speech.waveform import read_header
from latentheads.corpora.part import Log
from latentheads.errors import naming
from latentheads.experiments.studies.preparing.folder import Origin, prepare_once
from latentheads.packages import import_optional

SHORTEST, LONGEST = 0.065, 30.0
"""Seconds that are trained on: those of a window of the subsampler, and `max_seconds`."""

LOWEST_RATE = 2 * Filterbank.high_freq
"""Samples a second that hold all frequencies of the frames."""

FASTEST = 25
"""Letters that are said in a second, at most: where there are more, another text is said."""

INSIDE = "'-\N{MIDDLE DOT}"
"""Belongs to a word that it stands in, as in l'ami, weet-niet and al·ligàtor."""

SIGNS = "%$€£¥=+"
"""Are said as words."""


@dataclass(frozen=True)
class Recording:
    """A file of sound and its texts.

    Attributes:
        name: What it is called; no other one is.
        audio: The file.
        language: Language that is spoken.
        texts: What is said, in words, and its translations, by language.
        speaker: Who speaks; empty where it is not known.
        domain: What it is about; the same.
    """

    name: str
    audio: Path
    language: str
    texts: Mapping[str, str]
    speaker: str = ""
    domain: str = ""


@dataclass(frozen=True)
class Found:
    """The content of the files of a corpus.

    Attributes:
        files: What is read, by names that do not depend on where it is.
        recordings: What is made of it, once it is known to be the right files.
    """

    files: Mapping[str, Path]
    recordings: Iterable[Recording]


@dataclass(frozen=True)
class Kept:
    """Recordings that can be learned from.

    Attributes:
        recordings: Which.
        seconds: How long each lasts, by its name.
        left_out: How many others there are of each kind.
    """

    recordings: Sequence[Recording]
    seconds: Mapping[str, float]
    left_out: Mapping[str, int]

    def count(self, parts: Mapping[str, Sequence[Recording]]) -> str:
        """How many there are in each part, how long they are, and how many were left out."""
        counts = ", ".join(f"{len(each):,} of {part}" for part, each in parts.items())
        line = f"{counts}, {sum(self.seconds.values()) / 60:,.0f} min of speech"
        if not self.left_out:
            return line
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in self.left_out.items())
        return f"{line}; {sum(self.left_out.values()):,} left out: {kinds}"

    def count_each(self, label: Callable[[Recording], str]) -> list[str]:
        """A line for each label: its recordings, their minutes, and the words that are said."""
        number, words = Counter[str](), Counter[str]()
        seconds: defaultdict[str, float] = defaultdict(float)
        for each in self.recordings:
            name = label(each)
            number[name] += 1
            seconds[name] += self.seconds[each.name]
            words[name] += len(each.texts.get(each.language, "").split())
        return [
            f"{name}: {number[name]:,} recordings, {seconds[name] / 60:.1f} min, "
            f"{words[name]:,} words"
            for name in sorted(number)
        ]


@dataclass(frozen=True)
class RecordedCorpus:
    """A corpus of recordings with their texts, as it is distributed.

    Attributes:
        origin: What the files are.
        endings: What the names of those that are needed end in.
        find: Finds the recordings in folders.
        label: By what recordings are counted.
        rate: Samples a second that a recording has at least.
    """

    origin: Origin
    endings: Sequence[str]
    find: Callable[[Sequence[Path]], Found]
    label: Callable[[Recording], str] = attrgetter("language")
    rate: int = LOWEST_RATE


def prepare_recordings(
    corpus: RecordedCorpus, sources: Sequence[Path], out: Path, tell: Log | None = None
) -> Path:
    """Writes tables of what is said and of its translations, and copies the sound.

    Does nothing where that is done.

    Without sources its packages are fetched.
    """
    counts: list[str] = []

    def write(folder: Path) -> str:
        import_optional("soundfile")  # before anything is fetched
        with corpus.origin.opened(sources, corpus.endings, folder, tell) as folders:
            found = corpus.find(folders)
            corpus.origin.check(found.files, sources)
            kept = keep_usable(found.recordings, corpus.rate)
            parts = split_by_text(kept.recordings, lambda each: each.texts.values())
            write_recordings(folder, parts)
        counts.extend(kept.count_each(corpus.label))
        return kept.count(parts)

    prepare_once(corpus.origin, out, write, tell)
    for line in counts:
        (tell or str)(line)
    return out


def tidy(text: str) -> str:
    """A text in composed characters, with one space between words."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def said_in(text: str) -> str:
    """The words of a text, without punctuation.

    Nothing where figures or signs stand in it, as in "2 €": how they are said is not written.
    """
    text = tidy(text).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    if any(unicodedata.category(each)[0] == "N" or each in SIGNS for each in text):
        return ""
    kept = (
        each if each.isalpha() or unicodedata.combining(each) or each in INSIDE else " "
        for each in text
    )
    words = (word.strip(INSIDE) for word in "".join(kept).split())
    return " ".join(filter(None, words))


def keep_usable(recordings: Iterable[Recording], lowest_rate: int = LOWEST_RATE) -> Kept:
    """Leaves out recordings that cannot be learned from, and counts them.

    Raises:
        ValueError: A file cannot be read as sound; it is named.
    """
    kept: list[Recording] = []
    seconds: dict[str, float] = {}
    left_out = Counter[str]()
    for each in recordings:
        if not each.texts.get(each.language):
            left_out["without text in words"] += 1
            continue
        with naming(str(each.audio)):
            lasts, rate = read_header(each.audio)
        if fault := _find_fault(each, lasts, rate, lowest_rate):
            left_out[fault] += 1
            continue
        kept.append(each)
        seconds[each.name] = lasts
    return Kept(kept, seconds, left_out)


def _find_fault(each: Recording, seconds: float, rate: int, lowest_rate: int) -> str:
    """The fault of a recording; empty where it can be used."""
    if seconds < SHORTEST:
        return "too short"
    if seconds > LONGEST:
        return "too long"
    if rate < lowest_rate:
        return f"of less than {lowest_rate:,} samples a second"
    longer = len(each.texts[each.language]) > FASTEST * seconds
    return "whose text is longer than what is said" if longer else ""


def write_recordings(folder: Path, parts: Mapping[str, Sequence[Recording]]) -> None:
    """Writes a table for each part, a line for each text of a recording, and copies the sound."""
    for part, recordings in parts.items():
        rows: list[tuple[str, ...]] = []
        for each in recordings:
            audio = f"sound/{each.name}{each.audio.suffix}"
            (folder / audio).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(each.audio, folder / audio)
            told = (each.speaker, each.domain)
            for target, text in each.texts.items():
                rows.append((f"{each.name}.{target}", audio, text, each.language, target, *told))
        write_table(folder / f"{part}.tsv", rows)


PERCENT = {"test": 10, "valid": 10}
"""The share of the groups of equal texts in each part; the others are for training."""

Item = TypeVar("Item")


def split_by_text(
    items: Iterable[Item], texts_of: Callable[[Item], Iterable[str]]
) -> dict[str, list[Item]]:
    """Splits what has texts into parts, the same everywhere.

    What shares a text, in whatever language and but for case and punctuation, is a group, and so is
    what shares one with a member of it. A group is in the part that a hash of its first text says.
    """
    from scipy.cluster.hierarchy import DisjointSet  # slow to import

    items = list(items)
    folded = [[fold_text(text) for text in texts_of(item)] for item in items]
    groups = DisjointSet()
    for first, *others in folded:
        groups.add(first)
        for text in others:
            groups.add(text)
            groups.merge(first, text)
    parts: dict[str, list[Item]] = {"train": [], "valid": [], "test": []}
    for item, texts in zip(items, folded, strict=True):
        parts[_choose_part(min(groups.subset(texts[0])))].append(item)
    return parts


def fold_text(text: str) -> str:
    """A text without case and punctuation; the text itself where nothing else is in it."""
    return "".join(filter(str.isalnum, text.casefold())) or text


def sample_position(name: str, number: int) -> int:
    """A place below a number, by a hash of a name: the same in every version of Python."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % number


def _choose_part(name: str) -> str:
    place = sample_position(name, 100)
    for part, percent in PERCENT.items():
        if place < percent:
            return part
        place -= percent
    return "train"
