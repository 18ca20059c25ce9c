"""Information of heads against that on fresh sentences, and sentences that do not fit their words.

Sentences of two sets with the same voices are drawn anew for each trial: some are learned from, and
the information of every head on others is the truth, by the profiles that were learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.contrib.heads.alignment_heads import AlignmentHeads, fit_alignment_heads
from latentheads.contrib.heads.boundaries.fit import view_information
from latentheads.contrib.heads.word_attention import WordAttention
from latentheads.experiments.studies.word_times.cache import CachedUtterance
from latentheads.experiments.studies.word_times.measures import fit_heads
from latentheads.metrics.seeds import spread

SIZES = (1, 2, 3, 5)
"""Sentences that are learned from."""

TRIALS = 10
"""Draws of the sentences, of each size."""

FRESH = 20
"""Sentences that the truth is measured on."""

INFORMATIVE = 0.5
"""Nats on the learned sentences above which a head is in the summary."""


RIGHT = ("test", "other", "dev", "noise20", "noise10", "noise5")
"""Sets whose words are those of the sound."""

WRONG = ("wrong", "half")
"""Sets whose words, or the second half of them, are those of another sentence."""


def measure_information(utterances: Sequence[CachedUtterance]) -> list[dict[str, Any]]:
    """A row for each number of sentences, labelled or not."""
    random = np.random.default_rng(0)
    return [
        {"labelled": labelled, "sentences": size}
        | _summarise([_trial(utterances, size, labelled, random) for _ in range(TRIALS)])
        for labelled in (True, False)
        for size in SIZES
    ]


def _trial(
    utterances: Sequence[CachedUtterance], size: int, labelled: bool, random: np.random.Generator
) -> Float[Tensor, "head column"]:
    """Of each head: the truth, information on learned sentences, the estimate; with intervals."""
    order = random.permutation(len(utterances))[: size + FRESH]
    attentions = [utterances[index].attention(labelled) for index in order]
    heads = fit_alignment_heads(utterances[0].heads, attentions[:size])
    rows = {row.head: row.information for row in heads.table()}
    estimates = torch.tensor([rows[head] for head in utterances[0].heads], dtype=torch.float64)
    truth, learned = (_information(heads, x) for x in (attentions[size:], attentions[:size]))
    weights = torch.from_numpy(random.dirichlet(np.ones(size), 2000))
    levels = torch.tensor([0.05, 0.95], dtype=torch.float64)
    low, high = (weights @ learned).quantile(levels, 0)
    return torch.cat([torch.stack([truth.mean(0), learned.mean(0), low, high], 1), estimates], 1)


def _information(
    heads: AlignmentHeads, attentions: Sequence[WordAttention]
) -> Float[Tensor, "sentence head"]:
    """Of each sentence, with the profiles that were learned and in the better view."""
    marginals = [heads.model.posterior(a).marginals for a in attentions]
    views = view_information(heads.model, attentions, marginals)[:, 0].unflatten(-1, (2, -1))
    best = views.mean(0).argmax(0)
    return views.gather(1, best.expand(len(views), 1, -1))[:, 0]


def _summarise(trials: Sequence[Float[Tensor, "head column"]]) -> dict[str, Any]:
    """Means over informative heads of all trials, with 95 % intervals over trials."""
    chosen = [rows[rows[:, 1] > INFORMATIVE].mT for rows in trials]
    columns = {
        "bias_of_learned": [learned - truth for truth, learned, *_ in chosen],
        "covered_by_bootstrap": [_covered(truth, low, high) for truth, _, low, high, *_ in chosen],
        "bias": [estimate - truth for truth, *_, estimate, _, _ in chosen],
        "covered": [_covered(truth, low, high) for truth, *_, low, high in chosen],
        "width": [high - low for *_, low, high in chosen],
    }
    means = {name: [float(x.mean()) for x in values] for name, values in columns.items()}
    return {"heads": sum(rows.shape[1] for rows in chosen)} | {
        name: None if isnan(values[0]) else [round(value, 3) for value in spread(values)]
        for name, values in means.items()
    }


def _covered(truth: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return ((low <= truth) & (truth <= high)).double() + 0 * low  # no number without an interval


def measure_misfit(sets: Mapping[str, Sequence[CachedUtterance]]) -> list[dict[str, Any]]:
    """How many sentences of each set are said not to fit their words, of how many.

    Profiles are learned without labels, from sentences of which the last has words of another one;
    this one is in no test.
    """
    rows = []
    for number in (5, 20):
        learned = [*sets["pool"][: number - 1], sets["wrong"][-1]]
        heads = fit_heads(learned, False)
        tests = {name: [u.attention(False) for u in sets[name][:-1]] for name in (*RIGHT, *WRONG)}
        rows.append(
            {
                "learned": number,
                "learned_misfits": sum(map(heads.is_misfit, heads.attentions)),
                "misfits": {name: sum(map(heads.is_misfit, test)) for name, test in tests.items()},
                "sentences": {name: len(test) for name, test in tests.items()},
                "evidence": {
                    name: [round(x, 2) for x in _range([heads.evidence(a) for a in test])]
                    for name, test in tests.items()
                },
            }
        )
    return rows


def _range(values: Sequence[float]) -> tuple[float, float, float]:
    return min(values), float(np.median(values)), max(values)
