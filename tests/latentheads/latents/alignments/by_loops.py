"""Every alignment of a few sentences gone through in numpy, from a model's raw weights.

    python -m tests.latentheads.latents.alignments.by_loops

prints how far what the library computes lies from these sums. Of the library they have the states
of the network below, and the scores that a guide returns; no sum and no Bayes' rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from latentheads.batch import Batch
from latentheads.inference.bound import Terms, terms
from latentheads.latents.alignments.chain import ChainParameters
from latentheads.latents.alignments.distribution import CategoricalParameters
from tests.guides.attached import SUMMED, attach
from tests.latentheads.latents.alignments.models import MIXTURE, SHAPES, aligned
from tests.tiny import small_batch

ALL = {**SHAPES, **MIXTURE}

Array = NDArray[np.float64]
Places = tuple[int, ...]
"""Where every head of a word points."""

Scores = Callable[[int, int, Places, Places | None], Array]
"""Of a head's positions: given the word, the head, where those below point, and the word before."""


def numbers(tensor: Tensor) -> Array:
    computed_tensor: Array = tensor.detach().numpy()
    return computed_tensor


def log_sum(values: Array, axes: int | tuple[int, ...] | None = None) -> Array:
    """The logarithm of a sum of exponentials; the axes stay."""
    top = values.max(axes, keepdims=True)
    array: Array = top + np.log(np.exp(values - top).sum(axes, keepdims=True))
    return array


def linear(layer: nn.Linear, rows: Array) -> Array:
    return rows @ numbers(layer.weight).T + (0 if layer.bias is None else numbers(layer.bias))


def layer_norm(layer: nn.LayerNorm, rows: Array) -> Array:
    centred = rows - rows.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + layer.eps)
    return scaled * numbers(layer.weight) + numbers(layer.bias)


class Head:
    """One head: its block, and its rows for a sentence.

    Args:
        block: Its block.
        place: Its place there.
        states: What predicts each word.
        memory: What it may point at.
    """

    def __init__(self, block: Any, index: int, states: Array, memory: Array) -> None:
        def own(rows: Array) -> Array:
            return np.split(rows, block.block.heads, -1)[index]

        normed = layer_norm(block.norm, memory)
        self.block = block
        self.query, self.key = own(linear(block.query, states)), own(linear(block.key, normed))
        self.vectors = own(linear(block.lexicon, normed))


