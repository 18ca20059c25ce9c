"""What scores are called."""

from __future__ import annotations

import pytest

from latentheads.metrics.scores import MEANINGS, SCORES, part_title, primary_score


@pytest.mark.parametrize(
    ("score", "title"), [("bleu", "BLEU of de"), ("accuracy", "accuracy of de, %")]
)
def test_the_title_of_a_score_of_a_part_ends_in_its_unit(score: str, title: str) -> None:
    assert part_title(score, "de") == title


def test_every_score_has_a_meaning() -> None:
    assert list(MEANINGS) == list(SCORES)


def test_the_first_score_that_is_known_stands_for_all() -> None:
    assert primary_score({"bleu": 30.0, "wer": 20.0, "accuracy": None}) == "wer"
    assert primary_score({"elbo": -1.0}) is None
