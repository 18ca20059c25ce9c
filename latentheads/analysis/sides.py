"""The tokens at the queries and keys of a chain, and which of them count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latentheads.batch import Batch
from latentheads.checks import check_word
from latentheads.names import ATTENTION_TYPES

__all__ = ["EXCLUDE", "Exclude", "Sides", "sides"]

Exclude = Literal["both", "key", "query", "none"]
EXCLUDE = get_args(Exclude)
"""Where tokens that only begin or end a sentence do not count."""


@dataclass(frozen=True)
class Sides:
    """The tokens a chain reads from and into. A decoder reads its target one place shifted.

    Attributes:
        queries: The token read at each query.
        keys: The token at each key.
        real_queries: True at queries that are no padding, nor context that is only read.
        real_keys: True at keys that are no padding.
        ends: The ids of tokens that only begin or end a sentence.
    """

    queries: Int[Tensor, "batch query"]
    keys: Int[Tensor, "batch key"]
    real_queries: Bool[Tensor, "batch query"]
    real_keys: Bool[Tensor, "batch key"]
    ends: tuple[int, ...]

    def asking(self, exclude: str = "both") -> Bool[Tensor, "batch query"]:
        """The queries that count."""
        return self.real_queries & self._kept(self.queries, "query", exclude)

    def answering(self, exclude: str = "both") -> Bool[Tensor, "batch key"]:
        """The keys that count."""
        return self.real_keys & self._kept(self.keys, "key", exclude)

    def _kept(self, tokens: Tensor, side: str, exclude: str) -> Tensor:
        check_word("exclude", exclude, EXCLUDE)
        special = torch.zeros_like(tokens, dtype=torch.bool)
        for end in self.ends:  # a list of them would be copied to the device and waited for
            special = special | (tokens == end)
        return ~special if exclude in ("both", side) else torch.ones_like(special)


def sides(batch: Batch, chain: str) -> Sides:
    """The tokens that the blocks of a chain read.

    Raises:
        ValueError: There is no such chain, or the batch lacks its side.
    """
    check_word("chain", chain, ATTENTION_TYPES)
    if chain == "decoder-self":
        return Sides(batch.fed, batch.fed, batch.target_drawn, batch.target_valid, batch.ends)
    valid = batch.source_valid
    if batch.source is None:
        raise ValueError(
            "measures of attention are of tokens, and this batch has no input_ids that the encoder "
            "reads"
        )
    if chain == "encoder-self":
        return Sides(batch.source, batch.source, valid, valid, batch.ends)
    return Sides(batch.fed, batch.source, batch.target_drawn, valid, batch.ends)
