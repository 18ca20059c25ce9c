"""Labels of the tokens of a translation: correct if an edit to the reference keeps them.

These labels are used for the calibration of a model's own output (InfECE, Wang et al. 2020,
https://arxiv.org/abs/2005.00963). The edits are those of TER (Snover et al. 2006,
https://aclanthology.org/2006.amta-papers.25): shifted spans are correct; substituted and deleted
tokens are wrong. The edits are computed on the tokens of the vocabulary, not on words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool
from numpy import ndarray
from sacrebleu.metrics import lib_ter


class _IndexedToken(str):
    """A token with its index in the hypothesis, which shifts do not change."""

    index_in_hypothesis: int

    @classmethod
    def of(cls, token: int, index: int) -> _IndexedToken:
        """Makes one; tokens of different indices compare equal."""
        indexed = cls(token)
        indexed.index_in_hypothesis = index
        return indexed


def label_tokens(hypothesis: Sequence[int], reference: Sequence[int]) -> Bool[ndarray, " token"]:
    """Labels every token of a hypothesis as correct or not, after undoing shifts."""
    correct = np.zeros(len(hypothesis), dtype=bool)
    words: list[str] = [_IndexedToken.of(token, index) for index, token in enumerate(hypothesis)]
    reference_words = [str(token) for token in reference]
    distance = lib_ter.BeamEditDistance(reference_words)
    words = _shift_all(words, reference_words, distance)
    _, inverse = distance(words)
    _, _, wrong = lib_ter.trace_to_alignment(lib_ter._flip_trace(inverse))
    for word, is_wrong in zip(words, wrong, strict=True):
        assert isinstance(word, _IndexedToken)
        correct[word.index_in_hypothesis] = not is_wrong
    return correct


def _shift_all(
    words: list[str], reference: list[str], distance: lib_ter.BeamEditDistance
) -> list[str]:
    """Shifts spans as long as that reduces the edit distance: the loop of sacreBLEU's TER."""
    checked = 0
    while True:
        gain, shifted, checked = lib_ter._shift(words, reference, distance, checked)
        if checked >= lib_ter._MAX_SHIFT_CANDIDATES or gain <= 0:
            return words
        words = shifted
