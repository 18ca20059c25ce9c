r"""The temperature of a posterior over subsets, chosen so that probabilities are frequencies.

Prompts are split at random, many times: the posterior is that on some of them, and whether a head
is needed is decided by the others: it is in the subset with the largest mean log-likelihood less
the penalty of its heads there. The temperature is that with the largest mean log-probability of
these decisions (as in temperature scaling, Guo et al. 2017, https://arxiv.org/abs/1706.04599).
Frequencies are to be checked on prompts that had no part in it. Of the posterior of
:func:`latentheads.head_posterior` sentences stand in the place of prompts. Halves of
prompts that share a text are not independent: the temperature is then too low.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.checks import check_instance, check_least, check_not_empty, check_seed
from latentheads.frames import make_frame
from latentheads.latents.bernoulli_heads.corpus import HeadPosterior

if TYPE_CHECKING:
    import pandas as pd

POWERS = range(-12, 7)
"""Powers of 2 that are tried as temperatures first; more follow where the score still rises."""

WIDEST = 40
"""The largest power of 2 that is tried, and the least below 0."""

TOLERANCE = 1e-3
"""Nats per decision by which scores of a flat part differ."""

CLOSE = 0.01
"""Nats per decision by which a temperature scores less that fits nearly as well."""

MIN_PROMPTS = 16
"""Prompts below which probabilities near 0 and 1 are overconfident, by simulation."""


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


def decide(
    posteriors: Iterable[HeadPosterior] | HeadPosterior,
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
    for posterior in _listed(posteriors):
        prompts = len(posterior.tokens)
        if prompts < 2:  # one is given, and one decides
            raise ValueError("posteriors must be of two prompts or sentences or more, got one of 1")
        number = prompts // 2 if size is None else size
        splits = split_prompts(prompts, number, resamples, seed)
        given = posterior.with_temperature(tau)
        log_odds.append(given.log_odds_on(splits[:, :number]).flatten())
        needed.append(posterior.best_on(splits[:, number:]).flatten())
    return Decisions(torch.cat(log_odds), torch.cat(needed))


def _listed(posteriors: Iterable[HeadPosterior] | HeadPosterior) -> list[HeadPosterior]:
    listed = list(posteriors) if isinstance(posteriors, Iterable) else [posteriors]
    check_not_empty("posteriors", listed)
    for posterior in listed:
        accepted = "what circuit_posterior or lh.head_posterior returns"
        check_instance("posteriors", posterior, HeadPosterior, accepted)
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


@dataclass(frozen=True)
class Calibration:
    """A calibrated temperature.

    Attributes:
        tau: The temperature with the largest score; at an end of a flat part the one nearest to the
            others.
        temperatures: The temperatures that were tried.
        scores: Mean log-probability of the decisions at each.
        is_identified: Whether the score falls on both sides of it.
    """

    tau: float
    temperatures: Sequence[float]
    scores: Sequence[float]
    is_identified: bool

    @property
    def close(self) -> tuple[float, float]:
        """The least and the largest temperature with a score within .01 nats of the best."""
        best = max(self.scores)
        pairs = zip(self.temperatures, self.scores, strict=True)
        fitting = [tau for tau, score in pairs if score >= best - CLOSE]
        return min(fitting), max(fitting)

    def __repr__(self) -> str:
        low, high = self.close
        unidentified = "" if self.is_identified else ", not identified"
        return f"Calibration(tau {self.tau:g}, within .01 nats {low:g} to {high:g}{unidentified})"

    def to_frame(self) -> pd.DataFrame:
        """A row for each temperature: tau and score."""
        return make_frame({"tau": self.temperatures, "score": self.scores})


def calibrate(
    posteriors: Iterable[HeadPosterior] | HeadPosterior,
    size: int | None = None,
    temperatures: Iterable[float] | None = None,
    resamples: int = 400,
    seed: int = 0,
) -> Calibration:
    """The temperature with the largest mean log-probability of what held-out prompts decide.

    Args:
        posteriors: A posterior of :func:`.circuit_posterior` or
            :func:`latentheads.head_posterior`, or several, such as of several layers; their
            temperature does not matter. Their prompts or sentences are taken as independent: of
            copies, or of several prompts with one text, probabilities become overconfident.
        size: Prompts that a posterior is given, the others decide; None: half of them.
        temperatures: Two temperatures or more to try; None: powers of 2, as far as the score
            rises.
        resamples: Number of splits.
        seed: Their seed.

    Warns:
        UserWarning: There are fewer than 16 prompts, or the score has no maximum: it is flat
            towards temperatures of 0 where all splits agree, or towards large ones.

    Example:
        >>> circuits = lh.contrib.circuits
        >>> prompts = circuits.Prompts.of([[3, 4, first, last] for first in (5, 6, 7, 8)
        ...                                for last in (5, 6, 7, 8)])
        >>> scorer = circuits.SubsetScorer(gpt2, prompts, "decoder.1.self")
        >>> posterior = circuits.circuit_posterior(scorer, penalty=1e-3, tau=1)
        >>> posterior = posterior.with_temperature(circuits.calibrate(posterior).tau)
    """
    increasing = None if temperatures is None else sorted({*temperatures})
    if increasing is not None and len(increasing) < 2:
        raise ValueError(
            f"temperatures must be at least two to choose from, got {len(increasing)}; None "
            "tries powers of 2"
        )
    listed = _listed(posteriors)
    if increasing is None:
        scores = _widen(lambda tau: decide(listed, size, tau, resamples, seed).score)
    else:
        scores = {tau: decide(listed, size, tau, resamples, seed).score for tau in increasing}
    calibration = _select(scores)
    if (prompts := min(len(posterior.tokens) for posterior in listed)) < MIN_PROMPTS:
        warnings.warn(
            f"a temperature of {prompts} prompts or sentences makes probabilities near 0 and 1 "
            f"overconfident: take {MIN_PROMPTS} or more",
            stacklevel=2,
        )
    if not calibration.is_identified:
        warnings.warn(_describe_flat(calibration), stacklevel=2)
    return calibration


def _widen(score: Callable[[float], float]) -> dict[float, float]:
    """Scores of powers of 2, further out while the best is at an end and not on a flat part."""
    powers = list(POWERS)
    scores = {power: score(2.0**power) for power in powers}
    for step in (-1, 1):
        while abs(end := powers[0 if step < 0 else -1]) < WIDEST:
            gain = scores[end] - scores[end - step]
            if scores[end] < max(scores.values()) or gain <= TOLERANCE:
                break
            powers.insert(0 if step < 0 else len(powers), end + step)
            scores[end + step] = score(2.0 ** (end + step))
    return {2.0**power: scores[power] for power in powers}


def _select(scores: Mapping[float, float]) -> Calibration:
    """The best temperature; of a flat part that reaches an end the one nearest to the others."""
    temperatures, values = list(scores), list(scores.values())
    best = max(values)
    flat = [index for index, value in enumerate(values) if value >= best - TOLERANCE]
    at_low, at_high = flat[0] == 0, flat[-1] == len(values) - 1
    if at_low and at_high:
        index = flat[len(flat) // 2]
    elif at_low:
        index = flat[-1]
    elif at_high:
        index = flat[0]
    else:
        index = values.index(best)
    identified = not (at_low or at_high)
    return Calibration(temperatures[index], temperatures, values, identified)


def _describe_flat(calibration: Calibration) -> str:
    """Why a temperature is not identified."""
    tau, score, best = calibration.tau, calibration.scores, max(calibration.scores)
    is_low = score[0] >= best - TOLERANCE
    if is_low and score[-1] >= best - TOLERANCE:
        return f"tau is not identified: all temperatures score alike; {tau:g} is in their middle"
    if is_low:
        return (
            f"tau is not identified: splits agree on every head, and each tau up to {tau:g} fits "
            "as well; this one is the largest"
        )
    return (
        f"tau is not identified: what is given hardly predicts what the rest needs, and "
        f"each tau from {tau:g} on fits as well; this one is the least"
    )
