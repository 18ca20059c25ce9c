"""Attention maps of a sentence under the guide and under the prior, and alignments."""

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

from latentheads.batch import Batch
from latentheads.contrib.heads.alignments import (
    DISTRIBUTIONS,
    AlignmentDistributions,
    alignment_distributions,
)
from latentheads.contrib.heads.labels import name_positions, name_queries_and_keys, name_tokens
from latentheads.contrib.heads.record import Recording, record_heads
from latentheads.contrib.heads.samples import NO_NOISE, record_prior_heads, summarise_samples
from latentheads.contrib.page.packing import pool_weights, pooling_stride, quantise_weights
from latentheads.latents.handlers import WithSelection
from latentheads.metrics.alignment import Links
from latentheads.names import ALIGNMENT, ATTENTION_TYPES, side_of
from latentheads.runs.run import Run

Weights = Float[Tensor, "draw head row column"]


@dataclass(frozen=True)
class MapTokens:
    """The tokens at the rows and columns of the maps of an attention type, in one sentence.

    Attributes:
        rows: Label of the token at each row.
        columns: Label of the token at each column.
        predicts: The token that each row predicts; empty for an encoder.
        links: Gold links, as rows and columns.
        no_position: Label of the first column where it is no position of a text; otherwise None.
    """

    rows: list[str]
    columns: list[str]
    predicts: list[str] = field(default_factory=list)
    links: list[tuple[int, int]] = field(default_factory=list)
    no_position: str | None = None

    @property
    def stride(self) -> tuple[int, int]:
        """The number of tokens that share a row of a map, and a column."""
        return pooling_stride(len(self.rows), len(self.columns))

    def pool(self, weights: Float[Tensor, "head query key"]) -> Float[Tensor, "head row column"]:
        """A sentence's part of a batch's weights; neighbours are pooled in long sentences."""
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
            # where cells are pooled it shares one with positions, and words are not distinguished
            "no_position": self.no_position if rows == columns == 1 else None,
        }


def _pool_names(names: Sequence[str], stride: int) -> list[str]:
    """The label of each cell: if tokens share it, the first and the last."""
    if stride == 1:
        return list(names)
    cells = (names[start : start + stride] for start in range(0, len(names), stride))
    return [cell[0] if len(cell) == 1 else f"{cell[0]} … {cell[-1]}" for cell in cells]


def gather_map_tokens(
    run: Run, batch: Batch, index: int, links: Links = frozenset()
) -> dict[str, MapTokens]:
    """Labels the rows and columns of the maps of each attention type."""
    token_ids = batch.target[index][batch.target_valid[index]].tolist()
    target = name_tokens(run.target, token_ids)
    gold_links = [(word, key) for key, word in links]
    by_type = {}
    for name in dict.fromkeys(
        block.attention_type for block in Recording(run.model).attention_blocks
    ):
        rows, columns = name_queries_and_keys(batch, name, run.source, run.target, index)
        predicted = target if side_of(name) == "decoder" else []
        links_of_map = gold_links if name == ATTENTION_TYPES[2] else []
        by_type[name] = MapTokens(rows, columns, predicted, links_of_map)
    if run.model.samples_alignments:
        heads = run.model.output_heads
        assert heads is not None
        keys = name_positions(batch, run.source, run.target, heads, index)
        first = int(heads.no_position is not None)
        at_keys = [(word, key + first) for word, key in gold_links]
        by_type[ALIGNMENT] = MapTokens(target, keys, [], at_keys, heads.no_position)
    return by_type


