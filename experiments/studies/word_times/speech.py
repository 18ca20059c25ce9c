"""The sets of the study: which words are spoken, by whom, with which noise, and when.

No set shares a caption with another. Profiles are learned from ``pool``, options were chosen on
``dev``, and everything else is a test. Languages other than English have a pool and a test alone,
of the same corpus.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from latentheads.experiments.studies.word_times.espeak import RATE, speak

VOICES = ("en-us+m3", "en-us+f2", "en+m7", "en+f4", "en-gb-scotland+m1", "en-gb-scotland+f3")
DEV_VOICES = ("en-us+m1", "en-us+f5", "en+m4", "en-gb-x-rp+f1")
OTHER_VOICES = ("en-029+m2", "en-gb-x-gbclan+f1", "en-us+m6", "en-gb-x-gbcwmd+m5", "en-us+f3")
FOREIGN_VOICES = {
    "cs": ("cs+m3", "cs+f2", "cs+m7", "cs+f4", "cs+m1", "cs+f3"),
    "de": ("de+m3", "de+f2", "de+m7", "de+f4", "de+m1", "de+f3"),
    "fr": ("fr+m3", "fr+f2", "fr-be+m7", "fr-be+f4", "fr-ch+m1", "fr-ch+f3"),
}
LETTERS = "A-Za-zÀ-ÖØ-öø-ž"
NOISES = (20, 10, 5)
"""Decibels by which the speech is louder than white noise."""

SPEAKERS = {"pool": ("george", "jackson"), "test": ("lucas", "nicolas", "theo", "yweweler")}
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class Utterance:
    """Words that are spoken.

    Attributes:
        name: Its set, and its index in it.
        words: The words.
        samples: 16,000 a second.
        starts: Seconds at which words start; not a number where none is known.
        ends: Seconds at which words end; None if they are not known.
    """

    name: str
    words: list[str]
    samples: NDArray[np.float32]
    starts: list[float]
    ends: list[float] | None = None


def sentences(multi30k: Path) -> Iterator[Utterance]:
    """All spoken captions."""
    captions = {
        part: read_captions(multi30k / f"{stem}.en")
        for part, stem in (("train", "train"), ("val", "val"), ("test", "test_2016_flickr"))
    }
    sets = {
        "pool": (captions["train"][:40], VOICES, (130, 190)),
        "dev": (captions["val"][:40], DEV_VOICES, (130, 190)),
        "test": (captions["test"][:40], VOICES, (130, 190)),
        "other": (captions["test"][40:80], OTHER_VOICES, (110, 230)),
    }
    for name, (texts, voices, speeds) in sets.items():
        for index, words in enumerate(texts):
            utterance = _speak(f"{name}/{index}", words, voices, speeds)
            yield utterance
            if name == "test":
                for noise in NOISES:
                    yield _add_noise(utterance, f"noise{noise}/{index}", noise)
                yield from _misread(utterance, texts[(index + 1) % len(texts)])
            if name == "dev" and index < 20:
                yield _add_noise(utterance, f"dev10/{index}", 10)


def foreign_sentences(multi30k: Path, language: str) -> Iterator[Utterance]:
    """Spoken captions in another language, in the voices of :data:`FOREIGN_VOICES`."""
    for name, stem in (("pool", "train"), ("test", "test_2016_flickr")):
        captions = read_captions(multi30k / f"{stem}.{language}", LETTERS)
        for index, words in enumerate(captions[:40]):
            yield _speak(f"{name}/{index}", words, FOREIGN_VOICES[language], (130, 190))


def digit_strings(fsdd: Path) -> Iterator[Utterance]:
    """All joined digits: 40 strings of two speakers, 60 of four others; these with noise too."""
    for part, number in (("pool", 40), ("test", 60)):
        for index in range(number):
            name = f"digits-{part}/{index}"
            random = _random(name)
            speaker = SPEAKERS[part][index % len(SPEAKERS[part])]
            utterance = _join(name, fsdd, speaker, random)
            yield utterance
            if part == "test":
                yield _add_noise(utterance, f"digits-noise20/{index}", 20)


def _random(name: str) -> np.random.Generator:
    return np.random.default_rng(list(name.encode()))


def read_captions(path: Path, letter: str = "A-Za-z") -> list[list[str]]:
    """Captions of plain words alone."""
    lines = path.read_text(encoding="utf-8").split("\n")
    plain = (line.strip().rstrip(".").split() for line in lines)
    whole = re.compile(rf"[{letter}'-]*[{letter}][{letter}'-]*,?")
    return [words for words in plain if 5 <= len(words) <= 16 and all(map(whole.fullmatch, words))]


def _speak(
    name: str, words: list[str], voices: tuple[str, ...], speeds: tuple[int, int]
) -> Utterance:
    random = _random(name)
    voice = voices[int(name.rpartition("/")[2]) % len(voices)]
    speed, pitch = int(random.integers(*speeds)), int(random.integers(30, 70))
    sound, starts = speak(words, voice, speed, pitch)
    before, after = random.uniform(0.2, 0.6, 2)
    samples = np.pad(sound, (int(before * RATE), int(after * RATE)))
    before = int(before * RATE) / RATE
    return Utterance(name, words, samples, [start + before for start in starts])


def _add_noise(utterance: Utterance, name: str, decibels: int) -> Utterance:
    power = np.square(utterance.samples[utterance.samples != 0]).mean()
    deviation = np.sqrt(power / 10 ** (decibels / 10))
    noise = deviation * _random(name).standard_normal(len(utterance.samples))
    samples = (utterance.samples + noise).astype(np.float32)
    return replace(utterance, name=name, samples=samples)


def _misread(utterance: Utterance, others: list[str]) -> Iterator[Utterance]:
    """The sound with words that are not spoken in it: all of them, or the second half."""
    _, _, index = utterance.name.partition("/")
    kept = utterance.words[: len(utterance.words) // 2]
    for name, words in (("wrong", others), ("half", [*kept, *others[len(others) // 2 :]])):
        yield replace(utterance, name=f"{name}/{index}", words=words, starts=[np.nan] * len(words))


def _join(name: str, fsdd: Path, speaker: str, random: np.random.Generator) -> Utterance:
    from scipy.io import wavfile  # slow to import
    from scipy.signal import resample_poly

    digits = random.integers(10, size=random.integers(4, 9))
    parts: list[NDArray[np.float32]] = [np.zeros(int(random.uniform(0.2, 0.6) * RATE), np.float32)]
    starts, ends = [], []
    for digit in digits:
        path = fsdd / "wav" / f"{digit}_{speaker}_{random.integers(50)}.wav"
        rate, sound = wavfile.read(path)
        parts.append(resample_poly(sound / 2**15, RATE // rate, 1).astype(np.float32))
        ends.append(sum(map(len, parts)) / RATE)
        starts.append(ends[-1] - len(parts[-1]) / RATE)
        parts.append(np.zeros(int(random.uniform(0, 0.3) * RATE), np.float32))
    parts.append(np.zeros(int(0.3 * RATE), np.float32))
    words = [DIGITS[digit] for digit in digits]
    return Utterance(name, words, np.concatenate(parts), starts, ends)
