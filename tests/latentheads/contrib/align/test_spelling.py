"""Words of two languages that are spelt alike."""

from __future__ import annotations

import pytest
import torch

from latentheads.contrib.align.spelling import make_spelling
from tests.latentheads.contrib.align.tiny_chains import spelled_alike


@pytest.mark.parametrize(
    ("one", "other", "is_alike"),
    [
        ("ottawa", "ottawa", True),
        ("été", "ete", True),
        ("1,000.5", "1.000,5", True),
        ("1,000", "1001", False),
        ("parliament", "parlement", True),
        ("parl", "parlamentarisch", True),
        ("house", "haus", False),  # three letters of five
        ("nation", "ration", False),  # another first letter
        ("the", "tie", True),  # two letters of three
        ("-", "-", True),
        ("--", "-", False),
        ("president's", "presid", False),  # no letter is compared beside other signs
        ("a" * 40, "a" * 30, True),
    ],
)
def test_words_that_are_spelt_alike(one: str, other: str, is_alike: bool) -> None:
    for pair in ([one], [other]), ([other], [one]):
        first, second = spelled_alike(*pair)
        assert (first.tolist(), second.tolist()) == (([0], [0]) if is_alike else ([], []))


def test_entries_are_compared_and_counted_by_word() -> None:
    entries = torch.tensor([0, 0, 0, 1], dtype=torch.int32), torch.tensor([0, 1, 2, 1]).int()
    spelling = make_spelling(["nation", "of"], ["nation", "nationen", "de"], *entries)
    assert spelling.alike.tolist() == [True, True, False, False]
    assert (spelling.source.tolist(), spelling.target.tolist()) == ([2, 0], [1, 1, 0])
    assert spelling.reverse().source is spelling.target
