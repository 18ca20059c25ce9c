"""CTC, a second likelihood of the text that trains an encoder to hear in order.

Connectionist temporal classification, Graves et al. 2006, https://doi.org/10.1145/1143844.1143891,
beside attention as in Kim et al. 2017, https://arxiv.org/abs/1609.06773. It is added to what is
trained and is never a part of a bound: it says nothing of the model whose bound is reported.
"""

from __future__ import annotations

from itertools import groupby

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.batch import EOS, PAD
from latentheads.layers.numeric import full_precision

__all__ = ["CTC"]


class CTC(nn.Module):
    """Says at each position of an encoder which token is heard there, or none.

    No token is PAD, which therefore says that none is heard.

    Args:
        width: Of the encoder's states.
        types: Of the target's vocabulary.
        weight: Factor of its nats beside those of the bound, while training.
    """

    def __init__(self, width: int, vocab_size: int, weight: float) -> None:
        super().__init__()
        self.head = nn.Linear(width, vocab_size)
        self.weight = weight

    def forward(
        self,
        memory: Float[Tensor, "*batch position dim"],
        valid: Bool[Tensor, "batch position"],
        target: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "*batch"]:
        """The nats of each text, its end left out; 0 of one for which there are too few positions.

        A text needs a position for each token, and one between two tokens that are alike.

        Args:
            memory: The encoder's states.
            valid: The positions that are no padding.
            target: The texts, each ended by EOS, padded.
        """
        is_word = (target != PAD) & (target != EOS)
        target = target.masked_fill(~is_word, PAD)
        log_probs = torch.log_softmax(full_precision(self.head(memory)), -1)
        num_samples = log_probs.flatten(0, -3).shape[0] // len(
            target
        )  # draws stand before the sentences
        nats = F.ctc_loss(
            log_probs.flatten(0, -3).transpose(0, 1),
            target.repeat(num_samples, 1),
            valid.sum(-1).repeat(num_samples),
            is_word.sum(-1).repeat(num_samples),
            blank=PAD,
            reduction="none",
            zero_infinity=True,
        )
        return nats.view(log_probs.shape[:-2])

    @torch.no_grad()
    def greedy_decode(
        self, memory: Float[Tensor, "batch position dim"], valid: Bool[Tensor, "batch position"]
    ) -> list[list[int]]:
        """The likeliest token of every position, repetitions and silence left out."""
        likeliest = self.head(memory).argmax(-1).tolist()
        lengths = valid.sum(-1).tolist()
        return [
            [token for token, _ in groupby(row[:length]) if token != PAD]
            for row, length in zip(likeliest, lengths, strict=True)
        ]
