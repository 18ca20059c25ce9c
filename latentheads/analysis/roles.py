"""Roles of heads after Voita et al. (2019): positional, syntactic, rare-word.

https://arxiv.org/abs/1905.09418

A head is said to *point* from a query to the key of its largest weight. BOS, EOS and padding
neither point nor are pointed at, a query that can read a single key is not asked, and a head is
asked only in sentences in which it speaks. Detectors are shown the heads of a chain batch by batch,
and then tell what they found: a new one is a subclass of :class:`Detector`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from latentheads.analysis.record import Heads, readings
from latentheads.analysis.sides import Sides, sides
from latentheads.batch import Batch
from latentheads.checks import check_word
from latentheads.corpora import Part
from latentheads.guide import ModelGuide
from latentheads.model import HeadModel
from latentheads.names import ATTENTION_TYPES

__all__ = [
    "Counts",
    "Detector",
    "Role",
    "View",
    "add",
    "by_offset",
    "detect",
    "free",
    "pointed",
    "role_map",
    "share",
]

Counts = dict[int, Tensor]
"""By offset."""


@dataclass(frozen=True)
class Role:
    """A head that plays a role.

    Attributes:
        block: Its block.
        head: Its place in the block.
        role: What it does: ``positional``, ``syntactic`` or ``rare-word``.
        detail: What exactly: an offset such as ``-1``, or a relation and its direction.
        score: How often it does.
        baseline: How often the baseline does; None where there is no baseline.
    """

    block: str
    head: int
    role: str
    detail: str
    score: float
    baseline: float | None = None


@dataclass(frozen=True)
class View:
    """The heads of a block on a batch, and what is known of the tokens.

    Attributes:
        block: Name of the block.
        weights: Its weights.
        known: The tokens at queries and keys.
        places: Each sentence's place in its corpus.
        pairs: True where a query that is asked may point at a key.
        speaks: True at the heads that speak in a sentence.
    """

    block: str
    weights: Float[Tensor, "batch head query key"]
    known: Sides
    places: Sequence[int]
    pairs: Bool[Tensor, "batch query key"]
    speaks: Bool[Tensor, "batch head"]

    @classmethod
    def of(cls, heads: Heads, batch: Batch) -> View:
        """Views the heads of a block."""
        known = sides(batch, heads.block.chain)
        pairs = known.asking()[:, :, None] & known.answering()[:, None] & heads.readable
        places = batch.sentences.tolist()
        return cls(heads.block.name, heads.weights, known, places, free(pairs), heads.speaks)

    @property
    def asked(self) -> Bool[Tensor, "batch head query key"]:
        """The pairs, of heads that speak alone."""
        return self.pairs.unsqueeze(1) & self.speaks[..., None, None]


def free(pairs: Bool[Tensor, "batch query key"]) -> Bool[Tensor, "batch query key"]:
    """Drops the queries that have no choice."""
    return pairs & (pairs.sum(-1, keepdim=True) > 1)


def pointed(
    weights: Float[Tensor, "batch head query key"], pairs: Bool[Tensor, "batch head query key"]
) -> Bool[Tensor, "batch head query key"]:
    """True at the key of the largest weight among the pairs; the first of equals."""
    best = weights.masked_fill(~pairs, -1.0).argmax(-1, keepdim=True)
    return torch.zeros_like(weights, dtype=torch.bool).scatter(-1, best, True) & pairs


def by_offset(pairs: Bool[Tensor, "batch *more query key"]) -> Counts:
    """How many pairs there are at each offset of the key from the query."""
    *_, queries, keys = pairs.shape
    offset = torch.arange(keys) - torch.arange(queries)[:, None]
    counts = pairs.sum(0).cpu().flatten(-2)
    empty = counts.new_zeros(*counts.shape[:-1], queries + keys - 1)
    summed = empty.index_add(-1, offset.flatten() + queries - 1, counts)
    return {place - queries + 1: column for place, column in enumerate(summed.unbind(-1))}


def add(total: Counts, more: Counts) -> None:
    """Adds counts to a total."""
    for offset, count in more.items():
        total[offset] = total.get(offset, 0) + count


def share(part: Tensor, whole: Tensor | int) -> Tensor:
    """A quotient, NaN where there is nothing."""
    return part.double() / whole


class Detector(ABC):
    """Looks at the heads of a chain, a block and a batch at a time."""

    @abstractmethod
    def look(self, view: View) -> None:
        """Takes the heads of a block on one more batch into account."""


def detect(
    model: HeadModel,
    parts: Part | Iterable[Batch],
    detectors: Sequence[Detector],
    chain: str | None = None,
    guide: ModelGuide | None = None,
    seed: int = 0,
) -> None:
    """Shows the heads of a chain to detectors, which then know their results.

    Args:
        model: The model.
        parts: A part of a corpus, or batches, each sentence once.
        detectors: The detectors.
        chain: The chain; the encoder's of a model that has one, else the decoder's own.
        guide: Draws the heads from this guide; without one they stand at their plug-in value.
        seed: Of the guide's noise.
    """
    for batch, heads in readings(model, parts, guide, seed):
        chains = {block.chain for block in heads.attending}
        if not chains:
            raise ValueError("roles are of heads with weights: this model has no attention")
        alone = {block.chain for block in heads.blocks} == {ATTENTION_TYPES[1]}
        shown = chain or ATTENTION_TYPES[1 if alone else 0]
        check_word("chain", shown, sorted(chains))
        for block in heads.attending:
            if block.chain == shown:
                view = View.of(heads[block.name], batch)
                for detector in detectors:
                    detector.look(view)


def role_map(*roles: Iterable[Role]) -> dict[str, dict[int, list[Role]]]:
    """Sorts roles by block and head."""
    found: dict[str, dict[int, list[Role]]] = defaultdict(lambda: defaultdict(list))
    for role in (role for some in roles for role in some):
        found[role.block][role.head].append(role)
    return {block: dict(heads) for block, heads in found.items()}
