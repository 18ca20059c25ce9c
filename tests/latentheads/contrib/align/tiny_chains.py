"""Tiny sentence pairs of unequal lengths, their models, and sums by enumeration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import torch
from torch import Tensor

from latentheads.contrib.align.bitext import Bitext, PairBatch, make_bitext
from latentheads.contrib.align.chain import LinkChain
from latentheads.contrib.align.jumps import Jumps, initial_jumps
from latentheads.contrib.align.lexicon import TranslationTable
from latentheads.contrib.align.model import LinkModel
from latentheads.contrib.align.spelling import make_spelling


def spelled_alike(source: Sequence[str], target: Sequence[str]) -> tuple[Tensor, Tensor]:
    """The indices of words of two lists that are spelt alike."""
    pairs = torch.cartesian_prod(torch.arange(len(source)), torch.arange(len(target)))
    first, second = pairs[make_spelling(source, target, *pairs.mT).alike].mT
    return first, second


PAIRS = [(["a", "b", "c"], ["x", "y", "z"]), (["b", "a"], ["z", "x"]), (["c"], ["y", "y"])]
NULL = 0.3


def tiny_bitext() -> Bitext:
    return make_bitext(PAIRS)


def tiny_batch() -> PairBatch:
    (batch,) = tiny_bitext().batches
    return batch


def tiny_jumps(words: int) -> Jumps:
    jumps = initial_jumps(words, NULL, 2.0)
    return Jumps(jumps.weights * (0.5 + torch.rand_like(jumps.weights)), NULL, 2.0)


def tiny_model(bitext: Bitext | None = None) -> LinkModel:
    """A model with random weights, without a gradient."""
    bitext = bitext or tiny_bitext()
    links = torch.nn.functional.pad(0.1 + torch.rand(bitext.pairs.entries), (0, 1))
    null = 0.1 + torch.rand(len(bitext.pairs.target))
    return LinkModel(TranslationTable(links, null), tiny_jumps(len(bitext.pairs.source)))


def paths(chain: LinkChain, row: int) -> Iterator[tuple[list[int], float]]:
    """Every sequence of states of a pair, and its unnormalised probability."""
    weights, positions = chain.weights, chain.positions
    words = int(weights.mask[row].sum())
    for states in product(range(2 * positions), repeat=words):
        before, total = 0, 1.0
        for word, state in enumerate(states):
            position = state % positions
            if state >= positions:
                null = weights.null[row, word].expand(positions)[position]
                total *= float(null) * weights.null_probability * (position == before)
            elif position == 0:
                total = 0.0
            else:
                move = weights.moves[row, before, position]
                total *= float(move * weights.linked[row, word, position - 1])
            before = position
        if total:
            yield list(states), total


def padded(states: list[int], length: int, chain: LinkChain) -> Tensor:
    """The states of one pair as a value, null at padding."""
    return torch.tensor(states + [chain.positions] * (length - len(states)))
