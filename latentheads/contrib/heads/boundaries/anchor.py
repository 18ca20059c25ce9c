"""Where boundaries are, up to what attention does not determine: a shift that all words share.

Unlabelled attention is as likely under profiles that all lie 100 ms later, with boundaries 100 ms
earlier. The energy of the sound anchors them: it rises where words
start, and falls where they end.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from latentheads.contrib.heads.boundaries.chain import medians
from latentheads.contrib.heads.word_attention import WordAttention

WINDOW = 4
"""Positions around the shift of the first words in which that of all words is searched."""

RISE = 0.3
"""Share of the way from the lowest to the highest energy above which there is sound."""

CLOSURE = 4
"""Positions that a silence within a word, or between words that are spoken in one go, may have."""


def anchor_shift(
    attentions: Sequence[WordAttention],
    marginals: Sequence[Float[Tensor, "kind word position"]],
    kind: int,
    reach: int = 25,
) -> float:
    """Positions by which boundaries have to be moved to be where the energy rises, or falls.

    The first word of each example, after a silence, gives a rough shift. The others give a precise
    one: the mean energy around them has its sharpest bend where words start.

    Args:
        attentions: Examples with energy.
        marginals: The posterior of the boundaries of each.
        kind: 0: starts; 1: ends.
        reach: The largest shift.
    """
    # an end is a start of the sound played backwards
    pairs = [
        (example.energy, marginal[kind])
        if kind == 0
        else (example.energy.flip(0), marginal[kind].flip(0, 1))
        for example, marginal in zip(attentions, marginals, strict=True)
        if example.energy is not None and example.energy.min() < example.energy.max()
    ]
    if not pairs:
        return 0.0
    boundaries = [float(medians(marginal[:1])) for _, marginal in pairs]
    first = [
        sound_onset(energy, int(boundary) + 2 * WINDOW + 1) - boundary
        for (energy, _), boundary in zip(pairs, boundaries)
    ]
    centre = float(torch.tensor(first).median().clamp(-reach, reach))
    others = [(energy, marginal[1:]) for energy, marginal in pairs if len(marginal) > 1]
    shift = _sharpest_bend(_mean_energy(others, reach), centre) if others else centre
    return shift if kind == 0 else -shift


def sound_onset(energy: Float[Tensor, " position"], stop: int | None = None) -> float:
    """The position at which there first is sound, or at which it follows a longer silence.

    A recording that was cut out of a longer one may begin within another word.

    Args:
        energy: The energy of a sound.
        stop: The end of the part in which a longer silence is searched; None: that of the sound.
    """
    low, high = energy.quantile(0.1), energy.quantile(0.9)
    is_loud = energy > low + RISE * (high - low)
    onset = longest = int(is_loud.double().argmax())
    silence = 0
    for position, loud in enumerate(is_loud[:stop].tolist()):
        silence = 0 if loud else silence + 1
        if silence > max(longest, CLOSURE):
            onset, longest = position + 1, silence
    return float(onset)


def _mean_energy(pairs: Sequence[tuple[Tensor, Tensor]], reach: int) -> Float[Tensor, " lag"]:
    """The energy at each lag from a boundary, averaged over boundaries."""
    total = torch.zeros(2 * reach + 1, dtype=torch.float64)
    for energy, marginal in pairs:
        padded = F.pad(energy[None], (reach, reach), mode="replicate")[0]
        total += marginal.sum(0) @ padded.unfold(0, 2 * reach + 1, 1)
    return total / sum(len(marginal) for _, marginal in pairs)


def _sharpest_bend(curve: Float[Tensor, " lag"], centre: float) -> float:
    """The lag near a centre at which a curve turns up most."""
    reach = len(curve) // 2
    bend = curve[:-2] - 2 * curve[1:-1] + curve[2:]
    lags = torch.arange(1 - reach, reach)
    is_near = (lags - centre).abs() <= WINDOW
    index = int(bend.masked_fill(~is_near, -torch.inf).argmax())
    if not 0 < index < len(bend) - 1:
        return float(lags[index])
    # between lags, at the vertex of the parabola through the largest bend and its neighbours
    left, top, right = bend[index - 1 : index + 2].tolist()
    curvature = left - 2 * top + right
    offset = 0.5 * (left - right) / curvature if curvature < 0 else 0.0
    return float(lags[index]) + max(-0.5, min(0.5, offset))
