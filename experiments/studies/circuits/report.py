"""What the tables of subsets show: calibration, stability, interactions, gaps, samplers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from latentheads.contrib.circuits import (
    CircuitGuide,
    CircuitPosterior,
    Decisions,
    calibrate,
    decide,
    exact_bound,
    fit_guide,
    gibbs,
    interactions,
    smc,
    split_prompts,
)
from latentheads.experiments.studies.circuits.tables import load_posterior
from latentheads.latents.bernoulli_heads.subsets import subset_index

PENALTIES = (0.003, 0.01)
"""Penalties of a head, in nats of divergence a prompt."""

GIVEN = 16
"""Prompts that a posterior is given; the other 16 decide."""

RESAMPLES = 20
BOOTSTRAP = 2000
FAITHFUL = 0.25
"""A set is faithful if it loses at most so much of what the layer without heads loses."""

METHODS = (
    "posterior",
    "smallest subset",
    "attribution",
    "integrated",
    "gradient",
    "gates",
    "single ablation",
    "random",
)

Key = tuple[str, int, str]
"""Task, layer and intervention."""


def read_tables(folder: Path, likelihood: str = "kl") -> dict[Key, CircuitPosterior]:
    """The posteriors of all tables, by task, layer and intervention."""
    posteriors = {}
    for path in sorted(folder.glob("*-*-*.json")):
        if path.stem.endswith("-attributions"):
            continue
        task, layer, intervention = path.stem.rsplit("-", 2)
        posteriors[task, int(layer), intervention] = load_posterior(path, likelihood)
    return dict(sorted(posteriors.items()))


def interval(values: Tensor, seed: int = 0) -> list[float]:
    """Mean of values, and the bounds of its 95 % bootstrap interval."""
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(len(values), (BOOTSTRAP, len(values)), generator=generator)
    low, high = values[index].mean(1).quantile(torch.tensor([0.025, 0.975]).to(values))
    return [float(values.mean()), float(low), float(high)]


def calibration(posteriors: Mapping[Key, CircuitPosterior]) -> list[dict[str, Any]]:
    """How often heads of stated probability are needed by other prompts, by way of stating it.

    Splits of 16 given prompts and 16 that decide. The temperature is that of the other two tasks,
    or of splits of the given prompts alone, 8 and 8, joint for the layers of a task. bootstrap: the
    share of resamples of the given prompts whose best subset has the head. The interval is over
    heads, as splits of one head are no further evidence.
    """
    rows = []
    tasks = sorted({task for task, _, _ in posteriors})
    for penalty in PENALTIES:
        penalised = {key: p.with_penalty(penalty) for key, p in posteriors.items()}
        parts: dict[str, list[Decisions]] = {}
        taus = {}
        for task in tasks:
            own = [p for (t, _, _), p in penalised.items() if t == task]
            other = [p for (t, _, _), p in penalised.items() if t != task]
            taus[task] = calibrate(other, GIVEN, resamples=RESAMPLES)
            for name, tau in (("other tasks", taus[task]), ("tau 1", 1.0), ("tau 1/100", 0.01)):
                parts.setdefault(name, []).extend(
                    decide([posterior], GIVEN, tau, RESAMPLES, seed=1) for posterior in own
                )
            splits = split_prompts(len(own[0].tokens), GIVEN, RESAMPLES, seed=1)
            inner: list[list[Decisions]] = [[] for _ in own]
            for split in splits:
                tau = calibrate([p.on(split[:GIVEN]) for p in own], GIVEN // 2, resamples=10)
                for number, p in enumerate(own):
                    log_odds = p.with_temperature(tau).log_odds_on(split[None, :GIVEN])[0]
                    inner[number].append(Decisions(log_odds, p.best_on(split[None, GIVEN:])[0]))
            parts.setdefault("given prompts", []).extend(map(_join, inner))
            parts.setdefault("bootstrap", []).extend(_bootstrap(p, splits) for p in own)
        reference = _scores(parts["given prompts"])
        for name, decisions in parts.items():
            difference = interval(_scores(decisions) - reference)
            figures = {"less_given_prompts": difference, **_reliability(decisions)}
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


def _by_head(parts: Sequence[Decisions]) -> tuple[Tensor, Tensor]:
    """The probability of every head of every layer in each split, and whether it is needed."""
    probability = torch.cat([d.probability.view(-1, 9).mT for d in parts])
    return probability, torch.cat([d.needed.view(-1, 9).mT for d in parts])


def _scores(parts: Sequence[Decisions]) -> Tensor:
    """The mean log-probability of the decisions on every head."""
    probability, needed = _by_head(parts)
    clipped = probability.clamp(1e-6, 1 - 1e-6)
    return torch.where(needed > 0, clipped.log(), (1 - clipped).log()).mean(1)


def _reliability(parts: Sequence[Decisions]) -> dict[str, Any]:
    """Bins of probabilities, their error, and the mean log-probability, with intervals."""
    probability, needed = _by_head(parts)
    bins = []
    for low, high in ((0, 0.1), (0.1, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.001)):
        inside = (probability >= low) & (probability < high)
        if not inside.any():
            continue
        counts = inside.sum(1)
        used = counts > 0
        weights = counts[used].double()
        shares = (needed * inside).sum(1)[used] / weights
        generator = torch.Generator().manual_seed(0)
        index = torch.randint(len(weights), (BOOTSTRAP, len(weights)), generator=generator)
        means = (weights[index] * shares[index]).sum(1) / weights[index].sum(1)
        bounds = means.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64))
        bins.append(
            {
                "from": low,
                "to": min(high, 1),
                "heads": int(used.sum()),
                "decisions": int(inside.sum()),
                "probability": float(probability[inside].mean()),
                "share": float(needed[inside].mean()),
                "low": float(bounds[0]),
                "high": float(bounds[1]),
            }
        )
    total = sum(b["decisions"] for b in bins)
    error = sum(b["decisions"] * abs(b["probability"] - b["share"]) for b in bins) / total
    return {"bins": bins, "calibration_error": error, "log_score": interval(_scores(parts))}


def inclusion(
    posteriors: Mapping[Key, CircuitPosterior], taus: Mapping[str, float], penalty: float
) -> list[dict[str, Any]]:
    """The probability of every head on the given prompts, with intervals over prompts."""
    rows = []
    for (task, layer, intervention), posterior in posteriors.items():
        given = posterior.with_penalty(penalty).on(torch.arange(GIVEN))
        given = replace(given, tau=taus[task])
        intervals = given.bootstrap(1000)
        fresh = posterior.with_penalty(penalty).on(torch.arange(GIVEN, len(posterior.tokens)))
        whole = posterior.log_likelihoods.mean(0)
        singles = [-float(whole[-1 - 2**head]) for head in range(len(given.labels))]
        rows.append(
            {
                "task": task,
                "layer": layer,
                "intervention": intervention,
                "tau": taus[task],
                "penalty": penalty,
                "labels": list(given.labels),
                "inclusion": given.inclusion.tolist(),
                "low": intervals.low.tolist(),
                "high": intervals.high.tolist(),
                "needed": fresh.best.tolist(),
                "single_ablation": singles,
                "without_layer": -float(whole[0]),
            }
        )
    return rows


def stability(
    posteriors: Mapping[Key, CircuitPosterior],
    attributions: Mapping[str, Mapping[str, Tensor]],
    tau: float,
    penalty: float,
) -> dict[str, Any]:
    """Sets of equal faithfulness from resamples of prompts: overlap, size, and loss on the rest."""
    layers: list[dict[str, Any]] = []
    for (task, layer, _), posterior in posteriors.items():
        loss = -posterior.log_likelihoods
        allowed = FAITHFUL * float(loss[:, 0].mean())
        generator = torch.Generator().manual_seed(layer)
        sets: dict[str, list[Tensor]] = {method: [] for method in METHODS}
        losses: dict[str, list[float]] = {method: [] for method in METHODS}
        for _ in range(RESAMPLES):
            order = torch.randperm(len(loss), generator=generator)
            rows, rest = order[:GIVEN], order[GIVEN:]
            own = {name: x[rows, layer] for name, x in attributions[task].items()}
            given = replace(posterior.on(rows), penalty=penalty, tau=tau)
            for method in METHODS:
                chosen = _choose(method, given, own, allowed, generator)
                sets[method].append(chosen)
                index = int(subset_index(chosen))
                losses[method].append(float(loss[rest, index].mean()) / allowed)
        layers.append(
            {
                "task": task,
                "layer": layer,
                "allowed": allowed,
                "jaccard": {m: _mean_jaccard(sets[m]) for m in METHODS},
                "size": {m: float(torch.stack(sets[m]).sum(1).mean()) for m in METHODS},
                "fresh_loss": {m: sum(losses[m]) / RESAMPLES for m in METHODS},
            }
        )
    summary: dict[str, Any] = {}
    for figure in ("jaccard", "size", "fresh_loss"):
        columns = {m: torch.tensor([row[figure][m] for row in layers]).double() for m in METHODS}
        summary[figure] = {
            m: {
                "mean": interval(columns[m]),
                "less_posterior": interval(columns[m] - columns["posterior"]),
            }
            for m in METHODS
        }
    return {"layers": layers, "summary": summary, "tau": tau, "penalty": penalty}


def _choose(
    method: str,
    given: CircuitPosterior,
    own: Mapping[str, Tensor],
    allowed: float,
    generator: torch.Generator,
) -> Tensor:
    """The smallest set of a ranking, or of all sets, that is faithful on the given prompts."""
    loss = -given.log_likelihoods.mean(0)
    heads = len(given.labels)
    if method == "smallest subset":
        faithful = (loss <= allowed).nonzero()[:, 0]
        sizes = given.subsets.sum(-1)[faithful]
        least = faithful[sizes == sizes.min()]
        return given.subsets[least[loss[least].argmin()]]
    rankings: Mapping[str, Callable[[], Tensor]] = {
        "posterior": lambda: given.log_odds,
        "attribution": lambda: own["attribution"].mean(0).abs(),
        "integrated": lambda: own["integrated"].mean(0).abs(),
        "gradient": lambda: own["gradient"].abs().mean(0),
        "gates": lambda: fit_gates(given),
        "single ablation": lambda: loss[2**heads - 1 - 2 ** torch.arange(heads)],
        "random": lambda: torch.rand(heads, generator=generator),
    }
    ranking = rankings[method]().argsort(descending=True, stable=True)
    gates = torch.zeros(heads, dtype=torch.float64)
    for head in ranking.tolist():
        if loss[int(subset_index(gates))] <= allowed:
            break
        gates[head] = 1
    return gates


def fit_gates(given: CircuitPosterior, steps: int = 60, learning_rate: float = 0.3) -> Tensor:
    """Logits of independent gates with the least expected divergence and penalty of heads."""
    loss = -given.log_likelihoods.mean(0) + given.penalty * given.subsets.sum(-1)
    loss = loss / loss.max()
    logits = torch.zeros(len(given.labels), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([logits], learning_rate)
    for _ in range(steps):
        log_q = given.subsets @ logits - torch.nn.functional.softplus(logits).sum()
        optimizer.zero_grad()
        (log_q.exp() * loss).sum().backward()
        optimizer.step()
    return logits.detach()


def _mean_jaccard(sets: Sequence[Tensor]) -> float:
    """Mean overlap of two sets: intersection over union; of two empty sets 1."""
    overlaps = []
    for first, second in combinations(sets, 2):
        union = float(((first + second) > 0).sum())
        overlaps.append(float((first * second).sum()) / union if union else 1.0)
    return sum(overlaps) / len(overlaps)


def interaction_table(folder: Path) -> list[dict[str, Any]]:
    """Interactions of order 2 and 3, of the divergence and of the logit difference."""
    rows = []
    for path in sorted(folder.glob("*-counterfactual.json")):
        table = json.loads(path.read_text("utf-8"))
        for value in ("divergence", "difference"):
            values = torch.tensor(table[value], dtype=torch.float64).mT
            for order in (2, 3):
                for context in ("whole", "average"):
                    sets, own = interactions(values, order, context)
                    mean, low, high = _interval_of_columns(own)
                    top = mean.abs().argsort(descending=True)[:3].tolist()
                    labels = table["labels"]
                    rows.append(
                        {
                            "task": table["task"],
                            "layer": table["layer"],
                            "value": value,
                            "order": order,
                            "context": context,
                            "sets": len(sets),
                            "negative": int((mean < 0).sum()),
                            "significantly_negative": int((high < 0).sum()),
                            "significantly_positive": int((low > 0).sum()),
                            "sum": interval(own.sum(1)),
                            "largest": [
                                {
                                    "heads": [labels[head] for head in sets[index]],
                                    "mean": float(mean[index]),
                                    "low": float(low[index]),
                                    "high": float(high[index]),
                                }
                                for index in top
                            ],
                        }
                    )
    return rows


def _interval_of_columns(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The mean over prompts of each column, and its 95 % bootstrap interval."""
    generator = torch.Generator().manual_seed(0)
    counts = torch.randint(len(values), (BOOTSTRAP, len(values)), generator=generator)
    weights = torch.nn.functional.one_hot(counts, len(values)).double().mean(1)
    low, high = (weights @ values).quantile(torch.tensor([0.025, 0.975]).double(), 0)
    return values.mean(0), low, high


