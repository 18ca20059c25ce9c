"""Labels of tokens against edits counted by hand, and against sacreBLEU's count of them."""

import numpy as np
import pytest
from sacrebleu.metrics import lib_ter

from latentheads.contrib.uncertainty.edits import label_tokens


@pytest.mark.parametrize(
    ("hypothesis", "reference", "correct"),
    [
        ([4, 5, 6], [4, 5, 6], [1, 1, 1]),
        ([4, 9, 6], [4, 5, 6], [1, 0, 1]),
        ([4, 9, 5, 6], [4, 5, 6], [1, 0, 1, 1]),
        ([4, 6], [4, 5, 6], [1, 1]),
        ([7, 8, 4, 5, 6], [4, 5, 6, 7, 8], [1, 1, 1, 1, 1]),
        ([7, 9, 4, 5, 6], [4, 5, 6, 7, 8], [1, 0, 1, 1, 1]),
        ([4, 4], [4], [0, 1]),
        ([], [4], []),
        ([4, 5], [], [0, 0]),
    ],
)
def test_labels_by_hand(hypothesis: list[int], reference: list[int], correct: list[int]) -> None:
    assert label_tokens(hypothesis, reference).tolist() == [bool(item) for item in correct]


def test_wrong_tokens_are_no_more_than_the_edits() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        one, other = (rng.integers(0, 5, rng.integers(1, 9)).tolist() for _ in range(2))
        edits, _ = lib_ter.translation_edit_rate([*map(str, one)], [*map(str, other)])
        wrong = (~label_tokens(one, other)).sum()
        assert max(0, len(one) - len(other)) <= wrong <= edits
