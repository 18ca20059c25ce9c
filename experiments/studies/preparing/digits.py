"""Connected digits, made of the recordings of single ones of the Free Spoken Digit Dataset.

Six speakers say each digit fifty times (https://github.com/Jakobovski/free-spoken-digit-dataset,
CC BY-SA 4.0). Recordings 0 to 4 of each are for test, as its authors say; 5 to 9 are for validation
here and the others for training. Some of one speaker behind each other make an utterance.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from latentheads.contrib.speech.table import write_table
from latentheads.contrib.speech.waveform import read_waveform
from latentheads.corpora.part import Log
from latentheads.experiments.studies.preparing.folder import Origin, prepare_once
from latentheads.packages import import_optional

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

DIGEST = "0fbe6612aaa20a80ef4371894a46e060038337a518fe3d4728cb7eee7caa013c"
"""SHA-256 of the names and contents of the 3,000 recordings."""

NAME = re.compile(r"([0-9])_([a-z]+)_([0-9]+)\.wav")
INDEX = {"train": range(10, 50), "valid": range(5, 10), "test": range(5)}
"""Which recordings of a digit each part is made of."""

UTTERANCES = {"test": 400, "valid": 300, "train": 3600}
FEWEST, MOST = 3, 6
"""Digits of an utterance."""

ORIGIN = Origin(
    "digits",
    "the 3,000 of the Free Spoken Digit Dataset",
    DIGEST,
    "Connected digits, made of the Free Spoken Digit Dataset, "
    "https://github.com/Jakobovski/free-spoken-digit-dataset, by its authors and speakers.\n"
    "Licence of the recordings and of what is made of them here: CC BY-SA 4.0, "
    "https://creativecommons.org/licenses/by-sa/4.0/\n",
    "recordings",
    ("https://github.com/Jakobovski/free-spoken-digit-dataset/archive/HEAD.tar.gz",),
)


@dataclass(frozen=True)
class _Plan:
    """An utterance before it is made."""

    speaker: str
    digits: tuple[int, ...]
    takes: tuple[int, ...]


def prepare_digits(
    source: Path | None, out: Path, tell: Log | None = None, digest: str = DIGEST
) -> Path:
    """Writes tables and sound of connected digits; does nothing where that is done.

    No string of digits of valid or test is one of training. The same recordings give the same
    utterances everywhere.

    Without a source the recordings are fetched.
    """
    origin, given = replace(ORIGIN, digest=digest), [source] if source else []

    def write(folder: Path) -> str:
        import_optional("soundfile")  # before anything is fetched
        with origin.opened(given, [".wav"], folder, tell) as (recordings,):
            files = {path.name: path for path in recordings.rglob("*.wav")}
            files = {name: path for name, path in files.items() if NAME.fullmatch(name)}
            origin.check(files, given)
            minutes = _write_corpus(folder, _sort_recordings(files))
        counts = ", ".join(f"{number:,} of {part}" for part, number in UTTERANCES.items())
        return f"{counts}, {minutes:,.0f} min of connected digits (CC BY-SA 4.0)"

    return prepare_once(origin, out, write, tell)


def _sort_recordings(files: Mapping[str, Path]) -> dict[tuple[int, str, int], Path]:
    """The recordings by digit, speaker and number."""
    names = {name: name.removesuffix(".wav").split("_") for name in sorted(files)}
    return {(int(digit), who, int(take)): files[name] for name, (digit, who, take) in names.items()}


def _write_corpus(folder: Path, recordings: Mapping[tuple[int, str, int], Path]) -> float:
    """Writes the three parts; gives the minutes of all."""
    package = import_optional("soundfile")
    samples = {name: read_waveform(path) for name, path in recordings.items()}
    speakers = sorted({speaker for _, speaker, _ in recordings})
    rate = next(iter(samples.values())).sample_rate
    (folder / "sound").mkdir()
    heard = 0
    for part, plans in _plan_parts(speakers).items():
        rows = []
        for place, plan in enumerate(plans):
            name = f"{part}-{place:04}"
            takes = zip(plan.digits, plan.takes, strict=True)
            sound: NDArray[np.float32] = np.concatenate(
                [samples[digit, plan.speaker, take].samples for digit, take in takes]
            )
            heard += len(sound)
            package.write(folder / "sound" / f"{name}.flac", sound, rate, "PCM_16")
            said = " ".join(WORDS[digit] for digit in plan.digits)
            rows.append((name, f"sound/{name}.flac", said, "en", "en", plan.speaker))
        write_table(folder / f"{part}.tsv", rows)
    return heard / rate / 60


def _plan_parts(speakers: Sequence[str]) -> dict[str, list[_Plan]]:
    """The utterances of every part, held-out parts first: training avoids their strings."""
    random = Random("latentheads.digits")
    held_out: set[tuple[int, ...]] = set()
    plans: dict[str, list[_Plan]] = {}
    for part, number in UTTERANCES.items():
        plans[part] = []
        while len(plans[part]) < number:
            speaker = speakers[len(plans[part]) % len(speakers)]
            length = FEWEST + _draw(random, MOST - FEWEST + 1)
            digits = tuple(_draw(random, len(WORDS)) for _ in range(length))
            takes = tuple(INDEX[part][_draw(random, len(INDEX[part]))] for _ in digits)
            if part != "train":
                held_out.add(digits)
            elif digits in held_out:
                continue
            plans[part].append(_Plan(speaker, digits, takes))
    return plans


def _draw(random: Random, number: int) -> int:
    """Samples an index below a number, the same in every version of Python."""
    return int(random.random() * number)