def bounds(
    posteriors: Mapping[Key, CircuitPosterior], taus: Mapping[str, float], penalty: float
) -> list[dict[str, Any]]:
    """The exact gap of each guide, and the error of samplers, on every table."""
    rows = []
    for (task, layer, intervention), posterior in posteriors.items():
        given = replace(posterior.on(torch.arange(GIVEN)), penalty=penalty, tau=taus[task])
        log_density = given.log_prior + given.log_likelihoods.sum(0) / given.tau
        row: dict[str, Any] = {"task": task, "layer": layer, "intervention": intervention}
        for structure in ("mean-field", "autoregressive"):
            guide = CircuitGuide([9], structure)
            guide.logits.data.copy_(given.log_odds.clamp(-15, 15))
            fit_guide(guide, log_density, steps=150, learning_rate=0.2)
            bound = exact_bound(guide, log_density)
            row[structure] = {"elbo": bound.elbo, "gap": bound.gap, "kl": bound.divergence}
            row["log_evidence"] = bound.log_evidence

        def density(gates: Tensor, log_density: Tensor = log_density) -> Tensor:
            return log_density[subset_index(gates)]

        blocks = [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
        runs = [smc(density, blocks, particles=200, seed=seed) for seed in range(3)]
        errors = [float((run.inclusion - given.inclusion).abs().max()) for run in runs]
        evidence = [float(run.log_evidence or 0) - row["log_evidence"] for run in runs]
        chain = gibbs(density, blocks, sweeps=200, chains=4)
        row["smc"] = {"largest_error": sum(errors) / 3, "log_evidence_error": sum(evidence) / 3}
        row["gibbs"] = {"largest_error": float((chain.inclusion - given.inclusion).abs().max())}
        rows.append(row)
    return rows


def make_report(folder: Path) -> dict[str, Any]:
    """Everything that the tables and the attributions of a folder show."""
    every = read_tables(folder)
    main = {key: p for key, p in every.items() if key[2] == "counterfactual"}
    reliability = calibration(main)
    penalty = PENALTIES[0]
    taus = next(row["taus"] for row in reliability if row["penalty"] == penalty)
    tau = sorted(taus.values())[len(taus) // 2]
    attributions = {}
    for path in folder.glob("*-attributions.json"):
        record = json.loads(path.read_text("utf-8"))
        attributions[record["task"]] = {
            name: torch.tensor(x, dtype=torch.float64) for name, x in record["scores"].items()
        }
    main = {key: p for key, p in main.items() if key[0] in attributions}
    return {
        "calibration": reliability,
        "inclusion": [row for p in PENALTIES for row in inclusion(every, taus, p)],
        "stability": stability(main, attributions, tau, penalty),
        "interactions": interaction_table(folder),
        "bounds": bounds(every, taus, penalty),
        "planted": planted(folder),
    }


def planted(folder: Path) -> dict[str, Any]:
    """How well posteriors find the heads that small networks were trained with."""
    rows = [json.loads(p.read_text("utf-8")) for p in sorted(folder.glob("planted-*.json"))]
    truth = torch.tensor([row["planted"] for row in rows]).bool()
    probability = torch.tensor([row["inclusion"] for row in rows]).double()
    areas = {
        name: torch.tensor([row["area_under_curve"][name] for row in rows]).double()
        for name in rows[0]["area_under_curve"]
    }
    inside = probability > 0.5
    right = (inside == truth).double()
    return {
        "networks": rows,
        "kept_above_half": interval((inside & truth).sum(1) / truth.sum(1)),
        "off_below_half": interval((~inside & ~truth).sum(1) / (~truth).sum(1)),
        "right": interval(right.mean(1)),
        "area": {name: interval(x) for name, x in areas.items()},
        "area_less_posterior": {
            name: interval(x - areas["posterior"]) for name, x in areas.items()
        },
        "gap": {
            name: interval(torch.tensor([row["gaps"][name]["gap"] for row in rows]).double())
            for name in rows[0]["gaps"]
        },
    }
