"""How much a set of heads depends on which examples it was learned from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from latentheads.contrib.heads.alignment_heads import AlignmentHeads
from latentheads.contrib.heads.boundaries.fit import (
    FitOptions,
    learn,
    left_out_information,
    make_model,
)
from latentheads.contrib.heads.word_attention import WHISPER_STEP, Head
from latentheads.experiments.studies.subsets.overlap import mean_jaccard
from latentheads.experiments.studies.word_times.cache import CachedUtterance

SIZES = (5, 20, 100)
"""Examples of a resample."""

THRESHOLD = 0.1
"""Score from which AlignAtt's tools call a head one of alignment."""


def attention_scores(utterances: Sequence[CachedUtterance]) -> dict[Head, float]:
    """Share of words whose likeliest position lies between their start and the next one's."""
    heads = utterances[0].heads
    hits = torch.zeros(len(heads))
    words = 0
    for utterance in utterances:
        attention = utterance.attention(labelled=True)
        starts = attention.starts
        next_starts = torch.cat([starts[1:], torch.tensor([float(attention.positions)])])
        peaks = attention.weights[: len(heads)].argmax(-1)
        is_known = starts.isfinite() & next_starts.isfinite()
        is_inside = (starts.floor() <= peaks) & (peaks < next_starts)
        hits += is_inside[:, is_known].sum(-1)
        words += int(is_known.sum())
    return dict(zip(heads, (hits / words).tolist()))


def select_heads(utterances: Sequence[CachedUtterance]) -> dict[str, set[Head]]:
    """The set of heads of each method, given labelled utterances."""
    attentions = [utterance.attention(labelled=True) for utterance in utterances]
    options = FitOptions(rounds=2)
    model = make_model(attentions, options)
    marginals = [model.posterior(attention).marginals for attention in attentions]
    model = learn(model, attentions, attentions, marginals, options)
    information = left_out_information(model, attentions, options)
    evidence = math.nan  # no misfit is looked for
    heads = AlignmentHeads(
        model, utterances[0].heads, information, attentions, WHISPER_STEP, evidence
    )
    scores = attention_scores(utterances)
    best = sorted(scores, key=lambda head: -scores[head])
    return {
        "probability above .5": {h for h, p in heads.probabilities.items() if p > 0.5},
        "probability above .95": {h for h, p in heads.probabilities.items() if p > 0.95},
        "six most informative": {row.head for row in heads.table()[:6]},
        f"score above {THRESHOLD}": {h for h, score in scores.items() if score > THRESHOLD},
        "six highest scores": set(best[:6]),
    }


def measure_stability(
    utterances: Sequence[CachedUtterance], resamples: int = 4
) -> dict[str, dict[str, Any]]:
    """Mean intersection over union of the sets of pairs of resamples."""
    random = np.random.default_rng(0)
    results = {}
    for size in SIZES:
        sets = [
            select_heads([utterances[i] for i in random.integers(len(utterances), size=size)])
            for _ in range(resamples)
        ]
        results[str(size)] = {
            method: {
                "jaccard": round(mean_jaccard([s[method] for s in sets]), 3),
                "heads": [len(s[method]) for s in sets],
            }
            for method in sets[0]
        }
    return results
