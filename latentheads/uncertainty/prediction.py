r"""The laws that several members have of the next token, and how far they differ.

With the laws :math:`p_k` of the members and their weights :math:`w_k`, and
:math:`\bar p = \sum_k w_k p_k`, uncertainty falls into two (Malinin and Gales 2021,
https://arxiv.org/abs/2002.07650):

.. math:: \underbrace{H[\bar p]}_{\text{total}}
          = \underbrace{\sum_k w_k H[p_k]}_{\text{data}}
          + \underbrace{\sum_k w_k \mathrm{KL}(p_k \,\|\, \bar p)}_{\text{knowledge}},

the second being the mutual information of token and member. The same KL turned round is the reverse
one, :math:`\sum_k w_k \mathrm{KL}(\bar p \,\|\, p_k)`, and the sum of both the mean KL of all pairs
of members.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["Prediction", "mix_distributions"]

LOWEST = -1e4
"""A log-probability whose probability is 0 in every type of numbers."""


@dataclass(frozen=True)
class Prediction:
    """The law of every token of a batch under several members, in nats.

    Attributes:
        log_law: Log-probabilities of all tokens under the mean of the members.
        mean_log: Mean over the members of the log-probability of the token that came.
        data: Mean over the members of their entropies.
        reverse: Mean over the members of the KL from the mean to each.
    """

    log_law: Float[Tensor, "sentence token vocab"]
    mean_log: Float[Tensor, "sentence token"]
    data: Float[Tensor, "sentence token"]
    reverse: Float[Tensor, "sentence token"]

    @property
    def total(self) -> Float[Tensor, "sentence token"]:
        """The entropy of the mean law."""
        return entropy(self.log_law)

    @property
    def knowledge(self) -> Float[Tensor, "sentence token"]:
        """The mutual information of token and member; a rounding error below 0 is none."""
        return (self.total - self.data).clamp_min(0)

    @classmethod
    def of_one(
        cls,
        log_law: Float[Tensor, "sentence token vocab"],
        words: Int[Tensor, "sentence token"],
    ) -> Prediction:
        """The prediction of a single member, which differs from no other.

        Args:
            log_law: Its log-probabilities.
            words: The tokens that came.
        """
        nothing = torch.zeros_like(log_law[..., 0])
        return cls(log_law, log_prob_of(log_law, words), entropy(log_law), nothing)


def entropy(log_law: Float[Tensor, "*batch vocab"]) -> Float[Tensor, "*batch"]:
    """In nats; a token that never comes adds nothing."""
    # 0 times a finite number is 0
    return -(log_law.exp() * log_law.clamp_min(LOWEST)).sum(-1)


def log_prob_of(
    log_law: Float[Tensor, "*batch token vocab"], words: Int[Tensor, "sentence token"]
) -> Float[Tensor, "*batch token"]:
    """The log-probability of the tokens that came."""
    place = words.expand(log_law.shape[:-1])[..., None]
    return log_law.gather(-1, place)[..., 0]


def mix_distributions(
    members: Sequence[Float[Tensor, "sentence token vocab"]],
    words: Int[Tensor, "sentence token"],
    held: bool = False,
) -> Prediction:
    """Mixes the laws of several members.

    Args:
        members: Log-probabilities of all tokens by each.
        words: The tokens that came.
        held: Whether each is one draw held along a sentence. Then a member counts at a token as
            much as it foresaw those before it, and the log-probabilities of a sentence's tokens
            add up to the log of the mean probability of the sentence; else all count alike.
    """
    every = torch.stack(list(members))
    came = log_prob_of(every, words)
    log_weights = torch.full_like(came, -math.log(len(members)))
    if held:
        before = came.cumsum(-1) - came
        log_weights = before.log_softmax(0)
    weights = log_weights.exp()
    log_law = (every + log_weights[..., None]).logsumexp(0)
    crossed = torch.einsum("kst,kstv->stv", weights, every)
    data = (weights * entropy(every)).sum(0)
    reverse = (log_law.exp() * (log_law - crossed)).sum(-1).clamp_min(0)
    return Prediction(log_law, came.mean(0), data, reverse)
