"""Tables of log-likelihoods of prompts with all subsets of a layer's heads, one file a layer."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from latentheads.checks import check_least
from latentheads.contrib.circuits import (
    CircuitPosterior,
    Divergence,
    Prompts,
    SubsetScorer,
    logit_difference,
)
from latentheads.contrib.heads.interventions import Counterfactual, Intervention, Mean, Window, Zero
from latentheads.errors import naming
from latentheads.experiments.studies.circuits.tasks import make_prompts
from latentheads.files import write_text
from latentheads.latents.bernoulli_heads.subsets import all_subsets

PROMPTS = {"indirect-object": 32, "greater-than": 32, "agreement": 32}
"""Prompts of each task; the first half are given, the others are fresh."""

GIVEN = 16
"""Prompts that a posterior is given; the other 16 decide."""

RESAMPLES = 20
"""Random halves, or splits, of the prompts."""

Key = tuple[str, int, str]
"""Task, layer and intervention."""

WINDOW, SINKS = 3, 1
"""Last and first tokens of the intervention window."""


def make_intervention(name: str, network: Any, paired: Prompts) -> Intervention:
    """An intervention of the study; means are over the paired prompts."""
    if name == "zero":
        return Zero()
    if name == "mean":
        return Mean(network, paired.inputs)
    if name == "counterfactual":
        return Counterfactual(network, paired.inputs)
    return Window(WINDOW, SINKS)


def compute_table(
    network: Any, tokenizer: Any, task: str, layer: int, intervention: str, prompts: int
) -> dict[str, Any]:
    """The divergence and the logit difference of every prompt with every subset of a layer's heads.

    Args:
        network: The network.
        tokenizer: Its tokenizer.
        task: The task.
        layer: The layer.
        intervention: The intervention.
        prompts: Number of prompts.
    """
    started = time.process_time()
    own, paired, texts = make_prompts(tokenizer, task, prompts)
    scorer = SubsetScorer(
        network,
        own,
        [f"decoder.{layer}.self"],
        make_intervention(intervention, network, paired),
    )
    gates = all_subsets(len(scorer.heads), torch.empty(()))
    divergence, difference = [], []
    for rows in gates.split(4):
        log_probs = scorer.log_probs(rows)
        divergence.append(Divergence()(log_probs, scorer.whole, own))
        difference.append(logit_difference(log_probs, own))
    return {
        "task": task,
        "layer": layer,
        "intervention": intervention,
        "prompts": texts,
        "labels": scorer.labels,
        "cpu_seconds": round(time.process_time() - started, 1),
        "divergence": _rounded(torch.cat(divergence)),
        "difference": _rounded(torch.cat(difference)),
    }


def write_table(path: Path, table: dict[str, Any]) -> None:
    """Writes a table, whole or not at all."""
    write_text(path, json.dumps(table) + "\n")


def load_posterior(path: Path) -> CircuitPosterior:
    """The posterior of a table by the divergence, of all its prompts, at temperature 1."""
    table = json.loads(path.read_text("utf-8"))
    rows = torch.tensor(table["divergence"], dtype=torch.float64).mT
    labels = table["labels"]
    with naming(str(path)):  # the first are given, and the others decide
        check_least({"prompts": len(rows)}, prompts=GIVEN + 1)
    return CircuitPosterior(
        (),
        rows.contiguous(),
        torch.ones(len(rows), dtype=torch.float64),
        chosen=[(f"decoder.{table['layer']}.self", head) for head in range(len(labels))],
        labels=labels,
        intervention=table["intervention"],
    )


def _rounded(rows: Tensor) -> list[list[float]]:
    """Numbers of five digits."""
    return [[float(f"{x:.5g}") for x in row] for row in rows.tolist()]
