"""A forced aligner's times, and how alignment heads are compared with them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from latentheads.contrib.heads.boundaries.fit import FitOptions
from latentheads.experiments.studies.word_times import forced
from latentheads.experiments.studies.word_times.forced import (
    Compared,
    align_sets,
    measure_forced,
)
from latentheads.experiments.studies.word_times.speech import Utterance
from latentheads.packages import MissingPackageError
from tests.experiments.studies.word_times.cached import make_cached


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads that attend to one word alone are learned at once."""
    few = partial(FitOptions, rounds=1, steps=1, reach=12)
    monkeypatch.setattr(forced, "FitOptions", few)


class Decoder:
    """Finds words of .2 seconds, with silence in between, and no path to the word "lost"."""

    def __init__(self, **options: Any) -> None:
        assert options["samprate"] == 16000

    def lookup_word(self, word: str) -> str | None:
        return None if word == "unheard-of" else word

    def set_align_text(self, text: str) -> None:
        self.words = text.split()

    def start_utt(self) -> None: ...

    def end_utt(self) -> None: ...

    def process_raw(self, samples: bytes, full_utt: bool) -> None:
        assert full_utt
        assert len(samples) == 2 * 16000

    def hyp(self) -> object:
        return None if "lost" in self.words else self.words

    def seg(self) -> Iterator[SimpleNamespace]:
        for index, word in enumerate(self.words):
            yield SimpleNamespace(word="<sil>", start_frame=20 * index, end_frame=20 * index)
            yield SimpleNamespace(word=word, start_frame=20 * index + 1, end_frame=20 * index + 19)


def _spoken(name: str, words: list[str]) -> Utterance:
    starts = [0.2 * index for index in range(len(words))]
    return Utterance(name, words, np.zeros(16000, np.float32), starts)


def test_utterances_without_times_are_left_out_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pocketsphinx", SimpleNamespace(Decoder=Decoder))
    words = [["A", "dog,", "runs"], ["An", "unheard-of", "dog"], ["A", "lost", "dog"]]
    names = [f"test/{index}" for index in range(5)]
    lines = [*words, words[0], words[0]]
    sets = {"test": [make_cached(name, line) for name, line in zip(names, lines)]}
    sounds = [_spoken(name, line) for name, line in zip([*names, "other/0"], [*lines, words[0]])]
    aligned = align_sets(sounds, sets, ["test"])["test"]
    assert aligned.left_out == ["test/1", "test/2"]
    assert [utterance.name for utterance in aligned.utterances] == ["test/0", "test/3", "test/4"]
    np.testing.assert_allclose(aligned.times[0], [[0.01, 0.21, 0.41], [0.2, 0.4, 0.6]])

    pool = [replace(utterance, name="pool") for utterance in aligned.utterances]
    # one word of the first utterance is missed by the aligner: a ninth of all words
    aligned.times[0][0][1] += 0.3
    results = measure_forced(aligned, {"test": aligned}, pool, 1)["test"]
    assert results["pocketsphinx"]["within"]["50 ms"][0] == 88.9
    assert results["pocketsphinx"]["within"]["20 ms"][0] == 88.9
    assert results["5 labelled"]["within"]["50 ms"][0] == 100
    assert results["5 labelled"]["less_aligner"]["50 ms"][0] == 11.1
    assert results["5 labelled"]["boundaries"] == results["taught"]["boundaries"] == 9


def test_heads_learn_from_the_times_that_their_row_names() -> None:
    """True times of the pool are .1 s late, those of the aligner .2 s; none are those of tests."""
    tests = [make_cached(f"test/{index}", ["a", "b", "c"]) for index in range(3)]
    late = [replace(utterance, starts=[0.1, 0.3, 0.5]) for utterance in tests]
    taught = Compared(tests, [([0.2, 0.4, 0.6], [])] * 3, [])
    right = Compared(tests, [(utterance.starts, []) for utterance in tests], [])
    rows = measure_forced(taught, {"test": right}, late, 1)["test"]
    biases = [rows[name]["bias"] for name in ("5 labelled", "taught")]
    np.testing.assert_allclose(biases, [0.1, 0.2], atol=0.01)
    others = measure_forced(right, {"test": right}, tests, 1)["test"]
    assert rows["0 labelled"] == others["0 labelled"]


def test_a_missing_aligner_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pocketsphinx", None)
    with pytest.raises(MissingPackageError, match="pip install pocketsphinx"):
        align_sets([], {}, [])
