"""Rare-word heads: they attend to the least frequent words of a sentence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.batch import BOS, EOS, PAD
from latentheads.contrib.heads.roles import AttentionView, Detector, Role, argmax_pairs, fraction
from latentheads.contrib.heads.tokens import NO_TOKEN


@dataclass(frozen=True)
class RareWordHeads:
    """Share of queries for which every head attends to the least frequent words.

    Attributes:
        rarest: By block: share to the rarest word; NaN without counted queries.
        two: By block: share to one of the two rarest words.
        chance: By block: probability that a random key is one of the two, where the head is active.
        count: By block: number of counted queries.
        threshold: Minimum of ``two`` for a rare-word head.
        margin: Minimum difference between ``two`` and ``chance``.
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


class RareWordDetector(Detector):
    """Finds heads that attend to one of the two rarest words for at least half of the queries.

    A query counts only if its rarest key is outside the most frequent tokens. The paper gives
    figures and no rule: 66 % to the rarest and 83 % to the two rarest on one corpus, over 50 % to
    the two on another. In a short sentence a random key is often one of the two; hence the margin
    above chance.

    Args:
        ranks: Frequency rank of every token of the key vocabulary, from 0; see
            :func:`frequency_ranks`.
        top: Number of most frequent tokens that do not count as rare.
        threshold: Minimum share of queries.
        margin: Minimum difference to a random key.
    """

    def __init__(
        self,
        ranks: Int[Tensor, " vocab"],
        top: int = 500,
        threshold: float = 0.5,
        margin: float = 0.1,
    ) -> None:
        if not 0 < threshold <= 1:  # in percent none would be found
            raise ValueError(f"threshold must lie in (0, 1], got {threshold}")
        self.ranks, self.top, self.threshold, self.margin = ranks, top, threshold, margin
        self._sums: dict[str, dict[str, Tensor]] = defaultdict(dict)

    def update(self, view: AttentionView) -> None:
        if (view.tokens.keys == NO_TOKEN).any():
            raise ValueError(f"block {view.block!r} attends to sound, which has no rare words")
        pairs = view.active_pairs
        rank = self.ranks.to(pairs.device)[view.tokens.keys][:, None, None]
        ranks = torch.where(pairs, rank, -1)
        first = ranks.amax(-1, keepdim=True)
        second = torch.where(ranks < first, ranks, -1).amax(-1, keepdim=True)
        counted = ((first >= self.top) & (second >= 0)).squeeze(-1)
        two, rarest = ranks >= second, ranks == first
        attended = argmax_pairs(view.weights, pairs)
        sums = self._sums[view.block]
        for name, value in (
            ("rarest", (attended & rarest).any(-1) & counted),
            ("two", (attended & two).any(-1) & counted),
            ("chance", two.sum(-1) / pairs.sum(-1).clamp_min(1) * counted),
            ("count", counted),
        ):
            sums[name] = sums.get(name, 0) + value.sum((0, -1)).cpu()

    def result(self) -> RareWordHeads:
        """The share of queries for which every head attends to rare words."""

        def share(name: str) -> dict[str, Tensor]:
            return {
                block: fraction(sums[name], sums["count"]) for block, sums in self._sums.items()
            }

        return RareWordHeads(
            rarest=share("rarest"),
            two=share("two"),
            chance=share("chance"),
            count={block: sums["count"] for block, sums in self._sums.items()},
            threshold=self.threshold,
            margin=self.margin,
        )


def frequency_ranks(
    tokens: Int[Tensor, " token"], vocab_size: int, special_ids: Sequence[int] = (PAD, BOS, EOS)
) -> Int[Tensor, " vocab"]:
    """Ranks tokens by frequency, from 0; tokens that do not occur come last.

    Args:
        tokens: The token ids of a text, such as all of training.
        vocab_size: Size of the vocabulary.
        special_ids: Tokens that are no words, ranked last. For a network of ``transformers`` these
            are the ``boundary_ids`` of a batch and its padding.
    """
    counts = torch.bincount(tokens.long(), minlength=vocab_size)
    counts[list(special_ids)] = -1
    return counts.argsort(descending=True, stable=True).argsort()  # the inverse of an order
