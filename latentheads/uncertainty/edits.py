"""Which tokens of a translation are right: those that an edit to the reference leaves alone.

The labels of Wang et al. 2020, https://arxiv.org/abs/2005.00963, for calibration of what a model
writes itself (InfECE). The edits are those of TER (Snover et al. 2006,
https://aclanthology.org/2006.amta-papers.25): a stretch of tokens may be shifted, which alone is no
fault of theirs; a token that is replaced or deleted is wrong. Here they are counted in the
vocabulary's own tokens, so none has to be matched with words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool
from numpy import ndarray
from sacrebleu.metrics import lib_ter

__all__ = ["label_tokens"]


class _Placed(str):
    """A token that remembers where it stood, wherever it is shifted to."""

    place: int

    @classmethod
    def of(cls, token: int, place: int) -> _Placed:
        """Makes one; equal tokens are equal whatever their places."""
        found = cls(token)
        found.place = place
        return found


def label_tokens(hypothesis: Sequence[int], reference: Sequence[int]) -> Bool[ndarray, " token"]:
    """Says of every token of a hypothesis whether the reference has it, after undoing shifts.

    Args:
        hypothesis: Tokens.
        reference: Tokens that count as right.
    """
    right = np.zeros(len(hypothesis), dtype=bool)
    if not len(hypothesis) or not len(reference):
        return right
    words: list[str] = [_Placed.of(token, place) for place, token in enumerate(hypothesis)]
    known = [str(token) for token in reference]
    distance = lib_ter.BeamEditDistance(known)
    words = _shift_all(words, known, distance)
    _, inverse = distance(words)
    _, _, wrong = lib_ter.trace_to_alignment(lib_ter._flip_trace(inverse))
    for word, is_wrong in zip(words, wrong, strict=True):
        assert isinstance(word, _Placed)
        right[word.place] = not is_wrong
    return right


def _shift_all(words: list[str], known: list[str], distance: lib_ter.BeamEditDistance) -> list[str]:
    """Shifts as long as that brings a hypothesis nearer: sacreBLEU's own loop."""
    checked = 0
    while True:
        gain, shifted, checked = lib_ter._shift(words, known, distance, checked)
        if checked >= lib_ter._MAX_SHIFT_CANDIDATES or gain <= 0:
            return words
        words = shifted
