r"""Likelihoods of a subset of heads: how well it predicts what the whole network predicts.

The probability of the right answer saturates: it is near 1 with and without most heads. Two
likelihoods do not:

* :class:`Divergence`, :math:`-\mathrm{KL}(p \,\|\, p_b)` over the vocabulary, summed over the
  scored positions: the expected log-ratio of a token that the whole network p samples, under the
  network with the heads b alone.
* :class:`LogitDifference`, :math:`\log N(d; d_b, \sigma^2)`, where d is the whole network's logit
  difference of right and wrong tokens, and :math:`\sigma` its spread over prompts. Of several
  right tokens the logits are joined by logsumexp, so that d is a log-odds.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from jaxtyping import Float, Int
from torch import Tensor

from latentheads.checks import check_positive
from latentheads.contrib.circuits.prompts import Prompts

ROUNDING = 1e-6
"""Relative difference that float32 makes of equal logits."""


class SubsetLikelihood(ABC):
    """How well a subset of heads predicts what the whole network predicts."""

    name: str

    @abstractmethod
    def __call__(
        self,
        log_probs: Float[Tensor, "*copy prompt scored token"],
        whole: Float[Tensor, "prompt scored token"],
        prompts: Prompts,
    ) -> Float[Tensor, "*copy prompt"]:
        """The log-likelihood of each prompt.

        Args:
            log_probs: Log-probabilities of all tokens, by the network with some heads.
            whole: Those by the whole network.
            prompts: The prompts.
        """


class Divergence(SubsetLikelihood):
    """Minus the KL divergence from the whole network's distribution of the next token."""

    name = "kl"

    def __call__(
        self,
        log_probs: Float[Tensor, "*copy prompt scored token"],
        whole: Float[Tensor, "prompt scored token"],
        prompts: Prompts,
    ) -> Float[Tensor, "*copy prompt"]:
        """Minus the divergence, summed over the scored positions."""
        return (whole.exp() * (log_probs - whole)).sum((-1, -2))


class LogitDifference(SubsetLikelihood):
    """A normal distribution of the whole network's logit difference.

    Args:
        spread: Its standard deviation; None: that of the whole network's over the prompts.
    """

    name = "logit-difference"

    def __init__(self, spread: float | None = None) -> None:
        if spread is not None:
            check_positive("spread", spread)
        self.spread = spread

    def __call__(
        self,
        log_probs: Float[Tensor, "*copy prompt scored token"],
        whole: Float[Tensor, "prompt scored token"],
        prompts: Prompts,
    ) -> Float[Tensor, "*copy prompt"]:
        """The log-density of the whole network's difference."""
        right, wrong = _answer_logits(whole, prompts)
        difference = right - wrong
        if self.spread is None and len(difference) < 2:
            raise ValueError("the spread of logit differences needs two prompts: give spread")
        spread = float(difference.double().std()) if self.spread is None else self.spread
        # equal prompts differ by rounding of their logits, which is no spread
        largest = float(max(right.abs().max(), wrong.abs().max()))
        if self.spread is None and spread <= ROUNDING * largest:
            raise ValueError("the logit differences of all prompts are equal: give spread")
        error = (logit_difference(log_probs, prompts) - difference) / spread
        return -error.square() / 2 - math.log(spread) - math.log(2 * math.pi) / 2


def logit_difference(
    log_probs: Float[Tensor, "*copy prompt scored token"], prompts: Prompts
) -> Float[Tensor, "*copy prompt"]:
    """The logit of the right tokens less that of the wrong ones, at the last scored position.

    Args:
        log_probs: Log-probabilities, or logits, of all tokens.
        prompts: The prompts.

    Raises:
        ValueError: They have no right and wrong tokens.
    """
    right, wrong = _answer_logits(log_probs, prompts)
    return right - wrong


def _answer_logits(
    log_probs: Float[Tensor, "*copy prompt scored token"], prompts: Prompts
) -> tuple[Float[Tensor, "*copy prompt"], Float[Tensor, "*copy prompt"]]:
    """The logit of the right tokens, and that of the wrong ones, at the last scored position."""
    if prompts.right is None or prompts.wrong is None:
        raise ValueError("a logit difference needs prompts with right and wrong tokens")
    last = log_probs[..., -1, :]
    return _joint_logit(last, prompts.right), _joint_logit(last, prompts.wrong)


def _joint_logit(
    logits: Float[Tensor, "*copy prompt token"], tokens: Int[Tensor, "prompt several"]
) -> Float[Tensor, "*copy prompt"]:
    """The logit that one of several tokens is next; -1 is none."""
    tokens = tokens.to(logits.device)
    index = tokens.clamp_min(0).expand(*logits.shape[:-1], -1)
    chosen = logits.gather(-1, index).masked_fill(tokens < 0, -math.inf)
    return chosen.logsumexp(-1)
