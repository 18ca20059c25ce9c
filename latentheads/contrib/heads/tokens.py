"""The tokens at the queries and keys of an attention type, and which of them count."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latentheads.batch import Batch
from latentheads.checks import check_choice
from latentheads.names import ATTENTION_TYPES

Exclude = Literal["both", "key", "query", "none"]
EXCLUDE = get_args(Exclude)
"""Where BOS and EOS do not count."""

NO_TOKEN = -1
"""Stands at positions of sound."""


@dataclass(frozen=True)
class AttentionTokens:
    """The tokens at queries and keys. A decoder's input is its target shifted by one.

    Attributes:
        queries: The input token at each query; of sound ``NO_TOKEN``.
        keys: The input token at each key; of sound ``NO_TOKEN``.
        valid_queries: True at queries that are neither padding nor context without a loss.
        valid_keys: True at keys that are no padding.
        boundary_ids: Ids of tokens that only begin or end a sentence.
    """

    queries: Int[Tensor, "batch query"]
    keys: Int[Tensor, "batch key"]
    valid_queries: Bool[Tensor, "batch query"]
    valid_keys: Bool[Tensor, "batch key"]
    boundary_ids: tuple[int, ...]

    def counted_queries(self, exclude: str = "both") -> Bool[Tensor, "batch query"]:
        """The queries that count."""
        return self.valid_queries & self._is_counted(self.queries, "query", exclude)

    def counted_keys(self, exclude: str = "both") -> Bool[Tensor, "batch key"]:
        """The keys that count."""
        return self.valid_keys & self._is_counted(self.keys, "key", exclude)

    def _is_counted(self, tokens: Tensor, side: str, exclude: str) -> Tensor:
        check_choice("exclude", exclude, EXCLUDE)
        is_special = is_boundary(tokens, self.boundary_ids)
        return ~is_special if exclude in ("both", side) else torch.ones_like(is_special)


def is_boundary(tokens: Int[Tensor, "*token"], ids: Iterable[int]) -> Bool[Tensor, "*token"]:
    """True at tokens that only begin or end a sentence."""
    is_special = torch.zeros_like(tokens, dtype=torch.bool)
    for special_id in ids:  # a tensor of ids would need a copy to the device
        is_special = is_special | (tokens == special_id)
    return is_special


def attention_tokens(batch: Batch, attention_type: str) -> AttentionTokens:
    """Returns the input tokens of the blocks of an attention type.

    Raises:
        ValueError: There is no such attention type, or the batch has no source.
    """
    check_choice("attention_type", attention_type, ATTENTION_TYPES)
    if attention_type == "decoder-self":
        return AttentionTokens(
            batch.decoder_input,
            batch.decoder_input,
            batch.target_latent,
            batch.target_valid,
            batch.boundary_ids,
        )
    valid = batch.source_valid
    source = torch.full_like(valid, NO_TOKEN, dtype=torch.long)
    if batch.source is not None:
        source = batch.source
    if attention_type == "encoder-self":
        return AttentionTokens(source, source, valid, valid, batch.boundary_ids)
    return AttentionTokens(
        batch.decoder_input, source, batch.target_latent, valid, batch.boundary_ids
    )
