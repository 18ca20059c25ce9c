"""Utterances whose words are found by all heads."""

from __future__ import annotations

import torch

from latentheads.experiments.studies.word_times.cache import CachedUtterance

HEADS = [(layer, head) for layer in range(4) for head in range(6)]
LISTED = [(1, 0), (2, 0), (2, 5), (3, 0), (3, 1), (3, 2), (3, 3), (3, 4)]


def make_cached(name: str, words: list[str]) -> CachedUtterance:
    """All heads attend to the ten positions of a word while it is predicted."""
    weights = torch.full((len(HEADS), len(words) + 3, 50), 1e-3)
    for row in range(len(words)):
        weights[:, row + 1, 10 * row : 10 * row + 3] = 1.0
    spans = [(2 + index, 3 + index) for index in range(len(words))]
    starts = [0.2 * index for index in range(len(words))]
    energy = torch.ones(50)
    return CachedUtterance(name, words, spans, weights, 50, starts, None, energy, HEADS, LISTED)
