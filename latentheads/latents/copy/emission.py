r"""Emissions of copy heads: the log-probability of every token for each choice of the head.

With the token :math:`w_s` at position :math:`s`, the distribution :math:`p_g` of the network and
the slip :math:`\epsilon`,

.. math:: p(y \mid \mathrm{generate}) = p_g(y), \qquad
          p(y \mid s) = (1 - \epsilon)\, [w_s = y] + \epsilon\, p_g(y).

One softmax over the vocabulary serves all positions. With independent choices

.. math:: p(y) = a\, p_g(y) + c, \qquad a = \epsilon + (1 - \epsilon)\, \pi_{\mathrm{generate}},
          \qquad c = (1 - \epsilon) \sum_{s: w_s = y} \pi_s,

where a and c do not depend on the softmax.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentheads.latents.alignments.aligner import AlignedTokens, AlignmentPass
from latentheads.latents.alignments.distribution import NOWHERE, CategoricalParameters
from latentheads.latents.alignments.exact import ExactInference, IndependentWords
from latentheads.layers.numeric import full_precision, log_softmax
from latentheads.layers.output import LinearOutput, RowOutput, linear_log_prob

GENERATE = -1
"""Stands for the token of key 0, which is not a position: generate."""


def generated_log_prob(
    output: RowOutput,
    states: Float[Tensor, "*batch target dim"],
    tokens: Int[Tensor, "*batch target"],
    smoothing: float = 0.0,
) -> Float[Tensor, "*batch target"]:
    """Log-probability of every token under the network's own distribution."""
    if not isinstance(output, LinearOutput):
        return output.log_prob(states, tokens, smoothing)
    # its gradient is weighted by the posterior, which differs from token to token
    flat = states.flatten(0, -2), output.weight, tokens.flatten(), smoothing
    return linear_log_prob(*flat, uniform_gradient=False).view(tokens.shape)


def copy_emissions(
    generated: Float[Tensor, "*batch target"],
    matches: Bool[Tensor, "*batch target key"],
    slip: float,
) -> Float[Tensor, "*batch target choice"]:
    """Log-probability of every token for each choice; choice 0 is to generate it.

    Args:
        generated: Its log-probability under the network.
        matches: Whether the token at each position equals it.
        slip: The probability that a copied token is generated after all.
    """
    slipped = generated + (math.log(slip) if slip else -math.inf)
    copied = torch.logaddexp(slipped, torch.full_like(slipped, math.log1p(-slip)))
    of_keys = torch.where(matches, copied[..., None], slipped[..., None])
    return torch.cat([generated[..., None], of_keys], -1)


@dataclass(frozen=True)
class IndependentCopies(IndependentWords):
    """Exact inference where choices are independent of each other.

    Attributes:
        token_log_probs: Exact log-probability of every token, 0 at padding.
    """

    token_log_probs: Float[Tensor, "*batch target"]

    @property
    def word_log_evidence(self) -> Float[Tensor, "*batch target"]:  # type: ignore[override]
        """Exact log-probability of every token, 0 at padding."""
        return self.token_log_probs


