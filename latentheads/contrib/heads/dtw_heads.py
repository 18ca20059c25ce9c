"""The list of heads for programs that average heads and warp time, as OpenAI's Whisper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.checks import check_least, check_not_empty
from latentheads.console import show_progress
from latentheads.contrib.heads.alignment_heads import AlignmentHeads, list_examples
from latentheads.contrib.heads.boundaries.chain import BoundaryTimes
from latentheads.contrib.heads.boundaries.dtw import normalise, smooth_heads, warp_average
from latentheads.contrib.heads.word_attention import (
    ForcedExample,
    Head,
    record_example,
    to_word_attention,
)

MOST_HEADS = 8
"""Most heads of a list: as many as OpenAI's list of Whisper tiny.en has."""

CANDIDATES = 24
"""Heads that may join others: those that are nearest by themselves."""

LIMIT = 5
"""Positions: larger errors count as this one, .1 seconds of Whisper."""


@dataclass(frozen=True)
class WarpedExample:
    """An example as a program that warps time sees it.

    Attributes:
        smooth: Heads that are standardised and smoothed, at the rows that are warped.
        rows: The row that begins at each boundary: a word ends where the next one starts.
        positions: The position of each boundary.
    """

    smooth: Float[Tensor, "head row position"]
    rows: Int[np.ndarray, " boundary"]
    positions: Float[np.ndarray, " boundary"]

    @classmethod
    def of(
        cls,
        weights: Float[Tensor, "head token position"],
        words: Sequence[tuple[int, int]],
        times: Mapping[str, BoundaryTimes],
        step: float,
    ) -> WarpedExample:
        """What is warped of attention.

        Args:
            weights: Attention of the queries at all tokens, the end token too.
            words: The tokens of each word.
            times: When words start, and end if ends were learned.
            step: Seconds of a position.
        """
        first = words[0][0]
        # rows that predict a token of the text, or its end
        smooth = smooth_heads(normalise(weights))[:, first - 1 : -1]
        tokens = np.array(words)[:, : len(times)].T.flatten()
        rows = np.minimum(tokens - first, smooth.shape[1] - 1)  # the last word may have the end
        medians = np.concatenate([of_kind.median for of_kind in times.values()])
        return cls(smooth, rows, medians / step)

    def errors(self, heads: Sequence[int]) -> Float[np.ndarray, " boundary"]:
        """How far boundaries by the mean of some heads are from those that are wanted."""
        warped = warp_average(self.smooth[[*heads]])[self.rows]
        return np.minimum(np.abs(warped - self.positions), LIMIT)


def heads_for_dtw(
    heads: AlignmentHeads,
    network: Any,
    examples: Sequence[ForcedExample],
    most: int = MOST_HEADS,
) -> list[Head]:
    """The list of heads for a program that averages heads, and warps time.

    Such programs ignore the lags of heads, so the most informative heads are not the best for
    them. This list is chosen so that dynamic time warping of the mean of its heads, as OpenAI's
    code has it, gives starts, and ends if they were learned, that are near those of
    :meth:`AlignmentHeads.times`. No label is used. Of the 24 heads that are nearest by themselves,
    that which lowers the mean error most is added, until none does.

    Args:
        heads: What :func:`latentheads.alignment_heads` has learned.
        network: The network.
        examples: Examples of sound, such as those that the heads were learned from.
        most: Most heads.

    Raises:
        ValueError: An example is of text or wrong, or has another step than the heads.

    ::

        heads = lh.alignment_heads(whisper, examples)
        listed = heads_for_dtw(heads, whisper, examples)
        whisper.generation_config.alignment_heads = to_generation_config(listed)
    """
    check_least({"most": most}, most=1)
    warped = []
    listed = list_examples(examples, heads.step)
    for example in show_progress(listed, "reading attention", "example"):
        if "input_ids" in example.inputs:
            raise ValueError("examples must be of sound: no program warps text")
        # the query at the end token counts where heads are standardised
        weights = record_example(network, example, with_end=True)
        attention = to_word_attention(weights[:, :-1], example)
        times = heads.times(attention, bounded=False)
        warped.append(WarpedExample.of(weights, example.words, times, heads.step))
    return choose_for_dtw(heads.heads, warped, most)


def choose_for_dtw(
    heads: Sequence[Head], examples: Sequence[WarpedExample], most: int = MOST_HEADS
) -> list[Head]:
    """The list of heads for a program that warps time, given attention that is recorded already.

    Args:
        heads: The heads, in the order of ``smooth``.
        examples: The examples.
        most: Most heads.
    """
    check_not_empty("examples", examples)

    def mean_error(some: Sequence[int]) -> float:
        return float(np.concatenate([example.errors(some) for example in examples]).mean())

    indices = show_progress(range(len(heads)), "warping heads", "head")
    alone = {index: mean_error([index]) for index in indices}
    candidates = sorted(alone, key=lambda index: alone[index])[:CANDIDATES]
    chosen = [candidates.pop(0)]
    least = alone[chosen[0]]
    while candidates and len(chosen) < most:
        errors = {index: mean_error([*chosen, index]) for index in candidates}
        best = min(candidates, key=lambda index: errors[index])
        if errors[best] >= least:
            break
        least = errors[best]
        chosen.append(best)
        candidates.remove(best)
    return [heads[index] for index in chosen]
