r"""What systems say of the same sentences, in nats: intervals and tests by resampling these.

.. math:: \frac{\sum_s (b_s - a_s)}{\sum_s n_s}

is the difference of two systems whose log p(y | x) of sentence s is a_s and b_s, with n_s tokens:
on all sentences, and on each resample, which has tokens of its own.
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
    draw_places,
    estimate_systems,
    resample_counts,
)

__all__ = ["Likelihood", "compare_likelihoods"]

PerSentence = Float[np.ndarray, " sentence"]


@dataclass(frozen=True)
class Likelihood:
    """One system beside the baseline.

    Attributes:
        nats: Log p(y | x) a unit; its p is that of no difference.
        difference: What it is above the baseline; None of the baseline itself.
        unit: ``token``, or ``sentence`` where systems cut a sentence into other numbers of tokens.
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
    """Compares systems with the first of them on resampled sentences, the same ones for all.

    Args:
        nats: Log p(y | x) of every sentence by each system, or its bound.
        tokens: Tokens of every sentence, as each system cuts it.
        resamples: How often the sentences are resampled; the least p is 1 / (resamples + 1).
        seed: Of the resamples.

    Example:
        >>> plain, other = np.array([-9.0, -4.0]), np.array([-7.5, -3.0])
        >>> _, found = compare_likelihoods([plain, other], [np.array([6.0, 4.0])] * 2)
        >>> found.difference.score, found.unit  # 2.5 nats of 10 tokens
        (0.25, 'token')
    """
    lengths = [len(each) for each in (*nats, *tokens)]
    if not nats or len(nats) != len(tokens) or len(set(lengths)) > 1 or not lengths[0]:
        raise ValueError(
            "nats and tokens must be of one system or more, all of the same sentences, got "
            f"{len(nats)} and {len(tokens)} with {', '.join(map(str, lengths)) or 'no'} sentences"
        )
    alike = all(np.array_equal(each, tokens[0]) for each in tokens)
    unit, sizes = ("token", tokens[0]) if alike else ("sentence", np.ones_like(tokens[0]))
    places = draw_places(len(sizes), resamples, seed)
    every = [resample_counts(np.stack([each, sizes], 1), _divide, places) for each in nats]
    signature = f"nats a {unit}|bs:{resamples}|seed:{seed}|p:two-sided"
    whole, baseline = every[0]
    apart = [(score - whole, resampled - baseline) for score, resampled in every]
    found = []
    for own, away in zip(estimate_systems(every, signature), apart, strict=True):
        (difference,) = estimate_systems([away], signature)
        found.append(Likelihood(own, replace(difference, p=own.p), unit))
    found[0] = replace(found[0], difference=None)
    return found


def _divide(sums: Float[np.ndarray, " 2"]) -> float:
    return float(sums[0] / sums[1])