@dataclass(frozen=True)
class CopyPass(AlignmentPass):
    """One pass through a copy head; key 0 of the memory stands for generate.

    Attributes:
        slip: The probability that a copied token is generated after all.
    """

    slip: float = 0.01

    def matches(self, tokens: Int[Tensor, "*words target"]) -> Bool[Tensor, "*out target key"]:
        """Whether each token equals that at each position, key 0 left out."""
        assert self.hidden.tokens is not None
        return tokens[..., None] == self.hidden.tokens[..., None, 1:]

    def evidence(
        self, tokens: Int[Tensor, "*words target"], rows: Float[Tensor, "*words target dim"]
    ) -> list[Float[Tensor, "*out target key"]]:
        r"""The log-likelihood of each choice less that of generate, as far as tokens determine it.

        :math:`\log \epsilon` where the position has another token. Where it has the same one, the
        ratio :math:`\epsilon + (1 - \epsilon) / p_g(y)` needs the softmax; here
        :math:`(1 - \epsilon) / \epsilon` stands for it.
        """
        matches, dtype = self.matches(tokens), full_precision(self.hidden.states).dtype
        other = torch.full(matches.shape, math.log(self.slip), dtype=dtype, device=matches.device)
        ratios = other.masked_fill(matches, math.log1p(-self.slip) - math.log(self.slip))
        return [torch.nn.functional.pad(ratios, (1, 0))]

    def emission_log_probs(
        self, tokens: Int[Tensor, "*words target"], posterior: object = None
    ) -> Float[Tensor, "*batch target choice"]:
        """Log-probability of every token for all choices."""
        states = self.hidden.states
        words = tokens.expand(states.shape[:-1])
        generated = generated_log_prob(self.output, states, words, self.smoothing)
        matches = self.matches(tokens).expand(*states.shape[:-1], -1)
        return copy_emissions(generated, matches, self.slip)

    def infer(
        self,
        tokens: Int[Tensor, "*words target"],
        posterior: Sequence[CategoricalParameters] | None = None,
    ) -> ExactInference:
        """Exact inference over all choices; with one pass of the output layer, for any loss."""
        if self.priors[0].chained:
            return super().infer(tokens, posterior)
        log_prior = log_softmax(self.priors[0].scores[..., 0, :])
        matches = self.matches(tokens).expand(log_prior[..., 1:].shape)
        copied = log_prior[..., 1:].masked_fill(~matches, NOWHERE).logsumexp(-1)
        kept = math.log1p(-self.slip)
        log_slip = torch.full_like(copied, math.log(self.slip))
        log_scale = torch.logaddexp(log_slip, log_prior[..., 0] + kept)
        log_mixture, generated = self._log_mixture(tokens, copied + kept - log_scale)
        emissions = copy_emissions(generated, matches, self.slip)
        valid = self.valid.expand(log_prior.shape[:-1])
        log_probs = (log_scale + log_mixture) * valid
        return IndependentCopies(self.priors, emissions, valid, log_probs)

    def _log_mixture(
        self, tokens: Int[Tensor, "*words target"], log_constant: Float[Tensor, "*batch target"]
    ) -> tuple[Float[Tensor, "*batch target"], Float[Tensor, "*batch target"]]:
        """The log of the network's probability plus a constant, and that of the network's alone."""
        states = self.hidden.states
        tokens = tokens.expand(states.shape[:-1])
        if states.device.type != "cpu":  # indexing by a mask would synchronise
            return self.output.log_mixture(states, tokens, log_constant, self.smoothing)
        # padding has no gradient: without it the gradient is the same at all positions
        valid = self.valid.expand(tokens.shape)
        results = self.output.log_mixture(
            states[valid], tokens[valid], log_constant[valid], self.smoothing
        )
        mixture, generated = (
            value.new_zeros(tokens.shape).masked_scatter(valid, value) for value in results
        )
        return mixture, generated

    def soft_log_prob(self, tokens: Int[Tensor, "*words target"]) -> Float[Tensor, "*batch target"]:
        """Log-probability of every token given the tokens before: the sum over all choices."""
        return self.exact_inference(tokens).word_log_evidence


class CopiedTokens(AlignedTokens):
    """The tokens of a sentence given sampled choices.

    Args:
        alignment_pass: The pass.
        alignments: The choice at every token.
    """

    alignment_pass: CopyPass

    @property
    def logits(self) -> Float[Tensor, "*batch token vocab"]:
        """Log-probabilities of the vocabulary given the choices."""
        log_probs = full_precision(self.output(self.states)).log_softmax(-1)
        choice, key_tokens = self._chosen_tokens()
        log_probs = log_probs.expand(*choice.shape, -1)
        is_copied = (choice > 0)[..., None]
        slipped = log_probs + math.log(self.alignment_pass.slip)
        copied = torch.full_like(log_probs, -torch.inf).scatter(
            -1, key_tokens[..., None], math.log1p(-self.alignment_pass.slip)
        )
        return torch.where(is_copied, torch.logaddexp(slipped, copied), log_probs)

    def _chosen_tokens(self) -> tuple[Tensor, Tensor]:
        """The choice at every token, and the token there; 0 where it is generated."""
        choice = self.alignments[..., 0]
        key_tokens = self.alignment_pass.hidden.tokens
        assert key_tokens is not None
        tokens = key_tokens.expand(*choice.shape[:-1], -1).gather(-1, choice)
        return choice, tokens.clamp(min=0)

    def token_log_prob(self, value: Int[Tensor, "*tokens token"]) -> Float[Tensor, "*batch token"]:
        """Log-probability of every token given the choices, 0 at padding."""
        enabled, dtype = self.autocast
        with torch.autocast(value.device.type, dtype, enabled):
            emissions = self.alignment_pass.emission_log_probs(value)
        choice = self.alignments[..., 0]
        table = emissions.expand(*choice.shape, -1)
        return table.gather(-1, choice[..., None])[..., 0] * self.valid
