"""A batch for a network of ``transformers``: the one argument of every model and guide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latentheads.batch import Batch

__all__ = ["IGNORE_INDEX", "EncodedBatch", "scored_here_or_later"]

IGNORE_INDEX = -100
"""The label of a place that nothing is predicted of, as ``transformers`` has it."""


@dataclass(frozen=True)
class EncodedBatch(Batch):
    """Sentences as a tokenizer encoded them, and the labels that are predicted of them.

    ``target`` has the label of every scored place, 0 elsewhere; ``source`` the tokens that an
    encoder reads. :meth:`latentheads.pretrained.Pretrained.batch` makes one.

    Attributes:
        inputs: The arguments that the network is called with.
        scored_valid: True where something is predicted.
        read: The tokens that the decoder reads, or the encoder where there is no decoder.
        encoder_valid: The encoder's positions that are no padding; None: all.
        decoder_valid: The same for the decoder; behind an encoder, where no mask names them, the
            positions that some prediction reads.
        decoder_latent: The decoder's positions that some prediction reads; None: all that are real.
        ends: The ids of tokens that only begin or end a sentence.
    """

    inputs: Mapping[str, Tensor] = field(default_factory=dict)
    scored_valid: Bool[Tensor, "batch scored"] | None = None
    read: Int[Tensor, "batch read"] | None = None
    encoder_valid: Bool[Tensor, "batch source"] | None = None
    decoder_valid: Bool[Tensor, "batch read"] | None = None
    decoder_latent: Bool[Tensor, "batch read"] | None = None
    ends: tuple[int, ...] = ()

    @property
    def fed(self) -> Int[Tensor, "batch read"]:
        """What the decoder reads."""
        return _known("fed", self.read)

    @property
    def counted(self) -> Bool[Tensor, "batch scored"]:
        """True where something is predicted: of these labels 0 is one as any other."""
        assert self.scored_valid is not None
        return self.scored_valid

    @property
    def source_valid(self) -> Bool[Tensor, "batch source"]:
        """True at the encoder's real positions."""
        return _known("source_valid", self.encoder_valid)

    @property
    def target_valid(self) -> Bool[Tensor, "batch read"]:
        """True at the decoder's real positions."""
        return _known("target_valid", self.decoder_valid)

    @property
    def target_drawn(self) -> Bool[Tensor, "batch read"]:
        """True at the decoder's positions whose heads are drawn."""
        return self.target_valid if self.decoder_latent is None else self.decoder_latent

    def queries(self, side: str) -> Bool[Tensor, "batch query"] | None:
        """The positions of a side, encoder or decoder, whose heads carry a latent; None: all."""
        if side == "encoder":
            return self.encoder_valid
        return self.decoder_valid if self.decoder_latent is None else self.decoder_latent

    def repeated(self, num_samples: int) -> EncodedBatch:
        """Refuses: a network of ``transformers`` does not decode under several draws at once."""
        raise ValueError("the batch of a pre-trained network cannot be repeated: draw one by one")

    def _map(self, function: Callable[[Tensor], Tensor]) -> EncodedBatch:
        inputs = {name: function(value) for name, value in self.inputs.items()}
        return replace(cast(EncodedBatch, super()._map(function)), inputs=inputs)


def _known(name: str, value: Tensor | None) -> Tensor:
    if value is None:
        raise ValueError(
            f"{name} is not known of this batch: measures of attention are of tokens, and it has "
            "no input_ids of that side"
        )
    return value


def scored_here_or_later(scored: Bool[Tensor, "batch place"]) -> Bool[Tensor, "batch place"]:
    """True where something is scored here or later: what a causal decoder reads for it."""
    return scored.flip(-1).to(torch.uint8).cummax(-1).values.flip(-1).bool()
