"""Positional heads: they attend to one relative position, such as the previous word."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.contrib.heads.roles import (
    AttentionView,
    Detector,
    OffsetCounts,
    Role,
    add_counts,
    argmax_pairs,
    count_by_offset,
    fraction,
)
from latentheads.contrib.heads.tokens import NO_TOKEN


@dataclass(frozen=True)
class PositionalHeads:
    """The relative position that every head attends to most often.

    Attributes:
        offset: By block: the position of the key relative to the query.
        share: By block: the share of counted queries; NaN for a head without any.
        threshold: Minimum share of a positional head.
    """

    offset: dict[str, Int[Tensor, " head"]]
    share: dict[str, Float[Tensor, " head"]]
    threshold: float

    @property
    def roles(self) -> list[Role]:
        """The positional heads."""
        return [
            Role(block, head, "positional", f"{int(self.offset[block][head]):+d}", share)
            for block, shares in self.share.items()
            for head, share in enumerate(shares.tolist())
            if share >= self.threshold
        ]


class PositionalDetector(Detector):
    """Finds heads that attend to one relative position for at least 90 % of the queries.

    Queries whose offset lies outside the sentence do not count: every head fails there. The paper
    does not say whether it counts them. In a sentence of eight words this would cost an eighth, so
    in a corpus of short sentences no head could be positional.

    Args:
        threshold: Minimum share of queries.
    """

    def __init__(self, threshold: float = 0.9) -> None:
        if not 0 < threshold <= 1:  # in percent none would be found
            raise ValueError(f"threshold must lie in (0, 1], got {threshold}")
        self.threshold = threshold
        self._hits: dict[str, OffsetCounts] = defaultdict(dict)
        self._possible: dict[str, OffsetCounts] = defaultdict(dict)

    def update(self, view: AttentionView) -> None:
        tokens = view.tokens
        if len({bool((ids == NO_TOKEN).any()) for ids in (tokens.queries, tokens.keys)}) > 1:
            raise ValueError(f"block {view.block!r}: tokens and sound have no common positions")
        pairs = view.active_pairs
        add_counts(self._hits[view.block], count_by_offset(argmax_pairs(view.weights, pairs)))
        add_counts(self._possible[view.block], count_by_offset(pairs))

    def result(self) -> PositionalHeads:
        """The most frequent offset of every head, the smallest of several such, and its share."""
        offset, shares = {}, {}
        for block, hits in self._hits.items():
            offsets = sorted(hits)  # whatever the order of the batches
            count, best = torch.stack([hits[o] for o in offsets]).max(0)
            possible = torch.stack([self._possible[block][o] for o in offsets])
            possible = possible.gather(0, best[None])[0]
            offset[block] = torch.tensor(offsets)[best].where(possible > 0, 0)
            shares[block] = fraction(count, possible)
        return PositionalHeads(offset, shares, self.threshold)
