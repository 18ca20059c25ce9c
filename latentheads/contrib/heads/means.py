"""Means over sentences, for each head over the sentences in which it is active."""

from __future__ import annotations

from jaxtyping import Bool, Float, Shaped
from torch import Tensor


class Means:
    """Running means over batches, by block; NaN for a head that was never active."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, Tensor] = {}

    def add(
        self,
        block: str,
        values: Float[Tensor, "sentence ..."],
        active: Bool[Tensor, "sentence ..."],
        counts: Shaped[Tensor, " sentence"] | None = None,
    ) -> None:
        """Adds the sentences of a batch.

        Args:
            block: The name of a block or of its site.
            values: Sums over each sentence, for every head or pair of heads.
            active: True at heads, or pairs of heads, that are active in a sentence.
            counts: Number of summands of every sentence; by default 1.
        """
        weights = values.new_ones(len(values)) if counts is None else counts
        number = weights.view(-1, *[1] * (values.ndim - 1)) * active
        for total, batch_sum in (
            (self._sums, values.masked_fill(~active, 0.0)),
            (self._counts, number),
        ):
            total[block] = total.get(block, 0) + batch_sum.double().sum(0).cpu()

    def result(self) -> dict[str, Float[Tensor, ...]]:
        """The means, by block."""
        return {block: total / self._counts[block] for block, total in self._sums.items()}


def active_pairs(active: Bool[Tensor, "*batch head"]) -> Bool[Tensor, "*batch head head"]:
    """True at pairs of heads that are both active."""
    return active.unsqueeze(-1) & active.unsqueeze(-2)
