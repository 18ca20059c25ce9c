"""Where the heads of a sentence look: maps under the guide, beside the prior's, and alignments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from latentheads.analysis.alignments import (
    DISTRIBUTIONS,
    AlignmentDistributions,
    alignment_distributions,
    samples_alignments,
)
from latentheads.analysis.labels import name_positions, name_queries_and_keys, name_tokens
from latentheads.analysis.record import Recording, record_heads
from latentheads.analysis.samples import NO_NOISE, record_prior_heads, summarise_samples
from latentheads.batch import Batch
from latentheads.guide import WithSelection
from latentheads.metrics.alignment import Links
from latentheads.names import ALIGNMENT, ATTENTION_TYPES, side_of
from latentheads.page.packing import pool_weights, pooling_stride, quantise_weights
from latentheads.runs.run import Run

__all__ = ["HeadMaps", "MapTokens", "gather_alignments", "gather_map_tokens", "gather_maps"]

Weights = Float[Tensor, "draw head row column"]


@dataclass(frozen=True)
class MapTokens:
    """The tokens at the rows and columns of the maps of a chain, in one sentence.

    Attributes:
        rows: A token each.
        columns: The same.
        predicts: The token that each row predicts; none where it predicts nothing.
        links: Gold links, as rows and columns.
    """

    rows: list[str]
    columns: list[str]
    predicts: list[str] = field(default_factory=list)
    links: list[tuple[int, int]] = field(default_factory=list)

    @property
    def stride(self) -> tuple[int, int]:
        """How many tokens share a row of a map, and a column."""
        return pooling_stride(len(self.rows), len(self.columns))

    def cut(self, weights: Float[Tensor, "head query key"]) -> Float[Tensor, "head row column"]:
        """A sentence's part of the weights of a batch, neighbours pooled in long ones."""
        return pool_weights(weights[:, : len(self.rows), : len(self.columns)], self.stride)

    def to_json(self) -> dict[str, Any]:
        """The tokens and links as the page reads them."""
        rows, columns = self.stride
        return {
            "rows": _pool_names(self.rows, rows),
            "columns": _pool_names(self.columns, columns),
            "predicts": _pool_names(self.predicts, rows),
            "links": sorted({(row // rows, column // columns) for row, column in self.links}),
            "stride": [rows, columns],
        }


def _pool_names(names: Sequence[str], stride: int) -> list[str]:
    """A name for each cell of a map: of tokens that share one, the first and the last."""
    if stride == 1:
        return list(names)
    cells = (names[start : start + stride] for start in range(0, len(names), stride))
    return [cell[0] if len(cell) == 1 else f"{cell[0]} … {cell[-1]}" for cell in cells]


def gather_map_tokens(
    run: Run, batch: Batch, place: int, links: Links = frozenset()
) -> dict[str, MapTokens]:
    """The tokens at the rows and columns of each chain.

    Args:
        run: The run.
        batch: Its sentences.
        place: Which of them.
        links: Gold links between source and target tokens.
    """
    real = batch.target[place][batch.target_valid[place]].tolist()
    target = name_tokens(run.target, real)
    gold = [(word, key) for key, word in links]
    found = {}
    for chain in dict.fromkeys(block.chain for block in Recording(run.model).attention_blocks):
        rows, columns = name_queries_and_keys(batch, chain, run.source, run.target, place)
        decodes, crosses = side_of(chain) == "decoder", chain == ATTENTION_TYPES[2]
        found[chain] = MapTokens(rows, columns, target if decodes else [], gold if crosses else [])
    if samples_alignments(run.model):
        keys = name_positions(batch, run.source, run.target, place)
        found[ALIGNMENT] = MapTokens(target, keys, [], gold)
    return found


@dataclass(frozen=True)
class HeadMaps:
    """The maps of some heads in one sentence, coded in bytes.

    Attributes:
        name: Of the block.
        heads: What the heads are called.
        silent: The heads that say nothing in this sentence.
        parts: ``mean`` under the guide; where heads vary also ``deviation``, ``low`` and ``high``;
            where those of the prior differ also ``prior``, its mean. Of alignments the laws.
        draws: Some draws of the guide; none where heads do not vary.
    """

    name: str
    heads: list[str]
    silent: list[bool]
    parts: dict[str, NDArray[np.uint8]]
    draws: NDArray[np.uint8]

    def to_json(self, draws: int) -> dict[str, Any]:
        """A description by which the page finds the maps in the bytes."""
        return {
            "name": self.name,
            "heads": self.heads,
            "silent": self.silent,
            "parts": list(self.parts),
            "draws": len(self.draws[:draws]),
        }

    def arrays(self, draws: int) -> list[NDArray[np.uint8]]:
        """The maps in their order."""
        return [*self.parts.values(), self.draws[:draws]]


def gather_maps(
    run: Run, batch: Batch, sides: Sequence[dict[str, MapTokens]], draws: int, kept: int, seed: int
) -> list[list[HeadMaps]]:
    """Reads the heads of every block under draws of the guide, and of the prior.

    Selections of heads stand at their likeliest.

    Args:
        run: The run.
        batch: Its sentences.
        sides: What stands at rows and columns in each.
        draws: Number of draws.
        kept: How many of them are kept one by one.
        seed: Of the noise.

    Returns:
        For each sentence, those of each block that attends.
    """
    model, guide = run.model, run.guide
    with WithSelection(guide):
        guided = (heads for _, heads in record_heads(model, [batch] * draws, guide, seed))
        posterior = _collect_draws(guided, sides)
    prior = _collect_draws(record_prior_heads(model, guide, batch, draws, seed), sides)
    return [
        [
            _summarise_block(
                block.name, posterior[place, block.name], prior[place, block.name], kept
            )
            for block in Recording(model).attention_blocks
        ]
        for place in range(len(batch))
    ]


def _collect_draws(
    passes: Iterable[Recording], sides: Sequence[dict[str, MapTokens]]
) -> dict[tuple[int, str], Weights]:
    """The weights of all draws, by sentence and block; only what a map shows is kept of each."""
    found: dict[tuple[int, str], list[Tensor]] = defaultdict(list)
    for heads in passes:
        for block in heads.attention_blocks:
            weights = heads[block.name].weights
            for place, side in enumerate(sides):
                found[place, block.name].append(side[block.chain].cut(weights[place]))
    return {key: torch.stack(each) for key, each in found.items()}


def _summarise_block(name: str, posterior: Weights, prior: Weights, kept: int) -> HeadMaps:
    drawn = summarise_samples(posterior)
    parts = {"mean": drawn.mean}
    varies = bool((drawn.deviation > NO_NOISE).any())
    if varies:
        parts |= {"deviation": drawn.deviation, "low": drawn.low, "high": drawn.high}
    if not torch.equal(posterior.nan_to_num(), prior.nan_to_num()):
        parts["prior"] = summarise_samples(prior).mean
    return HeadMaps(
        name,
        [str(head) for head in range(posterior.shape[1])],
        posterior[0].isnan().all(-1).all(-1).tolist(),
        {part: quantise_weights(values) for part, values in parts.items()},
        quantise_weights(posterior[: kept if varies else 0]),
    )


def gather_alignments(
    run: Run, batch: Batch, sides: Sequence[dict[str, MapTokens]]
) -> list[list[HeadMaps]]:
    """Where the words of each sentence point under prior, guide and exact posterior.

    Args:
        run: The run.
        batch: Its sentences.
        sides: What stands at rows and columns in each.

    Returns:
        One for each sentence; none of a run that draws no alignments.
    """
    if not samples_alignments(run.model):
        return [[] for _ in sides]
    laws = alignment_distributions(run.model, run.guide, batch)
    return [[_read_laws(laws, place, side[ALIGNMENT])] for place, side in enumerate(sides)]


def _read_laws(laws: AlignmentDistributions, place: int, side: MapTokens) -> HeadMaps:
    parts = {law: quantise_weights(side.cut(getattr(laws, law)[place])) for law in DISTRIBUTIONS}
    none = np.zeros((0, *parts[DISTRIBUTIONS[0]].shape), np.uint8)
    return HeadMaps(ALIGNMENT, list(laws.heads), [False] * len(laws.heads), parts, none)
