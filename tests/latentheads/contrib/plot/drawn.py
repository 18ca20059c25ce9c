"""What pictures are drawn of, and what is read off them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from latentheads.contrib.heads import (
    AlignmentDistributions,
    DirectedRelation,
    Measures,
    PositionalHeads,
    RareWordHeads,
    Relevance,
    SyntacticHeads,
)
from latentheads.contrib.heads.divergence import Divergence
from latentheads.contrib.heads.head_report import HeadReport
from latentheads.contrib.heads.samples import SampledWeights
from latentheads.names import ATTENTION_TYPES, Block


def some_laws(heads: int) -> AlignmentDistributions:
    """Laws of two sentences, padded."""
    tables = [torch.randn(2, heads, 5, 7).softmax(-1) for _ in range(3)]
    return AlignmentDistributions(tuple(f"head {n}" for n in range(heads)), *tables)


def some_weights(heads: int = 2, noise: float = 0.1) -> SampledWeights:
    """Weights of two sentences, padded; the third query of the first is the least sure."""
    torch.manual_seed(3)
    draws = torch.softmax(torch.randn(7, 2, heads, 4, 6), -1)
    mean = draws.mean(0)
    deviation = torch.full_like(mean, noise)
    deviation[0, :, 2] *= 2
    return SampledWeights(mean, deviation, mean * 0.5, mean * 1.5, torch.ones(2, heads))


def images(figure: Any) -> list[Any]:
    return [axis.images[0].get_array() for axis in figure.axes if len(axis.images)]


CASES = tuple(
    DirectedRelation(name, down, 1, 0.5, 9) for name in ("nsubj", "dobj") for down in (True, False)
)


def symmetric(heads: int) -> Tensor:
    half = torch.rand(heads, heads)
    return (half + half.T) * (1 - torch.eye(heads))


def head_report(
    name: str = "run", chains: Sequence[str] = ATTENTION_TYPES, layers: int = 2, heads: int = 3
) -> Any:
    """A run whose heads play no role."""

    blocks = tuple(Block(chain, layer, heads) for chain in chains for layer in range(layers))

    def each() -> dict[str, Tensor]:
        return {block.name: torch.rand(heads) for block in blocks}

    nothing = {block.name: torch.zeros(heads) for block in blocks}
    matrices = {block.site(): symmetric(heads) for block in blocks}
    return HeadReport(
        name=name,
        blocks=blocks,
        divergence=Divergence(matrices, {site: matrix / 9 for site, matrix in matrices.items()}),
        measures=Measures(each(), each(), {b.name: symmetric(heads) - 1 for b in blocks}),
        importance=each(),
        relevance=Relevance(each(), each(), 1.0, 1.0, 1),
        positional=PositionalHeads({n: v.long() for n, v in nothing.items()}, nothing, 0.9),
        rare={chain: RareWordHeads({}, {}, {}, {}, 0.5, 0.1) for chain in chains},
        syntactic=None,
    )


def with_roles(name: str = "run") -> Any:
    """One head of the first block is before, follows and is rare; another one follows twice."""

    plain, block = head_report(name), "encoder.0.self"
    share = {**plain.positional.share, block: torch.tensor([0.95, 0.0, 0.0])}
    offset = {**plain.positional.offset, block: torch.tensor([-1, 0, 0])}
    accuracy = torch.tensor([[0.7, 0.7, 0.0], [0.0] * 3, [0.0] * 3, [0.0, 0.8, 0.0]])
    two, chance = {block: torch.tensor([0.9, 0.0, 0.0])}, {block: torch.full((3,), 0.1)}
    return replace(
        plain,
        positional=replace(plain.positional, share=share, offset=offset),
        syntactic=SyntacticHeads(CASES, {block: accuracy}, {block: torch.full((4, 3), 0.5)}, 0.1),
        rare={
            "encoder-self": RareWordHeads(two, two, chance, {block: torch.full((3,), 9)}, 0.5, 0.1)
        },
    )


def texts_of(artists: Iterable[Any]) -> list[str]:
    return [artist.get_text() for artist in artists]


def ticks(axis: Any, side: str) -> list[str]:
    return texts_of(getattr(axis, f"get_{side}ticklabels")())


def sound_weights() -> SampledWeights:
    """Two heads; the second is surer, and least sure of its last token."""
    mean = torch.full((1, 2, 3, 5), 0.2)
    mean[0, 1] = torch.eye(3, 5)
    deviation = torch.zeros(1, 2, 3, 5)
    deviation[0, 1, 2] = 0.3
    return SampledWeights(mean, deviation, mean - deviation, mean + deviation, torch.ones(1, 2))
