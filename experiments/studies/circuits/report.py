"""What the tables of subsets show: calibration, stability, interactions, gaps, samplers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from latentheads.checks import check_not_empty
from latentheads.contrib.circuits import CircuitPosterior, gibbs, interactions, smc
from latentheads.experiments.studies.circuits.gaps import guide_gaps, table_density
from latentheads.experiments.studies.circuits.intervals import (
    bootstrap_interval,
    bootstrap_intervals,
    wilson_interval,
)
from latentheads.experiments.studies.circuits.reliability import PENALTIES, calibration
from latentheads.experiments.studies.circuits.stability import stability
from latentheads.experiments.studies.circuits.tables import GIVEN, Key, load_posterior
from latentheads.metrics.seeds import spread


def read_tables(folder: Path) -> dict[Key, CircuitPosterior]:
    """The posteriors of all tables, by task, layer and intervention."""
    posteriors = {}
    for path in sorted(folder.glob("*-*-*.json")):
        if path.stem.endswith("-attributions"):
            continue
        task, layer, intervention = path.stem.rsplit("-", 2)
        posteriors[task, int(layer), intervention] = load_posterior(path)
    return dict(sorted(posteriors.items()))


def inclusion(
    posteriors: Mapping[Key, CircuitPosterior], taus: Mapping[str, float], penalty: float
) -> list[dict[str, Any]]:
    """The probability of every head on the given prompts, with intervals over prompts."""
    check_not_empty("tables of these tasks, layers and interventions", posteriors)
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
                    mean, low, high = bootstrap_intervals(own)
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
                            "sum": bootstrap_interval(own.sum(1)),
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


def bounds(
    posteriors: Mapping[Key, CircuitPosterior], taus: Mapping[str, float], penalty: float
) -> list[dict[str, Any]]:
    """The exact gap of each guide, and the error of samplers, on every table."""
    blocks = [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    rows = []
    for (task, layer, intervention), posterior in posteriors.items():
        given = replace(posterior.on(torch.arange(GIVEN)), penalty=penalty, tau=taus[task])
        log_evidence = float(given.log_density.logsumexp(0))
        density = table_density(given.log_density)
        runs = [smc(density, blocks, particles=200, seed=seed) for seed in range(3)]
        errors = [_largest_error(run.inclusion, given) for run in runs]
        evidence = [float(run.log_evidence or 0) - log_evidence for run in runs]
        chain = gibbs(density, blocks, sweeps=200, chains=4)
        rows.append(
            {
                "task": task,
                "layer": layer,
                "intervention": intervention,
                **guide_gaps(given, [9], ("mean-field", "autoregressive")),
                "log_evidence": log_evidence,
                "smc": {"largest_error": sum(errors) / 3, "log_evidence_error": sum(evidence) / 3},
                "gibbs": {"largest_error": _largest_error(chain.inclusion, given)},
            }
        )
    return rows


def _largest_error(inclusion: Tensor, posterior: CircuitPosterior) -> float:
    return float((inclusion - posterior.inclusion).abs().max())


def make_report(folder: Path) -> dict[str, Any]:
    """Everything that the tables and the attributions of a folder show."""
    every = read_tables(folder)
    main = {key: p for key, p in every.items() if key[2] == "counterfactual"}
    attributions = {}
    for path in folder.glob("*-attributions.json"):
        record = json.loads(path.read_text("utf-8"))
        attributions[record["task"]] = {
            name: torch.tensor(x, dtype=torch.float64) for name, x in record["scores"].items()
        }
    attributed = {key: p for key, p in main.items() if key[0] in attributions}
    check_not_empty(f"counterfactual tables with attributions in {folder}", attributed)
    networks = planted(folder)
    reliability = calibration(main)
    penalty = PENALTIES[0]
    taus = next(row["taus"] for row in reliability if row["penalty"] == penalty)
    tau = sorted(taus.values())[len(taus) // 2]
    return {
        "calibration": reliability,
        "inclusion": [row for p in PENALTIES for row in inclusion(every, taus, p)],
        "stability": stability(attributed, attributions, tau, penalty),
        "interactions": interaction_table(folder),
        "bounds": bounds(every, taus, penalty),
        "planted": networks,
    }


def planted(folder: Path) -> dict[str, Any]:
    """How well posteriors find the heads that small networks were trained with."""
    rows = [json.loads(p.read_text("utf-8")) for p in sorted(folder.glob("planted-*.json"))]
    check_not_empty(f"planted networks in {folder}", rows)
    truth = torch.tensor([row["planted"] for row in rows]).bool()
    kept, off = (heads.sum(1, dtype=torch.float64) for heads in (truth, ~truth))
    probability = torch.tensor([row["inclusion"] for row in rows], dtype=torch.float64)
    areas = {
        name: torch.tensor([row["area_under_curve"][name] for row in rows], dtype=torch.float64)
        for name in rows[0]["area_under_curve"]
    }
    inside = probability > 0.5

    def over_networks(values: Tensor) -> list[float]:
        return list(spread(values.tolist()))

    def shares(values: Tensor) -> list[float]:
        if bool((values == 1).all()):  # networks do not differ, yet others may
            return [1.0, *wilson_interval(len(values), len(values))]
        return over_networks(values)

    gaps = {name: [row["gaps"][name]["gap"] for row in rows] for name in rows[0]["gaps"]}
    return {
        "networks": rows,
        "kept_above_half": shares((inside & truth).sum(1) / kept),
        "off_below_half": shares((~inside & ~truth).sum(1) / off),
        "right": shares((inside == truth).double().mean(1)),
        "area": {name: over_networks(x) for name, x in areas.items()},
        "area_less_posterior": {
            name: over_networks(x - areas["posterior"]) for name, x in areas.items()
        },
        "gap": {name: list(spread(values)) for name, values in gaps.items()},
    }
