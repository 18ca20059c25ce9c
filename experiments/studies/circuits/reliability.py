"""How often heads of stated probability are needed by prompts that the posterior is not given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from latentheads.checks import check_least
from latentheads.contrib.circuits import (
    CircuitPosterior,
    Decisions,
    calibrate,
    decide,
    split_prompts,
)
from latentheads.experiments.studies.circuits.intervals import ratio_interval, wilson_interval
from latentheads.experiments.studies.circuits.tables import GIVEN, RESAMPLES, Key

PENALTIES = (0.003, 0.01)
"""Penalties of a head, in nats of divergence a prompt."""

HEADS = 9
"""Heads of a layer."""


def calibration(posteriors: Mapping[Key, CircuitPosterior]) -> list[dict[str, Any]]:
    """How often heads of stated probability are needed by other prompts, by way of stating it.

    Splits of 16 given prompts and 16 that decide. The temperature is that of the other two tasks,
    or of splits of the given prompts alone, 8 and 8, joint for the layers of a task. bootstrap: the
    share of resamples of the given prompts whose best subset has the head. Intervals are over
    tasks: splits of one head are no further evidence, nor are heads of one layer.
    """
    rows = []
    of_layers = sorted(task for task, _, _ in posteriors)
    tasks = sorted(set(of_layers))
    check_least({"tasks": len(tasks)}, tasks=2)
    for penalty in PENALTIES:
        penalised = {key: p.with_penalty(penalty) for key, p in posteriors.items()}
        parts: dict[str, list[Decisions]] = {}
        taus = {}
        for task in tasks:
            own = [p for (t, _, _), p in penalised.items() if t == task]
            other = [p for (t, _, _), p in penalised.items() if t != task]
            taus[task] = calibrate(other, GIVEN, resamples=RESAMPLES).tau
            for name, tau in (("other tasks", taus[task]), ("tau 1", 1.0), ("tau 1/100", 0.01)):
                parts.setdefault(name, []).extend(
                    decide([posterior], GIVEN, tau, RESAMPLES, seed=1) for posterior in own
                )
            splits = split_prompts(len(own[0].tokens), GIVEN, RESAMPLES, seed=1)
            inner: list[list[Decisions]] = [[] for _ in own]
            for split in splits:
                tau = calibrate([p.on(split[:GIVEN]) for p in own], GIVEN // 2, resamples=10).tau
                for number, p in enumerate(own):
                    log_odds = p.with_temperature(tau).log_odds_on(split[None, :GIVEN])[0]
                    inner[number].append(Decisions(log_odds, p.best_on(split[None, GIVEN:])[0]))
            parts.setdefault("given prompts", []).extend(map(_join, inner))
            parts.setdefault("bootstrap", []).extend(_bootstrap(p, splits) for p in own)
        reference = _scores(parts["given prompts"])
        for name, decisions in parts.items():
            difference = _mean_interval(_scores(decisions) - reference, of_layers)
            figures = {"less_given_prompts": difference, **reliability(decisions, of_layers)}
            rows.append({"penalty": penalty, "tau": name, "taus": taus, **figures})
    return rows


def _join(decisions: Sequence[Decisions]) -> Decisions:
    return Decisions(
        torch.cat([d.log_odds for d in decisions]), torch.cat([d.needed for d in decisions])
    )


def _bootstrap(posterior: CircuitPosterior, splits: Tensor) -> Decisions:
    """The share of resamples of the given prompts whose best subset has each head."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for split in splits:
        index = torch.randint(GIVEN, (100, GIVEN), generator=generator)
        share = posterior.best_on(split[:GIVEN][index]).mean(0)
        rows.append(share.clamp(0.005, 0.995).logit())
    return Decisions(torch.cat(rows), posterior.best_on(splits[:, GIVEN:]).flatten())


def _by_layer(parts: Sequence[Decisions]) -> tuple[Tensor, Tensor]:
    """The probability of the heads of every layer in all splits, and whether they are needed."""
    return torch.stack([d.probability for d in parts]), torch.stack([d.needed for d in parts])


def _scores(parts: Sequence[Decisions]) -> Tensor:
    """The mean log-probability of the decisions on every layer."""
    probability, needed = _by_layer(parts)
    clipped = probability.clamp(1e-6, 1 - 1e-6)
    return torch.where(needed > 0, clipped.log(), (1 - clipped).log()).mean(1)


def _mean_interval(values: Tensor, tasks: Sequence[str]) -> list[float]:
    return ratio_interval(values, torch.ones_like(values), tasks)


def reliability(parts: Sequence[Decisions], tasks: Sequence[str]) -> dict[str, Any]:
    """Bins of probabilities, their error, and the mean log-probability, with intervals.

    Where all heads or none are needed, tasks do not differ: the interval is Wilson's, of as many
    trials as heads have decisions in the bin.

    Args:
        parts: The decisions of each layer, a row of nine heads for each split.
        tasks: The task of each layer.
    """
    probability, needed = _by_layer(parts)
    bins = []
    for low, high in ((0, 0.1), (0.1, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.001)):
        inside = (probability >= low) & (probability < high)
        if not inside.any():
            continue
        heads = int(inside.view(len(parts), -1, HEADS).any(1).sum())
        counts = inside.sum(1).double()
        share, *bounds = ratio_interval((needed * inside).sum(1).double(), counts, tasks)
        if share in (0, 1):
            bounds = wilson_interval(heads * int(share), heads)
        bins.append(
            {
                "from": low,
                "to": min(high, 1),
                "heads": heads,
                "layers": int((counts > 0).sum()),
                "decisions": int(inside.sum()),
                "probability": float(probability[inside].mean()),
                "share": share,
                "low": max(bounds[0], 0.0),
                "high": min(bounds[1], 1.0),
            }
        )
    total = sum(b["decisions"] for b in bins)
    error = sum(b["decisions"] * abs(b["probability"] - b["share"]) for b in bins) / total
    return {
        "bins": bins,
        "calibration_error": error,
        "log_score": _mean_interval(_scores(parts), tasks),
    }
