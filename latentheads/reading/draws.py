"""How sure a guide is of its heads: mean and standard deviation of their weights under draws."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.batch import Batch
from latentheads.guide import ModelGuide
from latentheads.model import HeadModel
from latentheads.reading.record import readings

__all__ = ["DrawnWeights", "drawn_weights"]


@dataclass(frozen=True)
class DrawnWeights:
    """The attention weights of a block under several draws of its heads.

    Attributes:
        mean: Over the draws.
        deviation: Their standard deviation; 0 where heads carry no noise.
    """

    mean: Float[Tensor, "batch head query key"]
    deviation: Float[Tensor, "batch head query key"]


def drawn_weights(
    model: HeadModel, guide: ModelGuide, batch: Batch, draws: int = 64, seed: int = 0
) -> dict[str, DrawnWeights]:
    """Reads the heads of every block that attends, under draws from a guide.

    Args:
        model: The model.
        guide: Draws the heads.
        batch: The sentences.
        draws: Number of draws; at least 2.
        seed: Of the noise.

    Returns:
        By the name of the block.
    """
    if draws < 2:
        raise ValueError(f"draws must be at least 2 for a standard deviation, got {draws}")
    sums: dict[str, Tensor] = {}
    squares: dict[str, Tensor] = {}
    for _, heads in readings(model, [batch] * draws, guide, seed):
        for block in heads.attending:
            weights = heads[block.name].weights.double()
            sums[block.name] = sums.get(block.name, 0) + weights
            squares[block.name] = squares.get(block.name, 0) + weights.square()
    return {name: _summarise(total, squares[name], draws) for name, total in sums.items()}


def _summarise(total: Tensor, squares: Tensor, draws: int) -> DrawnWeights:
    """The usual estimators; the mean square loses no digits that a weight in [0, 1] has."""
    mean = total / draws
    variance = (squares - draws * mean.square()) / (draws - 1)
    return DrawnWeights(mean, torch.sqrt(variance.clamp_min(0)))
