"""The tokens of a sentence whose heads have gates: given a sample of them, or summed over all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from pyro.poutine import Trace
from torch import Tensor

from latentheads.distributions.tokens import Tokens
from latentheads.latents.bernoulli_heads.enumeration import SubsetEnumeration, enumerate_subsets
from latentheads.latents.bernoulli_heads.loss_terms import subset_loss_terms
from latentheads.latents.bernoulli_heads.passes import GatedPass
from latentheads.latents.bernoulli_heads.subsets import HeadSubsets, SubsetTable
from latentheads.latents.summed_out import Enumeration, SummedOut


class GatedTokens(Tokens, SummedOut):
    """The tokens of a sentence given sampled gates of its heads.

    Attributes:
        latent_class: The distribution of a block's gates at its own site.

    Args:
        tokens: The distribution given the sample.
        gated_pass: The pass, which sums over all subsets.
        prior: The prior of every block's gates.
    """

    latent_class: ClassVar[type] = HeadSubsets

    def __init__(self, tokens: Tokens, gated_pass: GatedPass, prior: Sequence[SubsetTable]) -> None:
        self.gated_pass, self.prior = gated_pass, prior
        super().__init__(tokens.states, tokens.valid, tokens.output)
        self.smoothing = tokens.smoothing

    def log_evidence(self, tokens: Int[Tensor, "*words target"]) -> Float[Tensor, "*batch"]:
        log_probs = self.gated_pass.log_probs_of_subsets(tokens)
        return SubsetEnumeration(log_probs, self.prior, self.prior, ()).log_evidence

    def enumerate_latents(self, model_trace: Trace, guide_trace: Trace) -> Enumeration:
        return enumerate_subsets(model_trace, guide_trace)

    def loss_terms(
        self, model_trace: Trace, guide_trace: Trace, objective: str, num_samples: int
    ) -> tuple[Tensor, Mapping[str, Tensor], bool]:
        """The terms of a training objective; see :func:`subset_loss_terms`."""
        return subset_loss_terms(model_trace, guide_trace, objective, num_samples)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> GatedTokens:
        batch_shape = torch.Size(batch_shape)
        if batch_shape == self.batch_shape:
            return self
        states = self.states.expand(batch_shape + self.states.shape[-2:])
        tokens = Tokens(states, self.valid, self.output)
        tokens.smoothing = self.smoothing
        return GatedTokens(tokens, self.gated_pass, self.prior)