class Sentence:
    """One sentence of a batch, and all alignments of all its words together.

    Arrays over these have a dimension for each word, in which the places of all its heads are
    counted, the lowest head's slowest.

    Args:
        model: A translation model.
        batch: The sentences.
        place: Which of them.
    """

    def __init__(self, model: Any, batch: Batch, index: int) -> None:
        hidden, components = model.hidden(batch), model.alignments.components
        self.place = index
        self.words = batch.target[index][batch.target_valid[index]].tolist()
        self.states = numbers(hidden.states[index])[: len(self.words)]
        real = batch.source_valid[index]
        memory = hidden.memory[index][real] if components is None else components
        self.keys = len(memory)
        self.blocks = list(model.alignments.blocks)
        self.heads = [
            Head(block, head, self.states, numbers(memory))
            for block in self.blocks
            for head in range(block.block.heads)
        ]
        self.chained = model.alignments.is_chained
        self.places = list(product(range(self.keys), repeat=len(self.heads)))
        self.table = numbers(model.output.weight)

    def jumps(self, jumps: Any, origin: int) -> Array:
        """The scores of the jumps from a position to every other."""
        reach = (len(jumps.value) - 1) // 2
        every = [max(-reach, min(reach, key - origin)) + reach for key in range(self.keys)]
        return numbers(jumps.value)[every]

    def prior(self, t: int, head: int, taken: Places, before: Places | None) -> Array:
        """The scores of the prior."""
        own = self.heads[head]
        block, root = own.block, math.sqrt(own.query.shape[-1])
        scores: Array = own.key @ own.query[t] / root
        if self.chained and before is not None:
            scores = scores + self.jumps(block.prior.jumps, before[head])
        for lower in range(block.first_head) if hasattr(block.prior, "contents") else ():
            name, key = f"{head}_{lower}", self.heads[lower].key[taken[lower]]
            scores = scores + own.key @ (key @ numbers(block.prior.contents[name])) / root
            scores = scores + self.jumps(block.prior.jumps[name], taken[lower])
        return scores

    def answered(self, posteriors: Sequence[CategoricalParameters]) -> Scores:
        """The scores that a guide has answered with, one distribution a block."""

        def read(between: Tensor, t: int, origin: int) -> Array:
            """What is read of another head, or of the word before; one may do for all words."""
            rows = numbers(between)
            rows = rows[self.place] if rows.ndim > 3 else rows
            computed_rows: Array = rows[min(t, len(rows) - 1), origin, : self.keys]
            return computed_rows

        def scores(t: int, head: int, taken: Places, before: Places | None) -> Array:
            (distribution,) = (pointing for pointing in posteriors if head in pointing.heads)
            figures = numbers(distribution.scores)[
                self.place, t, head - distribution.first_head, : self.keys
            ]
            if isinstance(distribution, ChainParameters) and before is not None:
                figures = figures + read(distribution.transition_scores, t, before[head])
            for (reader, lower), pair in distribution.pairs.items():
                if reader == head:
                    figures = figures + read(pair, t, taken[lower])
            return figures

        return scores

    def word(self, scores: Scores, t: int, heads: range) -> Array:
        """Log-probability of where some heads of a word point, by the word before and its own."""

        def one(before: Places | None, taken: Places) -> float:
            posteriors = {head: scores(t, head, taken, before) for head in heads}
            return float(
                sum(
                    (distribution - log_sum(distribution))[taken[head]]
                    for head, distribution in posteriors.items()
                )
            )

        places = self.places if self.chained and t else [None]
        return np.array([[one(before, taken) for taken in self.places] for before in places])

    def whole(self, words: Sequence[Array]) -> Array:
        """The sum over words, of every alignment of them all."""
        total = words[0][0]
        for word in words[1:]:
            total = total[..., None] + word
        return total

    def block_log_probs(self, scores: Scores) -> list[Array]:
        """Log-probability of every alignment, block by block."""
        actual = []
        for block in self.blocks:
            heads = range(block.first_head, block.first_head + block.block.heads)
            actual.append(self.whole([self.word(scores, t, heads) for t in range(len(self.words))]))
        return actual

    def said(self) -> Array:
        """Log-probability of the words, given every alignment."""
        words = []
        for state, token in zip(self.states, self.words, strict=True):
            moved = [
                state + sum(head.vectors[s] for head, s in zip(self.heads, taken, strict=True))
                for taken in self.places
            ]
            scores = np.stack(moved) @ self.table.T
            words.append((scores - log_sum(scores, -1))[None, :, token])
        return self.whole(words)

    def of_blocks(self, array: Array) -> list[Array]:
        """The joint of all heads as that of every block, given those below: broadcast to it."""
        heads = len(self.heads)
        one_array = array.reshape((self.keys,) * (heads * len(self.words)))
        actual, below = [], np.zeros(())
        for block in self.blocks:
            summed = block.first_head + block.block.heads
            above = tuple(axis for axis in range(one_array.ndim) if axis % heads >= summed)
            lowest = log_sum(one_array, above) if above else one_array
            actual.append(np.broadcast_to(lowest - below, one_array.shape).reshape(array.shape))
            below = lowest
        return actual


