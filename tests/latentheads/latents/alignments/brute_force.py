"""Random alignments on tiny prime sizes, and everything about them by brute force."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

from latentheads.latents.alignments.chain import ChainInference, ChainParameters
from latentheads.latents.alignments.distribution import NOWHERE, Alignments, CategoricalParameters
from latentheads.latents.alignments.exact import ExactInference, IndependentWords

SENTENCES, WORDS, KEYS = 2, 3, 3
SHAPES = {"one head": (1, 1), "two heads": (1, 2), "two blocks": (2, 1)}
KINDS = (*SHAPES, "chain")


def valid() -> Tensor:
    """The last word of the last sentence is padding."""
    ones = torch.ones(SENTENCES, WORDS, dtype=torch.bool)
    ones[-1, -1] = False
    return ones


def scores(heads: int) -> Tensor:
    """Random scores; the first sentence lacks the last position."""
    values = torch.randn(SENTENCES, WORDS, heads, KEYS, dtype=torch.float64)
    values[0, ..., -1] = NOWHERE
    return values


def pair(words: int = WORDS) -> Tensor:
    """What a head reads of another."""
    return torch.randn(SENTENCES, words, KEYS, KEYS, dtype=torch.float64)


def pointings(kind: str, condition_on: bool = True) -> list[CategoricalParameters]:
    """A random distribution of every block."""
    if kind == "chain":
        steps = pair(1)
        return [
            ChainParameters(
                scores(1), transition_scores=steps if condition_on else torch.zeros_like(steps)
            )
        ]
    blocks, heads = SHAPES[kind]
    if blocks == 1:
        return [
            CategoricalParameters(
                scores(heads), {(1, 0): pair()} if heads > 1 and condition_on else {}
            )
        ]
    return [
        CategoricalParameters(scores(1)),
        CategoricalParameters(scores(1), {(1, 0): pair(1)} if condition_on else {}, 1),
    ]


def chained(categorical_parameters: CategoricalParameters) -> CategoricalParameters:
    """A random distribution of a chain whose words read each other differently."""
    return ChainParameters(categorical_parameters.scores, transition_scores=pair())


def table(kind: str) -> Tensor:
    """Random log-probabilities of the words."""
    heads = 1 if kind == "chain" else 1 if kind == "one head" else 2
    return torch.randn(SENTENCES, WORDS, *(KEYS,) * heads, dtype=torch.float64)


def summed(kind: str, priors: Sequence[CategoricalParameters], words: Tensor) -> ExactInference:
    """What is tested."""
    own = ChainInference if kind == "chain" else IndependentWords
    return own(priors, words, valid())


def all_alignments(heads: int) -> Tensor:
    """All alignments of a sentence's words, one behind the other."""
    places = torch.tensor(list(product(range(KEYS), repeat=WORDS * heads)))
    return places.view(-1, 1, WORDS, heads).expand(-1, SENTENCES, WORDS, heads)


def block_distributions(
    pointed: Sequence[CategoricalParameters], value: Tensor
) -> list[Alignments]:
    """The distribution of each block where the blocks below took a value."""
    return [
        Alignments(pointing, valid(), value[..., : pointing.first_head]) for pointing in pointed
    ]


def whole(alignments: Alignments) -> Alignments:
    """The same distribution where no word is padding."""
    return Alignments(alignments.parameters, torch.ones_like(alignments.valid), alignments.below)


def log_prob(pointed: Sequence[CategoricalParameters], value: Tensor) -> Tensor:
    """Log-probability of all blocks' alignments, sentence by sentence."""
    parts = block_distributions(pointed, value)
    own = [
        value[..., pointing.first_head : pointing.first_head + len(pointing.heads)]
        for pointing in pointed
    ]
    return torch.stack([part.log_prob(z) for part, z in zip(parts, own, strict=True)]).sum(0)


def said(words: Tensor, value: Tensor) -> Tensor:
    """Log-probability of the words given alignments."""
    computed_words = words.expand(*value.shape[:-1], *words.shape[2:])
    for position in value.unbind(-1):
        index = position.view(*position.shape, *(1,) * (computed_words.ndim - position.ndim))
        computed_words = computed_words.take_along_dim(index, position.ndim).squeeze(position.ndim)
    return (computed_words * valid()).sum(-1)


def everything(
    kind: str, priors: Sequence[CategoricalParameters], words: Tensor
) -> tuple[Tensor, Tensor]:
    """Log p(z) and log p(y | z) of all alignments; those of padding are fixed."""
    values = all_alignments(sum(len(prior.heads) for prior in priors))
    return log_prob(priors, values), said(words, values)