@dataclass(frozen=True)
class HeadMaps:
    """The maps of a block's heads in one sentence, quantised to bytes.

    Attributes:
        name: Name of the block.
        heads: Labels of the heads.
        active: The share of samples from the guide in which each head is active in this sentence;
            the other statistics are over these samples.
        parts: ``mean`` under the guide; for heads with noise also ``deviation``, ``low`` and
            ``high``; if the prior differs also its mean, ``prior``. For alignments the
            distributions.
        draws: Some samples from the guide; none without noise.
    """

    name: str
    heads: list[str]
    active: list[float]
    parts: dict[str, NDArray[np.uint8]]
    draws: NDArray[np.uint8]

    def to_json(self, num_samples: int) -> dict[str, Any]:
        """The description by which the page locates the maps in the bytes."""
        return {
            "name": self.name,
            "heads": self.heads,
            "active": self.active,
            "parts": list(self.parts),
            "draws": len(self.draws[:num_samples]),
        }

    def arrays(self, num_samples: int) -> list[NDArray[np.uint8]]:
        """The maps in their order."""
        return [*self.parts.values(), self.draws[:num_samples]]


def gather_maps(
    run: Run,
    batch: Batch,
    tokens: Sequence[dict[str, MapTokens]],
    num_samples: int,
    kept: int,
    seed: int,
) -> list[list[HeadMaps]]:
    """Samples the attention weights of every block from the guide and from the prior.

    Selections of heads are set to their mode.
    """
    model, guide = run.model, run.guide
    with WithSelection(guide):
        recordings = (heads for _, heads in record_heads(model, [batch] * num_samples, guide, seed))
        posterior = _collect_weights(recordings, tokens)
    prior = _collect_weights(record_prior_heads(model, guide, batch, num_samples, seed), tokens)
    return [
        [
            _summarise_block(
                block.name, posterior[index, block.name], prior[index, block.name], kept
            )
            for block in Recording(model).attention_blocks
        ]
        for index in range(len(batch))
    ]


def _collect_weights(
    passes: Iterable[Recording], tokens: Sequence[dict[str, MapTokens]]
) -> dict[tuple[int, str], Weights]:
    """Collects the weights of all samples by sentence and block, pooled to the size of a map."""
    samples: dict[tuple[int, str], list[Tensor]] = defaultdict(list)
    for heads in passes:
        for block in heads.attention_blocks:
            weights = heads[block.name].weights
            for index, by_type in enumerate(tokens):
                samples[index, block.name].append(
                    by_type[block.attention_type].pool(weights[index])
                )
    return {key: torch.stack(weights_of_block) for key, weights_of_block in samples.items()}


def _summarise_block(name: str, posterior: Weights, prior: Weights, kept: int) -> HeadMaps:
    statistics, mean_under_prior = summarise_samples(posterior), summarise_samples(prior).mean
    parts = {"mean": statistics.mean}
    varies = bool((statistics.deviation > NO_NOISE).any())
    if varies:
        parts |= {"deviation": statistics.deviation, "low": statistics.low, "high": statistics.high}
    if ((statistics.mean - mean_under_prior).abs() > NO_NOISE).any():  # where active under both
        parts["prior"] = mean_under_prior
    return HeadMaps(
        name,
        [str(head) for head in range(posterior.shape[1])],
        statistics.active.tolist(),
        {part: quantise_weights(values) for part, values in parts.items()},
        quantise_weights(posterior[: kept if varies else 0]),
    )


def gather_alignments(
    run: Run, batch: Batch, tokens: Sequence[dict[str, MapTokens]]
) -> list[list[HeadMaps]]:
    """Computes prior, guide and exact posterior of the alignment of each sentence.

    Returns:
        The maps of each sentence; empty for a run without latent alignments.
    """
    if not run.model.samples_alignments:
        return [[] for _ in tokens]
    distributions = alignment_distributions(run.model, run.guide, batch)
    return [
        [_make_alignment_maps(distributions, index, by_type[ALIGNMENT])]
        for index, by_type in enumerate(tokens)
    ]


def _make_alignment_maps(
    distributions: AlignmentDistributions, index: int, tokens: MapTokens
) -> HeadMaps:
    weights = {name: getattr(distributions, name)[index] for name in DISTRIBUTIONS}
    parts = {name: quantise_weights(tokens.pool(values)) for name, values in weights.items()}
    no_samples = np.zeros((0, *parts[DISTRIBUTIONS[0]].shape), np.uint8)
    heads = list(distributions.heads)
    return HeadMaps(ALIGNMENT, heads, [1.0] * len(heads), parts, no_samples)
