"""Means over sentences of what heads do, each head over those in which it speaks."""

from __future__ import annotations

from jaxtyping import Bool, Float, Shaped
from torch import Tensor

__all__ = ["Means", "pairs"]


class Means:
    """Means that add up over batches, by block; NaN of a head that never spoke."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, Tensor] = {}

    def add(
        self,
        block: str,
        values: Float[Tensor, "sentence ..."],
        speaking: Bool[Tensor, "sentence ..."],
        counts: Shaped[Tensor, " sentence"] | None = None,
    ) -> None:
        """Adds the sentences of a batch.

        Args:
            block: The name of a block or of its site.
            values: Sums over what is counted, of every head or pair of heads.
            speaking: True at the heads, or pairs of heads, that speak in a sentence.
            counts: How much is counted in every sentence; 1 when not given.
        """
        each = values.new_ones(len(values)) if counts is None else counts
        number = each.view(-1, *[1] * (values.ndim - 1)) * speaking
        for total, more in (
            (self._sums, values.masked_fill(~speaking, 0.0)),
            (self._counts, number),
        ):
            total[block] = total.get(block, 0) + more.double().sum(0).cpu()

    def result(self) -> dict[str, Float[Tensor, ...]]:
        """The means, by block."""
        return {block: total / self._counts[block] for block, total in self._sums.items()}


def pairs(speaking: Bool[Tensor, "*batch head"]) -> Bool[Tensor, "*batch head head"]:
    """True at two heads that both speak."""
    return speaking.unsqueeze(-1) & speaking.unsqueeze(-2)
