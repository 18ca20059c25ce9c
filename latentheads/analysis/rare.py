"""Rare-word heads: they point to the least frequent words of a sentence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.analysis.roles import Detector, Role, View, pointed, share
from latentheads.batch import BOS, EOS, PAD

__all__ = ["RareWord", "Rarity", "frequency_ranks"]


@dataclass(frozen=True)
class RareWord:
    """How often every head points to the least frequent words.

    Attributes:
        rarest: By block: to the rarest word; NaN where nothing was asked.
        two: By block: to one of the two rarest.
        chance: By block: how often a random key is one of the two, where the head speaks.
        count: By block: queries that the head was asked.
        threshold: How often a rare-word head points to one of the two rarest.
        margin: By how much it must be better than chance.
    """

    rarest: dict[str, Float[Tensor, " head"]]
    two: dict[str, Float[Tensor, " head"]]
    chance: dict[str, Float[Tensor, " head"]]
    count: dict[str, Int[Tensor, " head"]]
    threshold: float
    margin: float

    @property
    def roles(self) -> list[Role]:
        """The rare-word heads."""
        return [
            Role(block, head, "rare-word", "two rarest", score, chance)
            for block, scores in self.two.items()
            for head, (score, chance) in enumerate(
                zip(scores.tolist(), self.chance[block].tolist(), strict=True)
            )
            if score >= max(self.threshold, chance + self.margin)
        ]


class Rarity(Detector):
    """Finds heads that point to one of the two least frequent words at least half of the time.

    Only queries are asked whose rarest key is outside the most frequent types. The paper gives
    figures and no rule: 66 % to the rarest and 83 % to the two rarest on one corpus, over 50 % to
    the two on another. In a short sentence one of the two is easily met; hence a margin above a
    random key.

    Args:
        ranks: Of the vocabulary of the keys, the place of every type when all are sorted by
            frequency, from 0; see :func:`frequency_ranks`.
        top: How many of the most frequent types do not count as rare.
        threshold: How often a head must point to one of the two.
        margin: By how much it must be better than chance.
    """

    def __init__(
        self,
        ranks: Int[Tensor, " type"],
        top: int = 500,
        threshold: float = 0.5,
        margin: float = 0.1,
    ) -> None:
        if top < 0:
            raise ValueError(f"top must not be negative, got {top}")
        if not 0 < threshold <= 1:
            raise ValueError(f"threshold must lie in (0, 1], got {threshold}")
        self.ranks, self.top, self.threshold, self.margin = ranks, top, threshold, margin
        self._sums: dict[str, dict[str, Tensor]] = defaultdict(dict)

    def look(self, view: View) -> None:
        """Counts the rare words that a block points to."""
        pairs = view.asked
        rank = self.ranks.to(pairs.device)[view.known.keys][:, None, None]
        here = torch.where(pairs, rank, -1)
        first = here.amax(-1, keepdim=True)
        second = torch.where(here < first, here, -1).amax(-1, keepdim=True)
        asked = ((first >= self.top) & (second >= 0)).squeeze(-1)
        two, rarest = pairs & (here >= second), pairs & (here == first)
        points = pointed(view.weights, pairs)
        sums = self._sums[view.block]
        for name, value in (
            ("rarest", (points & rarest).any(-1) & asked),
            ("two", (points & two).any(-1) & asked),
            ("chance", two.sum(-1) / pairs.sum(-1).clamp_min(1) * asked),
            ("count", asked),
        ):
            dims = (0, -1)
            sums[name] = sums.get(name, 0) + value.sum(dims).cpu()

    def result(self) -> RareWord:
        """How often every head points to rare words."""
        shares = {
            name: {block: share(s[name], s["count"]) for block, s in self._sums.items()}
            for name in ("rarest", "two", "chance")
        }
        return RareWord(
            rarest=shares["rarest"],
            two=shares["two"],
            chance=shares["chance"],
            count={block: sums["count"] for block, sums in self._sums.items()},
            threshold=self.threshold,
            margin=self.margin,
        )


def frequency_ranks(
    tokens: Int[Tensor, " token"], types: int, ends: Sequence[int] = (PAD, BOS, EOS)
) -> Int[Tensor, " type"]:
    """The place of every type by frequency, from 0; types that do not occur come last.

    Args:
        tokens: A text, such as all of training.
        types: Size of the vocabulary.
        ends: Types that are no words, which come behind all: of a network of ``transformers`` the
            ``ends`` of a batch, and its padding.
    """
    counts = torch.bincount(tokens.long(), minlength=types)
    counts[list(ends)] = -1
    order = counts.argsort(descending=True, stable=True)
    return torch.empty_like(order).scatter(0, order, torch.arange(types))
