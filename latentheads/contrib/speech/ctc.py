"""CTC, an auxiliary loss of a speech encoder.

Connectionist temporal classification, Graves et al. 2006, https://doi.org/10.1145/1143844.1143891,
joint with attention as in Kim et al. 2017, https://arxiv.org/abs/1609.06773. It is added to the
training loss and is never part of a reported bound.
"""

from __future__ import annotations

from itertools import groupby
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.batch import EOS, PAD
from latentheads.layers.numeric import full_precision
from latentheads.models.front_end import EncoderLoss


class CTC(EncoderLoss):
    """Predicts a token or blank at each position of an encoder. PAD is the blank.

    Attributes:
        synchronises: Whether a step waits for a GPU.
    """

    synchronises: ClassVar[bool] = True

    def __init__(self, width: int, vocab_size: int, weight: float) -> None:
        super().__init__(weight)
        self.head = nn.Linear(width, vocab_size)

    def get_output_embeddings(self) -> nn.Linear:
        """The output layer, as networks of ``transformers`` name theirs: Muon leaves it out."""
        return self.head

    def forward(
        self,
        memory: Float[Tensor, "*batch position dim"],
        valid: Bool[Tensor, "batch position"],
        target: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "*batch"]:
        """Computes the CTC loss of each text without EOS, in nats; 0 if it has too few positions.

        A text needs a position for each token, and one more between two equal tokens.
        """
        is_word = (target != PAD) & (target != EOS)
        target = target.masked_fill(~is_word, PAD)
        log_probs = torch.log_softmax(full_precision(self.head(memory)), -1)
        num_samples = log_probs.flatten(0, -3).shape[0] // len(target)  # samples are in front
        nats = F.ctc_loss(  # waits for a GPU, since PyTorch reads both lengths on the CPU
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
        """The most probable token of every position, without repetitions and blanks."""
        likeliest = self.head(memory).argmax(-1).tolist()
        lengths = valid.sum(-1).tolist()
        return [
            [token for token, _ in groupby(row[:length]) if token != PAD]
            for row, length in zip(likeliest, lengths, strict=True)
        ]
