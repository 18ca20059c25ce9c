"""Tiny attention and models of it, for tests."""

from __future__ import annotations

from dataclasses import replace

import torch

from latentheads.contrib.heads.boundaries.chain import BoundaryChain
from latentheads.contrib.heads.boundaries.model import BoundaryModel
from latentheads.contrib.heads.boundaries.profiles import make_profiles
from latentheads.contrib.heads.word_attention import WordAttention

HEADS, WORDS, POSITIONS, REACH = 3, 2, 5, 2


def make_attention(seed: int = 0, words: int = WORDS, positions: int = POSITIONS) -> WordAttention:
    """Random attention; the first word has a start, and the last one an end."""
    random = torch.Generator().manual_seed(seed)
    weights = torch.rand(HEADS, words, positions, generator=random, dtype=torch.float64)
    starts, ends = torch.full((2, words), torch.nan, dtype=torch.float64)
    starts[0], ends[-1] = 1.3, positions - 0.9
    return WordAttention(0.9 * weights / weights.sum(-1, keepdim=True), starts, ends)


def make_model(kinds: int = 2, seed: int = 1, least: int = 0) -> BoundaryModel:
    """A random model of some heads, of which two are chosen for each kind."""
    random = torch.Generator().manual_seed(seed)
    profiles = make_profiles(kinds, HEADS, REACH, width=0.7, counts=1.7)
    weights = torch.rand(profiles.weights.shape, generator=random, dtype=torch.float64)
    shares = torch.rand(2, kinds, HEADS, generator=random, dtype=torch.float64)
    profiles = replace(
        profiles,
        weights=weights / weights.sum(-1, keepdim=True),
        background=shares[0],
        follows=shares[1],
    )
    jumps = torch.rand(kinds, 4, generator=random, dtype=torch.float64).log_softmax(-1)
    return BoundaryModel(
        profiles,
        BoundaryChain(jumps, jumps.roll(1, -1), least),
        torch.tensor([[False, True, True], [True, False, True]])[:kinds],
        torch.tensor([0.8, 1.1], dtype=torch.float64)[:kinds],
        torch.tensor([0.3, -0.4], dtype=torch.float64)[:kinds],
    )
