"""Error rates: of a whole part, by hand, and as the papers count them."""

from __future__ import annotations

import numpy as np
import pytest

from latentheads.metrics.recognition import count_errors
from latentheads.metrics.scores import Scores
from tests.latentheads.metrics.systems import paired_bootstrap, recognise, signature
from tests.typechecking import unchecked

SAID = ["one two three", "four", "", "five six"]
HEARD = ["one too three three", "", "no", "five six"]


def interval(scores: Scores) -> tuple[float, float]:
    row = scores.row("wer")
    assert row is not None
    assert row.interval is not None
    return row.interval


def test_errors_are_counted_by_utterance() -> None:
    assert count_errors(HEARD, SAID, "words").tolist() == [
        [1, 0, 1, 3],
        [0, 1, 0, 1],
        [0, 0, 1, 0],
        [0, 0, 0, 2],
    ]
    characters = count_errors(["to", "ab"], ["two", "ab"], "characters")
    assert characters.tolist() == [[0, 1, 0, 3], [0, 0, 0, 2]]


def test_rates_are_those_of_all_utterances_together() -> None:
    recognition = recognise(HEARD, SAID)
    assert (
        recognition.substitutions,
        recognition.deletions,
        recognition.insertions,
        recognition.words,
    ) == (1, 1, 2, 6)
    assert recognition.wer == pytest.approx(100 * 4 / 6)
    low, high = interval(recognition)
    assert low < 100 * 4 / 6 < high
    assert signature(recognition, "wer").startswith("jiwer:4")
    assert "|case:mixed|tok:space|norm:nfc|bs:1000|seed:12345" in signature(recognition, "wer")
    assert recognise(SAID, SAID).cer == 0


def test_an_interval_is_that_of_resampled_utterances() -> None:
    right = ["a b c d"] * 50
    wrong = ["a b c d"] * 40 + ["a b c"] * 10
    recognition = recognise(wrong, right)
    deviation = 25 * (0.2 * 0.8 / 50) ** 0.5
    assert recognition.wer == 5
    low, high = interval(recognition)
    assert (high - low) / 2 == pytest.approx(1.96 * deviation, rel=0.15)


def test_characters_are_composed_and_case_counts_unless_it_does_not() -> None:
    assert recognise(["cafe\u0301"], ["caf\u00e9"]).cer == 0
    assert recognise(["One"], ["one"]).wer == 100
    low = recognise(["One"], ["one"], lowercase=True)
    assert (low.wer, "case:lc" in signature(low, "wer")) == (0, True)
    assert (low.substitutions, recognise(["One"], ["one"]).substitutions) == (0, 1)


def test_the_papers_leave_out_case_and_punctuation() -> None:
    recognition = recognise(["ja das stimmt nicht"], ["Ja, das stimmt nicht ..."], paper=True)
    assert (recognition.paper_wer, recognition.wer) == (0, 40)
    assert "tok:13a|punct:no" in signature(recognition, "paper_wer")
    assert recognise(["don't go"], ["go"], paper=True).paper_wer == 100
    assert recognise(["5"], ["5 €"], paper=True).paper_wer == 50  # a symbol is a word


def test_systems_are_compared_on_the_same_utterances() -> None:
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(list("abcdef"), 8)) for _ in range(60)]
    worse = [line if index % 3 else line[2:] for index, line in enumerate(texts)]
    first, same, other = paired_bootstrap(texts, [texts, worse], texts, is_speech=True)
    assert (first.wer.p, first.wer.score) == (None, 0)
    assert same.wer.p == 1
    assert other.wer.p is not None
    assert other.wer.p < 0.01


def test_what_cannot_be_scored_is_refused() -> None:
    with pytest.raises(ValueError, match="translations must be as many as references, 2, got 1"):
        recognise(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="all 2 references are empty"):
        recognise(["a", "b"], ["", " "])


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="unit must be one of words, characters; got 'word'"):
        unchecked(count_errors)(["a"], ["a"], "word")
