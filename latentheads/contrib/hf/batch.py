"""A batch for a network of ``transformers``: the argument of models and guides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latentheads.batch import Batch

IGNORE_INDEX = -100
"""The label of positions without a prediction, as in ``transformers``."""


@dataclass(frozen=True)
class EncodedBatch(Batch):
    """Sentences as a tokenizer encodes them, and the labels to predict.

    ``target`` has the label of every scored position, 0 elsewhere; ``source`` has the tokens of the
    encoder. :meth:`latentheads.contrib.hf.Pretrained.batch` makes a batch.

    Attributes:
        inputs: The arguments of the network.
        scored_valid: True where a label is predicted.
        input_ids: The input tokens of the decoder, or of the encoder in an encoder-only network.
        encoder_valid: The padding mask of the encoder, True at real tokens; None: no padding.
        decoder_valid: The padding mask of the decoder; in an encoder-decoder without a mask, the
            positions that some prediction depends on.
        decoder_latent: The decoder's positions that some prediction depends on; None: all real
            ones.
        boundary_ids: The ids of tokens that only begin or end a sentence.
    """

    inputs: Mapping[str, Tensor] = field(default_factory=dict)
    scored_valid: Bool[Tensor, "batch scored"] | None = None
    input_ids: Int[Tensor, "batch input"] | None = None
    encoder_valid: Bool[Tensor, "batch source"] | None = None
    decoder_valid: Bool[Tensor, "batch input"] | None = None
    decoder_latent: Bool[Tensor, "batch input"] | None = None
    boundary_ids: tuple[int, ...] = ()

    @property
    def decoder_input(self) -> Int[Tensor, "batch input"]:
        return _require("decoder_input", self.input_ids)

    @property
    def scored_mask(self) -> Bool[Tensor, "batch scored"]:
        """True where a label is predicted: here 0 is an ordinary label."""
        assert self.scored_valid is not None
        return self.scored_valid

    @property
    def source_valid(self) -> Bool[Tensor, "batch source"]:
        return _require("source_valid", self.encoder_valid)

    @property
    def target_valid(self) -> Bool[Tensor, "batch input"]:
        return _require("target_valid", self.decoder_valid)

    @property
    def target_latent(self) -> Bool[Tensor, "batch input"]:
        return self.target_valid if self.decoder_latent is None else self.decoder_latent

    def queries(self, side: str) -> Bool[Tensor, "batch query"] | None:
        """The positions of a side, encoder or decoder, whose heads carry a latent; None: all."""
        if side == "encoder":
            return self.encoder_valid
        return self.decoder_valid if self.decoder_latent is None else self.decoder_latent

    def repeated(self, num_samples: int) -> EncodedBatch:
        """Raises an error: a network of ``transformers`` cannot decode several samples at once."""
        raise ValueError(
            "the batch of a pre-trained network cannot be repeated: take one sample at a time"
        )

    def _map(self, function: Callable[[Tensor], Tensor]) -> EncodedBatch:
        inputs = {name: function(value) for name, value in self.inputs.items()}
        return replace(cast(EncodedBatch, super()._map(function)), inputs=inputs)


def _require(name: str, value: Tensor | None) -> Tensor:
    if value is None:
        raise ValueError(
            f"{name} is not known of this batch: measures of attention are of tokens, or of "
            "Whisper's sound, and it has no input_ids of that side"
        )
    return value


def scored_here_or_later(scored: Bool[Tensor, "batch scored"]) -> Bool[Tensor, "batch scored"]:
    """True if this or a later position is scored: the inputs that a causal decoder needs."""
    return scored.flip(-1).to(torch.uint8).cummax(-1).values.flip(-1).bool()
