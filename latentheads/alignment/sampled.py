r"""Objectives of a few drawn alignments, in place of a sum over all of them.

A draw of a posterior costs one softmax a word, however many positions there are. Nothing is lost on
average: the mean of each gradient over all draws is that of a sum that could be written down.

- :func:`score_bound`: one draw z of the guide, :math:`\log p(y \mid z, x)`, whose gradient in the
  guide is :math:`(\log p(y \mid z, x) - b) \nabla \log q(z)`. The baseline b is the log-likelihood
  under soft attention, by each head's prior scores alone: Deng et al. 2018, section 4,
  https://arxiv.org/abs/1807.03756.
- :func:`importance_bound`: :math:`\log \frac1K \sum_k w_k` with :math:`w_k = p(y, z_k \mid x) /
  q(z_k)` (Burda, Grosse and Salakhutdinov 2016, https://arxiv.org/abs/1509.00519), each draw
  measured against the others (Mnih and Rezende 2016, https://arxiv.org/abs/1602.06725).
- :func:`wake_objective`: the model and the guide both fitted to draws by their weights
  :math:`w_k / \sum_j w_j`: the wake phases of Bornschein and Bengio 2015,
  https://arxiv.org/abs/1406.2751.

Words are independent given the states, so each has weights and credit of its own, and the bounds
are sums over words; in a chain a word's alignment moves those behind it, and weights are of a
sentence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["AlignmentSamples", "importance_bound", "score_bound", "wake_objective"]


@dataclass(frozen=True)
class AlignmentSamples:
    """Draws of all alignments of a batch, each with its log-probabilities; 0 at padding.

    Attributes:
        log_likelihood: Of every word given each draw.
        log_prior: Of every word's alignments under the prior.
        log_guide: The same under the guide.
        chained: Whether a word's alignment reads that of the word before.
        log_tied: The share of both, log_prior and log_guide, of blocks whose posterior is the
            prior itself.
    """

    log_likelihood: Float[Tensor, "draw *batch target"]
    log_prior: Float[Tensor, "draw *batch target"]
    log_guide: Float[Tensor, "draw *batch target"]
    chained: bool = False
    log_tied: Float[Tensor, "draw *batch target"] | float = 0.0

    def by_unit(
        self, values: Float[Tensor, "draw *batch target"]
    ) -> Float[Tensor, "draw *batch unit"]:
        """Sums over the words of a chain, which is drawn as one; else keeps each word apart."""
        return values.sum(-1, keepdim=True) if self.chained else values

    @property
    def log_weights(self) -> Float[Tensor, "draw *batch unit"]:
        """``log p(y, z | x) - log q(z)`` of every draw."""
        return self.by_unit(self.log_likelihood + self.log_prior - self.log_guide)


def score_bound(
    drawn: AlignmentSamples, baseline: Float[Tensor, "*batch target"]
) -> Float[Tensor, "*batch"]:
    """The mean of log p(y | z, x) over the draws, with its gradient in the guide too.

    Args:
        drawn: The draws.
        baseline: Subtracted from the log-likelihood of every word; it lowers the variance of the
            gradient and leaves its mean.
    """
    credit = (drawn.log_likelihood - baseline).detach()
    if drawn.chained:  # an alignment answers for its own word and all behind it
        credit = credit.flip(-1).cumsum(-1).flip(-1)
    moved = drawn.log_guide - drawn.log_guide.detach()
    return (drawn.log_likelihood + moved * credit).sum(-1).mean(0)


def importance_bound(drawn: AlignmentSamples) -> Float[Tensor, "*batch"]:
    """The bound of K draws on log p(y | x), with its gradient in model and guide.

    Args:
        drawn: Two draws or more.
    """
    weights = drawn.log_weights
    fixed, number = weights.detach(), len(weights)
    # what the bound would be without draw k: the geometric mean of the others in its place
    others = (fixed.sum(0) - fixed) / (number - 1)
    own = torch.eye(number, dtype=torch.bool, device=fixed.device)
    own = own.view(number, number, *(1,) * (fixed.ndim - 1))
    without = torch.where(own, others[:, None], fixed).logsumexp(1)
    credit = fixed.logsumexp(0) - without
    log_guide = drawn.by_unit(drawn.log_guide)
    moved = ((log_guide - log_guide.detach()) * credit).sum(0)
    return (weights.logsumexp(0) - math.log(number) + moved).sum(-1)


def wake_objective(drawn: AlignmentSamples) -> Float[Tensor, "*batch"]:
    """The bound of K draws, whose gradient fits model and guide to the weighted draws.

    Args:
        drawn: Two draws or more.
    """
    weights = drawn.log_weights.detach()
    # one law that is prior and posterior at once is fitted once
    laws = drawn.log_prior + drawn.log_guide - drawn.log_tied
    fitted = drawn.by_unit(drawn.log_likelihood + laws)
    moved = (weights.softmax(0) * (fitted - fitted.detach())).sum(0)
    return (weights.logsumexp(0) - math.log(len(weights)) + moved).sum(-1)
