r"""Predictive distributions of an ensemble, and their uncertainty.

With the distributions :math:`p_k` of the members, their weights :math:`w_k` and the mean
:math:`\bar p = \sum_k w_k p_k`, the total uncertainty decomposes into data and knowledge
uncertainty (Malinin and Gales 2021, https://arxiv.org/abs/2002.07650):

.. math:: \underbrace{H[\bar p]}_{\text{total}}
          = \underbrace{\sum_k w_k H[p_k]}_{\text{data}}
          + \underbrace{\sum_k w_k \mathrm{KL}(p_k \,\|\, \bar p)}_{\text{knowledge}},

Knowledge uncertainty is the mutual information of token and member. The reverse mutual information
is :math:`\sum_k w_k \mathrm{KL}(\bar p \,\|\, p_k)`; the sum of both is the expected pairwise KL.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from latentheads.frames import in_one_line

MIN_LOG_PROB = -1e4
"""A log-probability whose probability is 0 in every dtype."""


@dataclass(frozen=True)
class Prediction:
    """The predictive distribution of every token of a batch under an ensemble, in nats.

    Attributes:
        log_probs: Log-probabilities of all tokens under the mean distribution.
        mean_log_prob: Mean over the members of the log-probability of the target.
        data_uncertainty: Mean entropy of the members.
        reverse_mutual_information: Mean KL from the mean distribution to a member's.
    """

    log_probs: Float[Tensor, "sentence token vocab"]
    mean_log_prob: Float[Tensor, "sentence token"]
    data_uncertainty: Float[Tensor, "sentence token"]
    reverse_mutual_information: Float[Tensor, "sentence token"]

    __repr__ = in_one_line

    @property
    def total_uncertainty(self) -> Float[Tensor, "sentence token"]:
        """The entropy of the mean distribution."""
        return entropy(self.log_probs)

    @property
    def knowledge_uncertainty(self) -> Float[Tensor, "sentence token"]:
        """The mutual information of token and member; rounding errors below 0 are clamped."""
        return (self.total_uncertainty - self.data_uncertainty).clamp_min(0)

    @classmethod
    def of_one(
        cls,
        log_probs: Float[Tensor, "sentence token vocab"],
        targets: Int[Tensor, "sentence token"],
    ) -> Prediction:
        """The prediction of a single member."""
        zeros = torch.zeros_like(log_probs[..., 0])
        return cls(log_probs, log_prob_of(log_probs, targets), entropy(log_probs), zeros)


def entropy(log_probs: Float[Tensor, "*batch vocab"]) -> Float[Tensor, "*batch"]:
    """The entropy in nats; tokens of probability 0 add 0."""
    # clamped because 0 * -inf is NaN
    return -(log_probs.exp() * log_probs.clamp_min(MIN_LOG_PROB)).sum(-1)


def log_prob_of(
    log_probs: Float[Tensor, "*batch token vocab"], targets: Int[Tensor, "sentence token"]
) -> Float[Tensor, "*batch token"]:
    """The log-probability of the targets."""
    indices = targets.expand(log_probs.shape[:-1])[..., None]
    return log_probs.gather(-1, indices)[..., 0]


def mix_distributions(
    members: Sequence[Float[Tensor, "sentence token vocab"]],
    targets: Int[Tensor, "sentence token"],
    *,
    sentence_level: bool = False,
) -> Prediction:
    """Mixes the distributions of several members.

    Args:
        members: Log-probabilities of all tokens under each member.
        targets: The targets.
        sentence_level: Whether a member is one sample for a whole sentence ("expectation of
            products"). Its weight at a token is then proportional to the probability that it gave
            to the tokens before, so that the log-probabilities of a sentence add up to the log of
            its mean probability. Otherwise weights are equal ("product of expectations").
    """
    member_log_probs = torch.stack(list(members))
    target_log_probs = log_prob_of(member_log_probs, targets)
    log_weights = torch.full_like(target_log_probs, -math.log(len(members)))
    if sentence_level:
        # clamped, as all members may exclude a token
        prefix_log_probs = F.pad(
            target_log_probs[..., :-1].clamp_min(MIN_LOG_PROB).cumsum(-1), (1, 0)
        )
        log_weights = prefix_log_probs.log_softmax(0)
    weights = log_weights.exp()
    log_probs = (member_log_probs + log_weights[..., None]).logsumexp(0)
    finite = member_log_probs.clamp_min(MIN_LOG_PROB)  # a token that no member expects adds 0
    mean_log_probs = torch.einsum("kst,kstv->stv", weights, finite)
    data_uncertainty = (weights * entropy(member_log_probs)).sum(0)
    difference = log_probs.clamp_min(MIN_LOG_PROB) - mean_log_probs
    reverse = (log_probs.exp() * difference).sum(-1).clamp_min(0)
    return Prediction(log_probs, target_log_probs.mean(0), data_uncertainty, reverse)
