"""Roles of heads after Voita et al. (2019): positional, syntactic, rare-word.

https://arxiv.org/abs/1905.09418

A head *attends to* the key of its largest weight. BOS, EOS and padding count neither as queries nor
as keys, a query with a single allowed key does not count, and a head counts only in sentences in
which it is active. Detectors are updated with the heads of an attention type batch by batch; their
``result`` has the roles. A new detector is a subclass of :class:`Detector`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from latentheads.batch import Batch
from latentheads.checks import check_choice, check_list
from latentheads.contrib.heads.record import Heads, record_heads
from latentheads.contrib.heads.tokens import AttentionTokens, attention_tokens
from latentheads.corpora.part import Part
from latentheads.guide import ModelGuide
from latentheads.model import HeadModel
from latentheads.names import ATTENTION_TYPES

OffsetCounts = dict[int, Tensor]
"""Counts by the offset of the key from the query."""


@dataclass(frozen=True)
class Role:
    """A head that plays a role.

    Attributes:
        block: Name of its block.
        head: Its index in the block.
        role: ``positional``, ``syntactic``, ``rare-word``, or one of your own.
        detail: An offset such as ``-1``, a relation and its direction, or a word of your own.
        score: Share of the counted queries for which the head does so.
        baseline: The same share of the baseline; None without a baseline.
    """

    block: str
    head: int
    role: str
    detail: str
    score: float
    baseline: float | None = None


@dataclass(frozen=True)
class AttentionView:
    """The attention weights of a block on a batch, with the tokens.

    Attributes:
        block: Name of the block.
        weights: Its attention weights.
        tokens: The tokens at queries and keys.
        sentence_indices: Index of each sentence in its corpus.
        pairs: True where a counted query may attend to a counted key.
        active: True at heads that are active in a sentence.
    """

    block: str
    weights: Float[Tensor, "batch head query key"]
    tokens: AttentionTokens
    sentence_indices: Sequence[int]
    pairs: Bool[Tensor, "batch query key"]
    active: Bool[Tensor, "batch head"]

    @classmethod
    def of(cls, heads: Heads, batch: Batch) -> AttentionView:
        """Makes a view of recorded heads."""
        tokens = attention_tokens(batch, heads.block.attention_type)
        pairs = (
            tokens.counted_queries()[:, :, None] & tokens.counted_keys()[:, None] & heads.readable
        )
        sentence_indices = batch.sentences.tolist()
        return cls(
            heads.block.name,
            heads.weights,
            tokens,
            sentence_indices,
            drop_single_choice(pairs),
            heads.active,
        )

    @property
    def active_pairs(self) -> Bool[Tensor, "batch head query key"]:
        """The pairs of every head, none for inactive heads."""
        return self.pairs.unsqueeze(1) & self.active[..., None, None]


def drop_single_choice(pairs: Bool[Tensor, "batch query key"]) -> Bool[Tensor, "batch query key"]:
    """Drops the queries with a single allowed key."""
    return pairs & (pairs.sum(-1, keepdim=True) > 1)


def argmax_pairs(
    weights: Float[Tensor, "batch head query key"], pairs: Bool[Tensor, "batch head query key"]
) -> Bool[Tensor, "batch head query key"]:
    """True at the allowed key with the largest weight; at the first of equal ones."""
    best = weights.masked_fill(~pairs, -1.0).argmax(-1, keepdim=True)
    return torch.zeros_like(weights, dtype=torch.bool).scatter(-1, best, True) & pairs


def count_by_offset(pairs: Bool[Tensor, "batch *more query key"]) -> OffsetCounts:
    """Counts the pairs at each offset of the key from the query."""
    *_, queries, keys = pairs.shape
    offset = torch.arange(keys) - torch.arange(queries)[:, None]
    counts = pairs.sum(0).cpu().flatten(-2)
    zeros = counts.new_zeros(*counts.shape[:-1], queries + keys - 1)
    summed = zeros.index_add(-1, offset.flatten() + queries - 1, counts)
    return {index - queries + 1: count for index, count in enumerate(summed.unbind(-1))}


def add_counts(total: OffsetCounts, more: OffsetCounts) -> None:
    """Adds counts to a total, in place."""
    for offset, count in more.items():
        total[offset] = total.get(offset, 0) + count


def fraction(part: Tensor, whole: Tensor | int) -> Tensor:
    """Divides in double precision; NaN for 0 / 0."""
    return part.double() / whole


class Detector(ABC):
    """Collects statistics of the heads of an attention type, block by block, batch by batch."""

    @abstractmethod
    def update(self, view: AttentionView) -> None:
        """Adds the heads of a block on one batch."""


def detect(
    model: HeadModel,
    batches: Part | Iterable[Batch],
    detectors: Sequence[Detector],
    attention_type: str | None = None,
    guide: ModelGuide | None = None,
    seed: int = 0,
) -> None:
    """Calls ``update`` of detectors with the heads of each block of an attention type.

    Args:
        model: The model.
        batches: A part of a corpus, or batches, each sentence once.
        detectors: The detectors.
        attention_type: One of ``ATTENTION_TYPES``; by default the encoder's self-attention, or the
            decoder's for a model without an encoder.
        guide: Sample the heads from this guide; without one they are set to their plug-in value.
        seed: Seed of the guide's noise.
    """
    check_list("detectors", detectors)
    detectors = [*detectors]
    for batch, heads in record_heads(model, batches, guide, seed):
        attention_types = {block.attention_type for block in heads.attention_blocks}
        if not attention_types:
            raise ValueError("roles need attention weights: this model has no attention")
        decoder_only = {block.attention_type for block in heads.blocks} == {ATTENTION_TYPES[1]}
        selected = attention_type or ATTENTION_TYPES[1 if decoder_only else 0]
        check_choice("attention_type", selected, sorted(attention_types))
        for block in heads.attention_blocks:
            if block.attention_type == selected:
                view = AttentionView.of(heads[block.name], batch)
                for detector in detectors:
                    detector.update(view)


def role_map(*roles: Iterable[Role]) -> dict[str, dict[int, list[Role]]]:
    """Groups roles by block and head."""
    by_block: dict[str, dict[int, list[Role]]] = defaultdict(lambda: defaultdict(list))
    for role in (role for group in roles for role in group):
        by_block[role.block][role.head].append(role)
    return {block: dict(heads) for block, heads in by_block.items()}
