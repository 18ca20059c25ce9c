r"""Emissions of copy heads: the log-probability of every token for each choice of the head.

With the token :math:`w_s` at position :math:`s`, the distribution :math:`p_g` of the network and
the slip :math:`\epsilon_m` of copy head :math:`m`,

.. math:: p(y \mid \mathrm{generate}) = p_g(y), \qquad
          p(y \mid m, s) = (1 - \epsilon_m)\, [w_s = y] + \epsilon_m\, p_g(y).

One softmax over the vocabulary serves all positions. With independent choices

.. math:: p(y) = a\, p_g(y) + c, \qquad
          a = \pi_{\mathrm{generate}} + \sum_{m, s} \epsilon_m\, \pi_{ms}, \qquad
          c = \sum_{m, s: w_s = y} (1 - \epsilon_m)\, \pi_{ms},

where a and c do not depend on the softmax. A position of a lexicon head has a softmax of its own,
:math:`p(y \mid s) = \mathrm{softmax}(E (h_t + u_s))[y]`.

Choices are numbered by position and head: 0 generates, and the position of key k, counted from 1,
is choice :math:`1 + (k - 1) H + m` of the heads :math:`m = 0, \dots, H - 1`, the lexicon head last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from latentheads.latents.alignments.distribution import NOWHERE, CategoricalParameters
from latentheads.latents.alignments.exact import ExactInference, IndependentWords
from latentheads.latents.alignments.passes import AlignedTokens, AlignmentPass
from latentheads.layers.linear_log_prob import linear_log_prob
from latentheads.layers.linear_output import LinearOutput
from latentheads.layers.numeric import full_precision, log_softmax
from latentheads.layers.output import ExpectedGradient, RowOutput

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
        return output.log_prob(states, tokens, smoothing, expected_gradient=None)
    # its gradient is weighted by the posterior, which differs from token to token
    flat = states.flatten(0, -2), output.weight, tokens.flatten(), smoothing
    return linear_log_prob(*flat, expected_gradient=None).view(tokens.shape)


@dataclass(frozen=True)
class Slip:
    """The probability that a copied token is generated after all.

    Attributes:
        log: Its logarithm, for each copy head.
        log_kept: That of the probability that the token is copied.
        is_shared: Whether it is the same for all copy heads.
    """

    log: Float[Tensor, " head"]
    log_kept: Float[Tensor, " head"]
    is_shared: bool = True

    @classmethod
    def of(cls, slip: float, heads: int, like: Tensor) -> Slip:
        """A fixed slip of some heads, in float32 or wider on the device of a tensor."""
        wide = full_precision(like)
        log, log_kept = math.log(slip), math.log1p(-slip)
        return cls(wide.new_full((heads,), log), wide.new_full((heads,), log_kept))

    @classmethod
    def of_logits(cls, logits: Float[Tensor, " head"]) -> Slip:
        """The slip of each head from its log-odds."""
        wide = full_precision(logits)
        return cls(F.logsigmoid(wide), F.logsigmoid(-wide), len(logits) == 1)


def copy_emissions(
    generated: Float[Tensor, "*batch target"],
    matches: Bool[Tensor, "*batch target position"],
    slip: Slip,
    aligned: Float[Tensor, "*batch target position"] | None = None,
) -> Float[Tensor, "*batch target choice"]:
    """Log-probability of every token for each choice; choice 0 is to generate it.

    Args:
        generated: Its log-probability under the network.
        matches: Whether the token at each position equals it.
        slip: That of each copy head.
        aligned: Its log-probability for each position of a lexicon head; None: there is none.
    """
    slipped = generated[..., None] + slip.log
    copied = torch.logaddexp(slipped, slip.log_kept.expand_as(slipped))
    of_heads = torch.where(matches[..., None], copied[..., None, :], slipped[..., None, :])
    if aligned is not None:
        of_heads = torch.cat([of_heads, aligned[..., None]], -1)
    return torch.cat([generated[..., None], of_heads.flatten(-2)], -1)


@dataclass(frozen=True)
class IndependentCopies(IndependentWords):
    """Exact inference where choices are independent of each other.

    Attributes:
        token_log_probs: Exact log-probability of every token, 0 at padding.
    """

    token_log_probs: Float[Tensor, "*batch target"]

    @property
    def word_log_evidence(self) -> Float[Tensor, "*batch target"]:  # type: ignore[override]
        return self.token_log_probs


@dataclass(frozen=True)
class CopyPass(AlignmentPass):
    """One pass through copy heads, whose memory has a row for each choice.

    Attributes:
        vectors: Those of a lexicon head, if there is one: the vector of every key, 0 for generate.
        slip: That of each copy head.
    """

    slip: Slip = field(kw_only=True)

    @property
    def heads(self) -> int:
        """The heads that point at positions: those that copy, and a lexicon head."""
        return len(self.slip.log) + len(self.vectors)

    def aligned_states(
        self, alignments: Int[Tensor, "*sample target head"]
    ) -> Float[Tensor, "*out target dim"]:
        """The states plus the vectors of the positions that a lexicon head points at."""
        is_aligned = alignments % self.heads == 0  # choice 0 too, whose vector is 0
        states = super().aligned_states(torch.where(is_aligned, alignments // self.heads, 0))
        # without a lexicon head they are the same for all samples, each of which counts
        return states.expand(torch.broadcast_shapes(states.shape, (*alignments.shape[:-1], 1)))

    def matches(self, tokens: Int[Tensor, "*words target"]) -> Bool[Tensor, "*out target position"]:
        """Whether each token equals that at each position."""
        assert self.hidden.tokens is not None
        return tokens[..., None] == self.hidden.tokens[..., None, 1 :: self.heads]

    def evidence(
        self, tokens: Int[Tensor, "*words target"], rows: Float[Tensor, "*words target dim"]
    ) -> list[Float[Tensor, "*out target choice"]]:
        r"""The log-likelihood of each choice less that of generate, as far as tokens determine it.

        :math:`\log \epsilon` where the position has another token. Where it has the same one, the
        ratio :math:`\epsilon + (1 - \epsilon) / p_g(y)` needs the softmax; here
        :math:`(1 - \epsilon) / \epsilon` stands for it. For a lexicon head it is the score that its
        vector adds to the token.
        """
        log_slip, log_kept = self.slip.log.detach(), self.slip.log_kept.detach()
        ratios = torch.where(self.matches(tokens)[..., None], log_kept - log_slip, log_slip)
        for scores in super().evidence(tokens, rows):
            of_positions = scores[..., 1:].to(ratios.dtype)
            shape = torch.broadcast_shapes(ratios.shape[:-1], of_positions.shape)
            pair = ratios.expand(*shape, -1), of_positions.expand(shape)[..., None]
            ratios = torch.cat(pair, -1)
        return [F.pad(ratios.flatten(-2), (1, 0))]

    def _emission_request(self, posterior: object) -> None:
        """No gradient is computed beside the value: copies change its weights."""

    def emission_log_probs(
        self, tokens: Int[Tensor, "*words target"], posterior: object = None
    ) -> Float[Tensor, "*batch target choice"]:
        """Log-probability of every token for all choices."""
        states = self.hidden.states
        words = tokens.expand(states.shape[:-1])
        matches = self.matches(tokens).expand(*states.shape[:-1], -1)
        if self.vectors:
            aligned = super().emission_log_probs(tokens)
            return copy_emissions(aligned[..., 0], matches, self.slip, aligned[..., 1:])
        generated = generated_log_prob(self.output, states, words, self.smoothing)
        return copy_emissions(generated, matches, self.slip)

    def infer(
        self,
        tokens: Int[Tensor, "*words target"],
        posterior: Sequence[CategoricalParameters] | None = None,
    ) -> ExactInference:
        """Exact inference over all choices; with one pass of the output layer, for any loss."""
        if self.priors[0].chained or self.vectors:
            return super().infer(tokens, posterior)
        log_prior = log_softmax(self.priors[0].scores[..., 0, :])
        of_heads = log_prior[..., 1:].unflatten(-1, (-1, self.heads))
        matches = self.matches(tokens).expand(of_heads.shape[:-1])
        # a p_g(y) + c is taken as a (p_g(y) + c / a): the output layer adds one constant to p_g
        copied = (of_heads + self.slip.log_kept).masked_fill(~matches[..., None], NOWHERE)
        log_scale = self._log_scale(log_prior[..., 0], of_heads)
        log_constant = copied.flatten(-2).logsumexp(-1) - log_scale
        log_mixture, generated = self._log_mixture(tokens, log_constant)
        emissions = copy_emissions(generated, matches, self.slip)
        valid = self.valid.expand(log_prior.shape[:-1])
        log_probs = (log_scale + log_mixture) * valid
        return IndependentCopies(self.priors, emissions, valid, log_probs)

    def _log_scale(
        self, generate: Float[Tensor, "*batch"], of_heads: Float[Tensor, "*batch position head"]
    ) -> Float[Tensor, "*batch"]:
        """The log-probability that the token comes from the network: a in the formulas above."""
        # positions have the rest of the probability, so that a = epsilon + (1 - epsilon) generate
        if self.slip.is_shared:
            log_slip, log_kept = self.slip.log[0], self.slip.log_kept[0]
            return torch.logaddexp(log_slip.expand_as(generate), generate + log_kept)
        slipped = (of_heads + self.slip.log).flatten(-2)
        return torch.cat([generate[..., None], slipped], -1).logsumexp(-1)

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
    """The tokens of a sentence given sampled choices."""

    alignment_pass: CopyPass

    @property
    def choices(self) -> Int[Tensor, "*batch token"]:
        """The choice at every token; enumerated ones have a sentence dimension of size 1."""
        return self.alignments[..., 0].expand(self.states.shape[:-1])

    @property
    def logits(self) -> Float[Tensor, "*batch token vocab"]:
        """Log-probabilities of the vocabulary given the choices."""
        log_probs = full_precision(self.output(self.states)).log_softmax(-1)
        choice, slip = self.choices, self.alignment_pass.slip
        log_probs = log_probs.expand(*choice.shape, -1)
        head = (choice - 1) % self.alignment_pass.heads
        is_copied = (choice > 0) & (head < len(slip.log))
        head = head.clamp(max=len(slip.log) - 1)[..., None]
        tokens = self._chosen_tokens(choice)[..., None]
        copied = torch.full_like(log_probs, -torch.inf).scatter(-1, tokens, slip.log_kept[head])
        mixed = torch.logaddexp(log_probs + slip.log[head], copied)
        return torch.where(is_copied[..., None], mixed, log_probs)

    def _chosen_tokens(self, choice: Int[Tensor, "*batch token"]) -> Int[Tensor, "*batch token"]:
        """The token at the chosen position; 0 where there is none."""
        key_tokens = self.alignment_pass.hidden.tokens
        assert key_tokens is not None
        tokens = key_tokens.expand(*choice.shape[:-1], -1).gather(-1, choice)
        return tokens.clamp(min=0)

    def token_log_prob(
        self, value: Int[Tensor, "*tokens token"], expected_gradient: ExpectedGradient = 1.0
    ) -> Float[Tensor, "*batch token"]:
        hidden, (enabled, dtype) = self.alignment_pass.hidden, self.autocast
        words = torch.broadcast_shapes(value.shape, hidden.states.shape[:-1])
        hidden = replace(hidden, states=hidden.states.expand(*words, -1))
        with torch.autocast(value.device.type, dtype, enabled):
            emissions = replace(self.alignment_pass, hidden=hidden).emission_log_probs(value)
        shape = torch.broadcast_shapes(words, self.choices.shape)
        table, choice = emissions.expand(*shape, -1), self.choices.expand(shape)
        return table.gather(-1, choice[..., None])[..., 0] * self.valid
