"""Which recordings of natural speech are compared, and with what."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import wavfile

from latentheads.contrib.speech.time_errors import TimeErrors
from latentheads.experiments.studies.word_times import recordings
from latentheads.experiments.studies.word_times.cache import CachedUtterance
from latentheads.experiments.studies.word_times.espeak import RATE
from latentheads.experiments.studies.word_times.speech import Utterance
from tests.experiments.studies.word_times.cached import make_cached

TRANSCRIPTS = {"few": "too few", "long": "", "odd": "a b odd d e", "right": "a b c d e", "run": ""}


class Aligner:
    """Starts words where the recorder's attention is, 10 ms later; has no word "odd"."""

    def times(self, utterance: Utterance) -> tuple[list[float], list[float]] | None:
        if "odd" in utterance.words:
            return None
        starts = [0.2 * index + 0.01 for index in range(len(utterance.words))]
        return starts, [start + 0.1 for start in starts]


class Recorder:
    whisper = processor = None

    def record(self, utterance: Utterance) -> CachedUtterance:
        cached = make_cached(utterance.name, utterance.words)
        return replace(cached, starts=utterance.starts, ends=utterance.ends)


def test_recordings_are_compared_with_the_aligner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in TRANSCRIPTS:
        seconds = 31 if name == "long" else 1
        wavfile.write(tmp_path / f"{name}.wav", RATE, np.ones(seconds * RATE, np.int16))

    def transcribe(whisper: Any, processor: Any, samples: Any) -> list[str]:
        name = next(names)
        if name == "run":
            warnings.warn("the transcript repeats itself", stacklevel=1)
            return ["a"] * 5
        return TRANSCRIPTS[name].split()

    names = iter(name for name in TRANSCRIPTS if name != "long")
    monkeypatch.setattr(recordings, "transcribe_words", transcribe)
    monkeypatch.setattr(recordings, "ForcedAligner", Aligner)
    joined: list[Utterance] = []

    def find_joined(recorder: Any, utterances: list[Utterance]) -> TimeErrors:
        joined.extend(utterances)
        return TimeErrors([np.zeros(5)])

    monkeypatch.setattr(recordings, "find_joined", find_joined)
    pool = [make_cached(f"pool/{index}", ["a", "b", "c"]) for index in range(2)]
    recorder: Any = Recorder()
    results = recordings.measure_agreement(tmp_path, recorder, pool)
    assert results["utterances"] == 1
    assert results["left_out"] == ["odd"]
    agreement = results["agreement"]
    assert agreement["learned from synthetic speech"]["boundaries"] == 5
    assert agreement["openai"]["boundaries"] == 5
    assert agreement["joined to one sound"]["within"]["20 ms"][0] == 100
    (right,) = joined
    assert (right.name, right.starts[1]) == ("right", pytest.approx(0.21))
