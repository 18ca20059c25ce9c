r"""Log-likelihoods of several systems on the same sentences: bootstrap intervals and paired tests.

.. math:: \frac{\sum_s (b_s - a_s)}{\sum_s n_s}

is the difference of two systems whose log p(y | x) of sentence s is a_s and b_s, with n_s tokens.
It is computed on all sentences and on each resample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from latentheads.metrics.resampling import (
    RESAMPLES,
    SEED,
    Estimate,
    Resamples,
    estimate_systems,
    resample_counts,
)

PerSentence = Float[np.ndarray, " sentence"]


@dataclass(frozen=True)
class Likelihood:
    """The log-likelihood of one system, compared with the baseline.

    Attributes:
        nats: Log p(y | x) per unit; its p-value is of the difference to the baseline.
        difference: The difference to the baseline; None for the baseline itself.
        unit: ``token``, or ``sentence`` where the systems tokenise sentences differently.
    """

    nats: Estimate
    difference: Estimate | None
    unit: str


def compare_likelihoods(
    nats: Sequence[PerSentence],
    tokens: Sequence[PerSentence],
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> list[Likelihood]:
    """Compares systems with the first one by paired bootstrap over sentences.

    Args:
        nats: Log p(y | x) of every sentence under each system, or a bound of it.
        tokens: The number of tokens of every sentence in each system's tokenisation.
        resamples: Number of resamples; the smallest p-value is 1 / (resamples + 1).
        seed: Seed of the resampling.

    Example:
        >>> plain, other = np.array([-9.0, -4.0]), np.array([-7.5, -3.0])
        >>> _, likelihood = compare_likelihoods([plain, other], [np.array([6.0, 4.0])] * 2)
        >>> likelihood.difference.score, likelihood.unit  # 2.5 nats of 10 tokens
        (0.25, 'token')
    """
    lengths = [len(values) for values in (*nats, *tokens)]
    if not nats or len(nats) != len(tokens) or len(set(lengths)) > 1 or not lengths[0]:
        raise ValueError(
            "nats and tokens must be of one system or more, all of the same sentences, got "
            f"{len(nats)} and {len(tokens)} with {', '.join(map(str, lengths)) or 'no'} sentences"
        )
    same_tokens = all(np.array_equal(numbers, tokens[0]) for numbers in tokens)
    unit, sizes = ("token", tokens[0]) if same_tokens else ("sentence", np.ones_like(tokens[0]))
    indices = Resamples(len(sizes), resamples, seed)
    scores = [resample_counts(np.stack([system, sizes], 1), _divide, indices) for system in nats]
    signature = f"nats per {unit}|bs:{resamples}|seed:{seed}|p:two-sided"
    baseline, resampled_baseline = scores[0]
    likelihoods = []
    for (score, resampled), estimate in zip(
        scores, estimate_systems(scores, signature), strict=True
    ):
        difference = (score - baseline, resampled - resampled_baseline)
        (estimated_difference,) = estimate_systems([difference], signature)
        likelihoods.append(Likelihood(estimate, replace(estimated_difference, p=estimate.p), unit))
    likelihoods[0] = replace(likelihoods[0], difference=None)
    return likelihoods


def _divide(sums: Float[np.ndarray, " 2"]) -> float:
    return float(sums[0] / sums[1])
