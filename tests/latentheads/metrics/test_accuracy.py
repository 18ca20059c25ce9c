"""Whole answers: right to the letter, and how many edits away."""

import random

from latentheads.metrics.accuracy import count_edits
from tests.latentheads.metrics.systems import paired_bootstrap, score, signature

RIGHT = ["g i n g e n", "l i e f", "s a ß", "h a t t e"]
MINE = ["g i n g e n", "l i f", "s a s s", "h a t t e n"]


def test_edits_are_those_of_the_recursion_they_are_defined_by() -> None:
    def in_memory(mine: str, right: str) -> int:
        if not mine or not right:
            return len(mine) + len(right)
        same = in_memory(mine[1:], right[1:]) + (mine[0] != right[0])
        return min(same, 1 + in_memory(mine[1:], right), 1 + in_memory(mine, right[1:]))

    draw = random.Random(0)
    for _ in range(40):
        mine, right = ("".join(draw.choices("abc", k=draw.randrange(6))) for _ in range(2))
        assert count_edits(mine, right) == in_memory(mine, right)


def test_an_answer_is_right_as_a_whole() -> None:
    scores = score(MINE, RIGHT, tokenised=True, accuracy=True)
    assert scores.accuracy == 25
    assert scores.edit_distance == (0 + 1 + 2 + 1) / 4
    assert signature(scores, "accuracy") == "case:mixed|norm:nfc"
    assert signature(scores, "edit_distance") == "case:mixed|tok:none|norm:nfc"
    plain = score(MINE, RIGHT, tokenised=True)
    assert (plain.accuracy, plain.edit_distance, plain.row("accuracy")) == (None, None, None)
    assert plain.bleu == scores.bleu


def test_text_that_is_no_tokens_is_counted_by_characters_and_case_as_it_is_told() -> None:
    scores = score(["Ging", "lief  weg"], ["ging", "lief weg!"], accuracy=True)
    assert (scores.accuracy, scores.edit_distance) == (0, 1)
    scores = score(["Ging", "lief  weg"], ["ging", "lief weg!"], lowercase=True, accuracy=True)
    assert (scores.accuracy, scores.edit_distance) == (50, 0.5)
    assert signature(scores, "edit_distance") == "case:lc|tok:character|norm:nfc"
    composed = score(["a\u0308", "x"], ["\u00e4", "x"], accuracy=True)
    assert (composed.accuracy, composed.edit_distance) == (100, 0)


def test_systems_are_tested_in_pairs() -> None:
    right = [f"w o r d {number}" for number in range(50)]
    mine = [line if index % 2 else f"{line} x" for index, line in enumerate(right)]
    base, other = paired_bootstrap(mine, [right], right, True, resamples=100, accuracy=True)
    assert base.accuracy is not None
    assert other.accuracy is not None
    assert (base.accuracy.score, other.accuracy.score) == (50, 100)
    assert base.accuracy.low < 50 < base.accuracy.high
    assert other.accuracy.p == 1 / 101
    assert base.edit_distance is not None
    assert base.edit_distance.score == 0.5
    assert base.accuracy.signature.endswith("|bs:100|seed:12345|p:two-sided")
