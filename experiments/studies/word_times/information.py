"""Information of heads against that on fresh sentences, and sentences that do not fit their words.

Sentences of two sets with the same voices are drawn anew for each trial: some are learned from, and
the information of every head on others is the truth, by the profiles that were learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.contrib.heads.alignment_heads import AlignmentHeads, fit_alignment_heads
from latentheads.contrib.heads.boundary_fit import view_information
from latentheads.contrib.heads.word_attention import WordAttention
from latentheads.experiments.studies.word_times.cache import CachedUtterance
from latentheads.experiments.studies.word_times.rivals import HEADS
from latentheads.metrics.seeds import spread

SIZES = (1, 2, 3, 5)
"""Sentences that are learned from."""

TRIALS = 5
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
    """Of each head: information on fresh and on learned sentences, the estimate, its interval."""
    order = random.permutation(len(utterances))[: size + FRESH]
    attentions = [utterances[index].attention(labelled) for index in order]
    heads = fit_alignment_heads(HEADS, attentions[:size])
    rows = {row.head: row.information for row in heads.table()}
    estimates = torch.tensor([rows[head] for head in HEADS], dtype=torch.float64)
    truth, learned = (_information(heads, x) for x in (attentions[size:], attentions[:size]))
    return torch.cat([torch.stack([truth, learned], 1), estimates], 1)


def _information(
    heads: AlignmentHeads, attentions: Sequence[WordAttention]
) -> Float[Tensor, " head"]:
    """The mean over sentences with the profiles that were learned, in the better view."""
    marginals = [heads.model.marginals(heads.model.posterior(a)) for a in attentions]
    views = view_information(heads.model, attentions, marginals)[:, 0].mean(0)
    return views.unflatten(0, (2, -1)).amax(0)


def _summarise(trials: Sequence[Float[Tensor, "head column"]]) -> dict[str, Any]:
    """Means over informative heads of all trials; 95 % intervals are over trials."""
    chosen = [rows[rows[:, 1] > INFORMATIVE] for rows in trials]
    columns = {
        "bias_of_learned": [float((r[:, 1] - r[:, 0]).mean()) for r in chosen],
        "bias": [float((r[:, 2] - r[:, 0]).mean()) for r in chosen],
        "covered": [
            float(((r[:, 3] <= r[:, 0]) & (r[:, 0] <= r[:, 4])).double().mean()) for r in chosen
        ],
        "width": [float((r[:, 4] - r[:, 3]).mean()) for r in chosen],
    }
    has_interval = not bool(torch.cat(chosen)[:, 3].isnan().any())
    return {"heads": sum(map(len, chosen))} | {
        name: [round(value, 3) for value in spread(values)]
        for name, values in columns.items()
        if has_interval or name.startswith("bias")
    }


def measure_misfit(sets: Mapping[str, Sequence[CachedUtterance]]) -> list[dict[str, Any]]:
    """How many sentences of each set are said not to fit their words, of how many.

    Profiles are learned without labels, from sentences of which the last has words of another one;
    this one is in no test.
    """
    rows = []
    for number in (5, 20):
        learned = [*sets["pool"][: number - 1], sets["wrong"][-1]]
        heads = fit_alignment_heads(HEADS, [utterance.attention(False) for utterance in learned])
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
