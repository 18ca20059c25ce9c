"""Positional heads: they point to one relative position, such as the word before."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.analysis.roles import Counts, Detector, Role, View, add, by_offset, pointed, share

__all__ = ["Positional", "Positions"]


@dataclass(frozen=True)
class Positional:
    """To which relative position every head points most often.

    Attributes:
        offset: By block: the position, key less query.
        share: By block: how often; NaN of a head that was never asked.
        threshold: From which share on a head is positional.
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


class Positions(Detector):
    """Finds heads that point to one relative position at least 90 % of the time.

    Args:
        threshold: The share.
        edges: Also ask queries whose offset would lead out of the sentence, where every head must
            fail. The paper does not say whether it did; of a sentence of eight words it takes an
            eighth, so that no head of a corpus of short ones could be positional.
    """

    def __init__(self, threshold: float = 0.9, edges: bool = False) -> None:
        if not 0 < threshold <= 1:
            raise ValueError(f"threshold must lie in (0, 1], got {threshold}")
        self.threshold, self.edges = threshold, edges
        self._hits: dict[str, Counts] = defaultdict(dict)
        self._possible: dict[str, Counts] = defaultdict(dict)
        self._asked: dict[str, Tensor] = {}

    def look(self, view: View) -> None:
        """Counts the offsets of a block."""
        asked, number = view.asked, view.asked.any(-1).sum((0, -1)).cpu()
        add(self._hits[view.block], by_offset(pointed(view.weights, asked)))
        add(self._possible[view.block], by_offset(asked))
        self._asked[view.block] = self._asked.get(view.block, 0) + number

    def result(self) -> Positional:
        """The most frequent offset of every head, and its share."""
        offset, shares = {}, {}
        for block, hits in self._hits.items():
            offsets = torch.tensor(list(hits))
            most, place = torch.stack(list(hits.values())).max(0)
            possible = torch.stack([self._possible[block][o] for o in hits])
            possible = possible.gather(0, place[None])[0]
            offset[block] = offsets[place].where(self._asked[block] > 0, 0)
            shares[block] = share(most, self._asked[block] if self.edges else possible)
        return Positional(offset, shares, self.threshold)
