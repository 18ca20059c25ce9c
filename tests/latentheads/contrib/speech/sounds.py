"""Small files of sound and tables of them, made for the tests of speech."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from latentheads.contrib.speech.audio import AudioOptions
from latentheads.contrib.speech.features import Filterbank

RATE = 8000
TEXTS = ["one two", "two", "one one", "two one"]
SMALL = AudioOptions(Filterbank(bins=7, high_freq=3800), max_seconds=2.0)


def make_noise(seconds: float, seed: int = 0, rate: int = RATE) -> NDArray[np.float32]:
    """Noise whose colour changes: no two frames are alike."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=round(seconds * rate))
    envelope = np.sin(np.arange(len(noise)) / 700) ** 2
    return (0.1 * noise * envelope + 0.1 * np.cumsum(noise) / 60).clip(-1, 1).astype(np.float32)


def write_sound(path: Path, samples: NDArray[np.float32], rate: int = RATE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = {"format": "OGG", "subtype": "OPUS"} if path.suffix == ".opus" else {}
    soundfile.write(path, samples, rate, **kind)
    return path


def write_noise(path: Path, seconds: float, seed: int = 0, rate: int = 16000) -> Path:
    """A file of noise, at a rate that all is heard of."""
    return write_sound(path, make_noise(seconds, seed, rate), rate)


def write_table(path: Path, rows: list[list[str]], names: str = "id audio tgt_text") -> Path:
    lines = ["\t".join(row) + "\n" for row in [names.split(), *rows]]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def write_speech(folder: Path, **more: str) -> Path:
    """A corpus of four short utterances in every part.

    Args:
        folder: Where.
        **more: Further columns, the same in every line.
    """
    for seed, part in enumerate(("train", "valid", "test")):
        rows = []
        for index, text in enumerate(TEXTS):
            name = f"{part}-{index}.wav"
            write_sound(folder / "sound" / name, make_noise(0.2 + 0.07 * index, 10 * seed + index))
            rows.append([name, f"sound/{name}", text, *more.values()])
        write_table(folder / f"{part}.tsv", rows, " ".join(("id", "audio", "tgt_text", *more)))
    return folder