class Sums:
    """A sentence's sums over all its alignments.

    Attributes:
        posterior: Log-probability of every alignment given the words.
        guide: The same under a guide.

    Args:
        sentence: The sentence.
        distributions: What the guide answered with.
    """

    def __init__(self, sentence: Sentence, posteriors: Sequence[CategoricalParameters]) -> None:
        self._sentence = sentence
        self._priors = sentence.block_log_probs(sentence.prior)
        self._guides = sentence.block_log_probs(sentence.answered(posteriors))
        self.prior, self.guide = sum(self._priors), sum(self._guides)
        self.joint = self.prior + sentence.said()
        self.exact = log_sum(self.joint).item()
        self.posterior = self.joint - self.exact

    def figures(self) -> dict[str, float]:
        """Everything that the library says of a sentence, in nats."""
        q, post = np.exp(self.guide), np.exp(self.posterior)
        actual = {
            "exact": self.exact,
            "elbo": (q * (self.joint - self.guide)).sum(),
            "gap": (q * (self.guide - self.posterior)).sum(),
            "kl": (q * (self.guide - self.prior)).sum(),
            "prior_entropy": -(np.exp(self.prior) * self.prior).sum(),
            "posterior_entropy": -(post * self.posterior).sum(),
            "information": (post * (self.posterior - self.prior)).sum(),
        }
        against = zip(self._priors, self._sentence.of_blocks(self.posterior), strict=True)
        for number, (own, (prior, bayes)) in enumerate(zip(self._guides, against, strict=True)):
            actual[f"kl of block {number}"] = (q * (own - prior)).sum()
            actual[f"gap of block {number}"] = (q * (own - bayes)).sum()
        return {name: float(value) for name, value in actual.items()}


def computed(computed_terms: Terms, index: int) -> dict[str, float]:
    """The same of a sentence, as the library says it."""
    assert computed_terms.enumeration is not None
    summed, gap, kl = (
        computed_terms.enumeration.inference,
        computed_terms.enumeration.gap(),
        computed_terms.kl,
    )
    item = {
        "exact": computed_terms.enumeration.log_evidence,
        "elbo": computed_terms.elbo,
        "gap": sum(gap.values()),
        "kl": computed_terms.total_kl,
        "prior_entropy": summed.prior_entropy,
        "posterior_entropy": summed.posterior_entropy,
        "information": summed.information,
    }
    for number, site in enumerate(computed_terms.enumeration.sites):
        item |= {f"kl of block {number}": kl[site], f"gap of block {number}": gap[site]}
    return {name: float(value[index]) for name, value in item.items()}


def go_through(model: Any, guide: Any, batch: Batch) -> tuple[Terms, list[Sums]]:
    """What the library says of a batch, and the sums of its sentences."""
    bound_terms = terms(model, guide, batch)
    assert bound_terms.enumeration is not None
    posteriors = bound_terms.enumeration.posterior
    return bound_terms, [
        Sums(Sentence(model, batch, index), posteriors) for index in range(len(batch))
    ]


def farthest(shape: str) -> tuple[int, float]:
    """How many alignments a model has, and the largest difference of all figures and guides."""
    torch.manual_seed(0)
    model, batch, apart = aligned(ALL[shape]), small_batch(), [0.0]
    for name in SUMMED:
        actual, item = go_through(model, attach(name, model), batch)
        for index, sums in enumerate(item):
            here = computed(actual, index)
            apart += [abs(here[figure] - value) for figure, value in sums.figures().items()]
            if name == "exact":
                apart.append(float(np.abs(sums.guide - sums.posterior).max()))
    return sum(sums.posterior.size for sums in item), max(apart)


def main() -> None:
    """Prints a table."""
    torch.set_default_dtype(torch.float64)
    print("| prior | blocks | heads of each | alignments | largest difference, nats |")
    print("|---|---:|---:|---:|---:|")
    for shape, options in ALL.items():
        number, apart = farthest(shape)
        heads = f"{options.blocks} | {options.heads}"
        print(f"| `{options.prior_name}` | {heads} | {number:,} | {apart:.0e} |")


if __name__ == "__main__":
    main()
