r"""The temperature of a posterior over subsets, chosen so that probabilities are frequencies.

Prompts are split at random, many times: the posterior is that on some of them, and whether a head
is needed is decided by the others: it is in the subset with the largest mean log-likelihood less
the penalty of its heads there. The temperature is that with the largest mean log-probability of
these decisions (as in temperature scaling, Guo et al. 2017, https://arxiv.org/abs/1706.04599).
Prompts that a result is reported on must have no part in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.checks import check_least, check_seed
from latentheads.contrib.circuits.posterior import CircuitPosterior
from latentheads.frames import make_frame

if TYPE_CHECKING:
    import pandas as pd

TEMPERATURES = tuple(2.0**power for power in range(-12, 7))
"""Temperatures that are tried, from 1/4096 to 64."""


@dataclass(frozen=True)
class Decisions:
    """Probabilities of heads on some prompts, and whether others need the head.

    Attributes:
        log_odds: The log-odds of each head's inclusion.
        needed: 1 if the other prompts need it.
    """

    log_odds: Float[Tensor, " decision"]
    needed: Float[Tensor, " decision"]

    @property
    def score(self) -> float:
        """Mean log-probability of the decisions."""
        loss = torch.nn.functional.binary_cross_entropy_with_logits(self.log_odds, self.needed)
        return -float(loss)

    @property
    def probability(self) -> Float[Tensor, " decision"]:
        """The probability of each head."""
        return self.log_odds.sigmoid()

    def to_frame(self) -> pd.DataFrame:
        """A row for each decision: log-odds, probability, and 1 if the head is needed."""
        columns = {"log_odds": self.log_odds, "probability": self.probability}
        return make_frame({**columns, "needed": self.needed})

    def bins(self, edges: Sequence[float] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)) -> list[Bin]:
        """Decisions by their probability.

        Args:
            edges: The edges of the bins.
        """
        bins = []
        for low, high in pairwise(edges):
            inside = (self.probability >= low) & (
                self.probability < high if high < edges[-1] else self.probability <= high
            )
            if number := int(inside.sum()):
                mean, share = (x[inside].mean() for x in (self.probability, self.needed))
                bins.append(Bin(low, high, number, float(mean), float(share)))
        return bins


@dataclass(frozen=True)
class Bin:
    """Decisions with about one probability.

    Attributes:
        low: The least probability.
        high: The largest.
        number: Number of decisions.
        probability: Their mean probability.
        share: The share of heads that the other prompts need.
    """

    low: float
    high: float
    number: int
    probability: float
    share: float


def decide(
    posteriors: Sequence[CircuitPosterior] | CircuitPosterior,
    size: int | None,
    tau: float,
    resamples: int = 100,
    seed: int = 0,
) -> Decisions:
    """Splits prompts at random, and decides by the rest which heads are needed.

    Args:
        posteriors: A posterior, or several, such as of several layers.
        size: Prompts that a posterior is given, the others decide; None: half of them.
        tau: The temperature.
        resamples: Number of splits.
        seed: Their seed.
    """
    check_least({"size": size, "resamples": resamples}, size=1, resamples=1)
    log_odds, needed = [], []
    for posterior in _list_posteriors(posteriors):
        prompts = len(posterior.tokens)
        number = prompts // 2 if size is None else size
        splits = split_prompts(prompts, number, resamples, seed)
        given = posterior.with_temperature(tau)
        log_odds.append(given.log_odds_on(splits[:, :number]).flatten())
        needed.append(posterior.best_on(splits[:, number:]).flatten())
    return Decisions(torch.cat(log_odds), torch.cat(needed))


def _list_posteriors(posteriors: Any) -> list[CircuitPosterior]:
    """The posteriors of a list, or one."""
    listed = list(posteriors) if isinstance(posteriors, Iterable) else [posteriors]
    for posterior in listed:
        if not isinstance(posterior, CircuitPosterior):
            raise ValueError(
                "posteriors must be what circuit_posterior(scorer, penalty, tau) returns, got "
                f"{type(posterior).__name__}"
            )
    return listed


def split_prompts(
    prompts: int, size: int, resamples: int, seed: int = 0
) -> Int[Tensor, "resample prompt"]:
    """Orders of prompts, of which the first ``size`` are given and the others decide."""
    check_seed(seed)
    if size >= prompts:
        raise ValueError(f"size must leave prompts that decide, got {size} of {prompts}")
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randperm(prompts, generator=generator) for _ in range(resamples)])


def calibrate(
    posteriors: Sequence[CircuitPosterior] | CircuitPosterior,
    size: int | None = None,
    temperatures: Sequence[float] = TEMPERATURES,
    resamples: int = 100,
    seed: int = 0,
) -> float:
    """The temperature with the largest mean log-probability of what held-out prompts decide.

    Args:
        posteriors: A posterior, or several, such as of several layers; their temperature does not
            matter.
        size: Prompts that a posterior is given, the others decide; None: half of them.
        temperatures: Temperatures to try.
        resamples: Number of splits.
        seed: Their seed.

    Example:
        >>> circuits = lh.contrib.circuits
        >>> prompts = circuits.Prompts.of([[3, 4, 5], [6, 7, 8]])
        >>> scorer = circuits.SubsetScorer(gpt2, prompts, "decoder.1.self")
        >>> posterior = circuits.circuit_posterior(scorer, penalty=1e-3, tau=1)
        >>> posterior = posterior.with_temperature(circuits.calibrate(posterior, size=1))
    """
    scores = [decide(posteriors, size, tau, resamples, seed).score for tau in temperatures]
    return temperatures[int(torch.tensor(scores).argmax())]
