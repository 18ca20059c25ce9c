r"""The posterior over subsets of heads of a network on the prompts of a task.

.. math:: p(b \mid D) \propto p(b) \exp \Bigl(\tfrac1\tau
              \sum_{i \in D} \bigl(\ell_i(b) - \lambda |b|\bigr)\Bigr)

:math:`\ell_i(b)` is a log-likelihood of a prompt (:mod:`.likelihoods`). As it is largest with all
heads, a head has a penalty :math:`\lambda`: on many prompts the posterior is the subset with the
largest :math:`\mathbb E\,\ell(b) - \lambda |b|`, which is the aim of ACDC's threshold. This is a
Gibbs posterior (Bissiri et al. 2016, https://arxiv.org/abs/1306.6430): its temperature is no
matter of taste, but chosen so that probabilities are frequencies (:mod:`.calibration`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.checks import check_least
from latentheads.contrib.circuits.scorer import SubsetScorer
from latentheads.latents.bernoulli_heads.corpus import HeadPosterior
from latentheads.latents.bernoulli_heads.options import MAX_SUBSETS
from latentheads.latents.bernoulli_heads.subsets import all_subsets

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class CircuitPosterior(HeadPosterior):
    """The posterior over all subsets of some heads.

    Its sentences are prompts, its tokens the scored positions.

    Attributes:
        chosen: The block and the index of every head.
        labels: Its label, such as L9H6.
        penalty: Log-likelihood of a prompt that a head has to add.
        intervention: What stands in for a head that is off.
        likelihood: The name of the log-likelihood.
    """

    chosen: Sequence[tuple[str, int]] = ()
    labels: Sequence[str] = ()
    penalty: float = 0.0
    intervention: str = "zero"
    likelihood: str = "kl"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least({"penalty": self.penalty}, penalty=0.0)

    def __repr__(self) -> str:
        prompts, subsets = self.log_likelihoods.shape
        inclusion = ", ".join(
            f"{label} {probability:.3f}"
            for label, probability in zip(self.labels, self.inclusion.tolist(), strict=True)
        )
        return (
            f"CircuitPosterior({subsets:,} subsets, {prompts:,} prompts, {self.likelihood}, "
            f"{self.intervention}, penalty {self.penalty:g}, tau {self.tau:g}; "
            f"inclusion {inclusion})"
        )

    @property
    def heads(self) -> list[tuple[str, int]]:
        return list(self.chosen)

    def to_frame(self) -> pd.DataFrame:
        return super().to_frame().assign(label=self.labels)

    @property
    def log_prior(self) -> Float[Tensor, " subset"]:
        """Log p(b), with the penalty of its heads on all prompts."""
        return super().log_prior - self.costs * len(self.tokens) / self.tau

    @property
    def costs(self) -> Float[Tensor, " subset"]:
        """The penalty of the heads of every subset, for a prompt."""
        return self.penalty * self.subsets.sum(-1)

    @property
    def log_density(self) -> Float[Tensor, " subset"]:
        """Log p(b) plus the log-likelihood at the temperature, which :func:`.fit_guide` sums."""
        return self.log_prior + self.log_likelihoods.sum(0) / self.tau

    def with_penalty(self, penalty: float) -> CircuitPosterior:
        """The posterior with another penalty of a head; no pass of the network is needed."""
        return replace(self, penalty=penalty)


def circuit_posterior(
    scorer: SubsetScorer, penalty: float, tau: float, rate: float = 0.5
) -> CircuitPosterior:
    """Compute the posterior over all subsets of at most 12 heads.

    Args:
        scorer: The network, prompts, heads, intervention and likelihood.
        penalty: Log-likelihood of a prompt that a head has to add, such as .003 nats of the
            divergence; with 0 every head is needed.
        tau: The temperature: this number of prompts counts as one. At a high one all probabilities
            are near the prior's, at a low one 0 or 1: :func:`.calibrate` chooses it, given a
            posterior at any.
        rate: The prior probability of a head. If another share of heads is needed, a calibrated
            temperature does not make probabilities frequencies.

    Raises:
        ValueError: There are too many heads: :func:`.smc` samples their subsets.

    Example:
        >>> circuits = lh.contrib.circuits
        >>> prompts = circuits.Prompts.of([[3, 4, 5], [6, 7, 8]])
        >>> scorer = circuits.SubsetScorer(gpt2, prompts, ["decoder.1.self"])
        >>> posterior = circuits.circuit_posterior(scorer, penalty=1e-3, tau=1)
        >>> len(posterior.inclusion) == len(posterior.labels)
        True
    """
    check_least({"penalty": penalty}, penalty=0.0)  # before subsets are scored
    names = list(dict.fromkeys(name for name, _ in scorer.heads))
    blocks = [
        replace(scorer.addresses[name].block, heads=sum(name == n for n, _ in scorer.heads))
        for name in names
    ]
    if 2 ** len(scorer.heads) > MAX_SUBSETS:
        raise ValueError(
            f"a table of subsets is of at most {MAX_SUBSETS.bit_length() - 1} heads, got "
            f"{len(scorer.heads)}: sample the subsets of more by smc or gibbs"
        )
    subsets = all_subsets(len(scorer.heads), torch.empty((), dtype=torch.float64))
    return CircuitPosterior(
        blocks,
        scorer(subsets).mT.contiguous(),
        scorer.prompts.scored.sum(-1).double(),
        tau,
        rate,
        scorer.heads,
        scorer.labels,
        penalty,
        scorer.intervention.name,
        scorer.likelihood.name,
    )
