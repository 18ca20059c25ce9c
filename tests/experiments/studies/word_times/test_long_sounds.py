"""The errors of sentences are those of their words, wherever they stand in a long sound."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from latentheads.contrib.speech.word_times import WordTime
from latentheads.experiments.studies.word_times import long_sounds
from latentheads.experiments.studies.word_times.espeak import RATE
from latentheads.experiments.studies.word_times.speech import Utterance

SENTENCES = [
    Utterance("test/0", ["a", "b"], np.zeros(2 * RATE, np.float32), [0.5, 1.0]),
    Utterance("test/1", ["c", "d", "e"], np.zeros(3 * RATE, np.float32), [0.5, np.nan, 2.0]),
]


def _time(network: Any, processor: Any, sounds: Any, texts: Any) -> dict[str, list[WordTime]]:
    """Times that are right in a sentence, and .03 s late in a sound of both."""
    starts = {sentence.name: list(np.nan_to_num(sentence.starts)) for sentence in SENTENCES}
    if "all" in sounds:
        second = (len(sounds["all"]) / RATE + 2 - 3) / 2  # both have a pause of one length
        joined = [*starts["test/0"], *(second + start for start in starts["test/1"])]
        starts = {"all": [start + 0.03 for start in joined]}
    return {
        name: [WordTime(w, t, t - 0.01, t + 0.01, t) for w, t in zip(texts[name], times)]
        for name, times in starts.items()
    }


def test_errors_in_a_long_sound_are_those_of_its_sentences() -> None:
    recorder: Any = SimpleNamespace(whisper=None, processor=None)
    with mock.patch.object(long_sounds, "time_words", _time):
        results = long_sounds.measure_long(recorder, SENTENCES)
    alone = results["sentence by sentence"]
    assert (alone["boundaries"], alone["bias"], alone["coverage_of_90"][0]) == (4, 0, 100)
    for pause in long_sounds.PAUSES:
        row = results[f"{pause} s"]
        assert row["seconds"] == 5 + 2 * pause
        assert (row["windows"], row["boundaries"]) == (1, 4)
        assert row["bias"] == pytest.approx(0.03)
        assert (row["within"]["20 ms"][0], row["within"]["50 ms"][0]) == (0, 100)
        assert row["coverage_of_90"][0] == 0
        assert row["less_alone"]["20 ms"][0] == -100
        assert (row["first_words"]["boundaries"], row["others"]["boundaries"]) == (2, 2)
