r"""Monte Carlo objectives: a few sampled alignments instead of a sum over all of them.

A sample costs one softmax for each word. The first two gradients are unbiased, the third is not.

- :func:`score_bound`: one sample z of the guide, :math:`\log p(y \mid z, x)`. Its gradient in the
  guide is the score-function estimator :math:`(\log p(y \mid z, x) - b) \nabla \log q(z)`. The
  baseline b is the log-likelihood under soft attention, by each head's prior scores: Deng et al.
  2018, section 3, https://arxiv.org/abs/1807.03756.
- :func:`importance_bound`: :math:`\log \frac1K \sum_k w_k` with :math:`w_k = p(y, z_k \mid x) /
  q(z_k)` (Burda, Grosse and Salakhutdinov 2016, https://arxiv.org/abs/1509.00519), with the other
  samples as baseline (Mnih and Rezende 2016, https://arxiv.org/abs/1602.06725).
- :func:`wake_objective`: fits the model and the guide to samples with weights
  :math:`w_k / \sum_j w_j`: the wake phases of Bornschein and Bengio 2015,
  https://arxiv.org/abs/1406.2751. In a model apart from the guide the gradient is that of
  :func:`importance_bound`. In the guide, and in a prior that is the guide, it estimates that of
  :math:`-KL(p(z \mid x, y) \| q)` and of :math:`\log p(y \mid x)`, with a bias from the sum that
  divides the weights. It vanishes as K grows.

Words are independent given the states, so each has its own weights and learning signal, and the
bounds are sums over words. In a chain an alignment affects all later ones, and weights are of a
whole sentence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class AlignmentSamples:
    """Samples of all alignments of a batch, with their log-probabilities; 0 at padding.

    Attributes:
        log_likelihood: Log-likelihood of every word given each sample.
        log_prior: Log-probability of every word's alignments under the prior.
        log_guide: Log-probability of every word's alignments under the guide.
        chained: Whether a word's alignment is conditioned on that of the previous word.
        log_tied: The part of log_prior, and of log_guide, that belongs to blocks whose posterior
            is the prior itself.
    """

    log_likelihood: Float[Tensor, "sample *batch target"]
    log_prior: Float[Tensor, "sample *batch target"]
    log_guide: Float[Tensor, "sample *batch target"]
    chained: bool = False
    log_tied: Float[Tensor, "sample *batch target"] | float = 0.0

    def by_unit(
        self, values: Float[Tensor, "sample *batch target"]
    ) -> Float[Tensor, "sample *batch unit"]:
        """Sum over the words of a chain, which is sampled as a whole; else keep words apart."""
        return values.sum(-1, keepdim=True) if self.chained else values

    @property
    def log_weights(self) -> Float[Tensor, "sample *batch unit"]:
        """``log p(y, z | x) - log q(z)`` of every sample."""
        return self.by_unit(self.log_likelihood + self.log_prior - self.log_guide)


def score_bound(
    samples: AlignmentSamples, baseline: Float[Tensor, "*shared target"]
) -> Float[Tensor, "*batch"]:
    """The mean of log p(y | z, x) over the samples, with a score-function gradient in the guide.

    Args:
        samples: The samples.
        baseline: Subtracted from the log-likelihood of every word: lowers the variance of the
            gradient without changing its mean. Particles may share it.
    """
    credit = (samples.log_likelihood - baseline).detach()
    if samples.chained:  # an alignment affects its own word and all later ones
        credit = credit.flip(-1).cumsum(-1).flip(-1)
    surrogate = samples.log_guide - samples.log_guide.detach()
    return (samples.log_likelihood + surrogate * credit).sum(-1).mean(0)


def importance_bound(samples: AlignmentSamples) -> Float[Tensor, "*batch"]:
    """The importance-weighted bound on log p(y | x), with its gradient in model and guide.

    Args:
        samples: Two samples or more.
    """
    weights = samples.log_weights
    detached, num_samples = weights.detach(), len(weights)
    # the bound without sample k: its weight is replaced by the geometric mean of the others
    mean_of_others = (detached.sum(0) - detached) / (num_samples - 1)
    diagonal = torch.eye(num_samples, dtype=torch.bool, device=detached.device)
    diagonal = diagonal.view(num_samples, num_samples, *(1,) * (detached.ndim - 1))
    leave_one_out = torch.where(diagonal, mean_of_others[:, None], detached).logsumexp(1)
    credit = detached.logsumexp(0) - leave_one_out
    log_guide = samples.by_unit(samples.log_guide)
    surrogate = ((log_guide - log_guide.detach()) * credit).sum(0)
    return (weights.logsumexp(0) - math.log(num_samples) + surrogate).sum(-1)


def wake_objective(samples: AlignmentSamples) -> Float[Tensor, "*batch"]:
    """The importance-weighted bound, whose gradient fits model and guide to weighted samples.

    The gradient is not that of the value: see the top of this file.

    Args:
        samples: Two samples or more.
    """
    weights = samples.log_weights.detach()
    # a distribution that is both prior and posterior is fitted once
    log_joint = samples.log_prior + samples.log_guide - samples.log_tied
    objective = samples.by_unit(samples.log_likelihood + log_joint)
    surrogate = (weights.softmax(0) * (objective - objective.detach())).sum(0)
    return (weights.logsumexp(0) - math.log(len(weights)) + surrogate).sum(-1)
