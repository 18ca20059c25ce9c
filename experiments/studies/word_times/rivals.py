"""How others get word times from attention: averaged heads, and dynamic time warping.

The warping is ``find_alignment`` of OpenAI's code, without what ``add_word_timestamps`` corrects in
its times by the lengths of words and the segment that Whisper transcribed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from latentheads.contrib.heads.boundaries.dtw import dtw_starts, smooth_heads, warp_average
from latentheads.contrib.heads.word_attention import WHISPER_STEP
from latentheads.experiments.studies.word_times.cache import CachedUtterance


def all_heads(utterance: CachedUtterance) -> list[int]:
    """The upper half of the heads, which ``transformers`` takes where none are named."""
    return list(range(len(utterance.heads) // 2, len(utterance.heads)))


def openai_heads(utterance: CachedUtterance) -> list[int]:
    """OpenAI's alignment heads."""
    return [utterance.heads.index(head) for head in utterance.listed]


def norm_heads(utterance: CachedUtterance, number: int = 8) -> list[int]:
    """The heads with the most concentrated attention in this utterance, by the L2 norm of rows."""
    norms = F.normalize(_tokens(utterance), p=1, dim=-1)[:, _warped(utterance)].norm(dim=-1)
    return norms.mean(-1).topk(number).indices.tolist()


Starts = Float[np.ndarray, " row"]
"""Positions at which the rows start that predict a token of the text, or its end."""


def openai_starts(
    utterance: CachedUtterance, choice: Callable[[CachedUtterance], list[int]] = openai_heads
) -> Starts:
    """Those of OpenAI's code."""
    return dtw_starts(_tokens(utterance)[choice(utterance)], _warped(utterance))


def transformers_starts(utterance: CachedUtterance) -> Starts:
    """Those of ``transformers`` by OpenAI's heads: only the rows that are warped are seen.

    Attention is not divided by its sum within the sound. A word starts at the time that its
    tokenizer has for the token before.
    """
    rows = _tokens(utterance)[openai_heads(utterance), _warped(utterance)]
    return warp_average(smooth_heads(rows))


Rival = Callable[[CachedUtterance], Starts]
"""Returns the positions at which rows start."""

RIVALS: dict[str, Rival] = {
    "openai": openai_starts,
    "transformers": transformers_starts,
    "upper": partial(openai_starts, choice=all_heads),
    "norm": partial(openai_starts, choice=norm_heads),
}
"""How rows are warped, and of which heads."""


def warped_times(utterance: CachedUtterance, rival: Rival) -> tuple[list[float], list[float]]:
    """Seconds at which words start and end: a word ends where the next one starts.

    Args:
        utterance: The utterance.
        rival: Returns the positions at which rows start.
    """
    starts = rival(utterance) * WHISPER_STEP
    offset = utterance.spans[0][0]
    return (
        [float(starts[first - offset]) for first, _ in utterance.spans],
        [float(starts[stop - offset]) for _, stop in utterance.spans],
    )


def _tokens(utterance: CachedUtterance) -> Tensor:
    """The rows of all tokens, at the positions that OpenAI's code takes."""
    return utterance.weights[..., : utterance.whole_positions].float()


def _warped(utterance: CachedUtterance) -> slice:
    """The rows that OpenAI's code warps: those that predict a token of the text, or its end."""
    return slice(utterance.spans[0][0] - 1, -1)
