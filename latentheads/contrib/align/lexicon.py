r"""The translation table p(f | e): Dirichlet distributions whose means back off to first letters.

The words of a class share their first :math:`k` letters. With expected counts :math:`c` of links,
classes :math:`[e]_k, [f]_k` and the frequencies :math:`u` of target words,

.. math:: b_k(f \mid e) = \frac{c([e]_k, [f]_k) + \beta\, b_{k'}([f]_k \mid e)}
                               {c([e]_k) + \beta}\, \frac{u(f)}{u([f]_k)}, \qquad
          b_0(f \mid e) = u(f),

where :math:`k'` is the next shorter prefix. The distribution of a word is Dirichlet with
concentration :math:`\alpha` and the mean :math:`b` of the longest prefix, mixed with the words that
are spelt like :math:`e`, all of one probability; their weight is learned. Training begins with the
variational posterior of that Dirichlet,

.. math:: t(f \mid e) = \exp\bigl(\psi(c(e, f) + \alpha\, b(f \mid e)) - \psi(c(e) + \alpha)\bigr)

(Riley and Gildea 2012, https://aclanthology.org/P12-2060). Its last passes and a trained aligner
take its mean :math:`(c(e, f) + \alpha b(f \mid e)) / (c(e) + \alpha)`, which is normalised: by the
counts of all other lines it is the predictive probability of a line's words given those lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.contrib.align.bitext import Bitext, PairBatch, WordPairs, take
from latentheads.contrib.align.counts import CellCounts, CountTable, look_up, same_class

CONCENTRATION = 10.0
"""The concentration of a word's distribution."""

CLASS_CONCENTRATION = 40.0
"""The concentration of a class's distribution."""

ALIKE = 0.1
"""The probability that a word is translated by one that is spelt like it, before training."""

MOST_ALIKE = 0.999
"""The largest such probability: at 1 other words would have none, or less by rounding."""

NULL_CONCENTRATION = 100.0
"""The concentration of the distribution of words without a link."""

UNSEEN = 0.5
"""What is added to the frequency of every target word."""

ASSOCIATION_POWER = 2.0
"""Exponent of the association of words that training starts from."""

ALIKE_STEPS = 3
"""Steps by which the weight of words that are spelt alike is learned after a pass."""

CHUNK = 4_000_000
"""Entries whose weights are computed at once, which bounds memory."""


@dataclass(frozen=True)
class TranslationTable:
    """Weights of the words of a text.

    Attributes:
        links: Weight of each entry, a source word's of a target word; 0 for padding, the last one.
        null: The weight of each target word without a link.
    """

    links: Float[Tensor, " entry"]
    null: Float[Tensor, " word"]

    def linked(self, batch: PairBatch) -> Float[Tensor, "pair target source"]:
        """The weights of all links of a batch."""
        return take(self.links, batch.entries)

    def without_link(self, batch: PairBatch) -> Float[Tensor, "pair target 1"]:
        """The weights of target words without a link; 1 at padding."""
        return _at_words(take(self.null, batch.target.clamp(min=0)), batch)


@dataclass(frozen=True)
class BatchTable:
    """Weights of the words of one batch.

    Attributes:
        links: Weights of links; 0 at padding.
        null: Weights of target words without a link; 1 at padding.
    """

    links: Float[Tensor, "pair target source"]
    null: Float[Tensor, "pair target 1"]

    def linked(self, batch: PairBatch) -> Float[Tensor, "pair target source"]:
        """The weights of all links of the batch."""
        return self.links

    def without_link(self, batch: PairBatch) -> Float[Tensor, "pair target 1"]:
        """The weights of target words without a link."""
        return self.null


def _at_words(
    weights: Float[Tensor, "pair target"], batch: PairBatch
) -> Float[Tensor, "pair target 1"]:
    """Weights of target words; 1 at padding."""
    return torch.where(batch.target_mask, weights, weights.new_ones(()))[..., None]


class Lexicon:
    """The prior of the translations of one direction.

    Args:
        pairs: The entries of its table.
        frequencies: How often each target word occurs.
        alike: The probability that a word is translated by one that is spelt like it.
    """

    def __init__(
        self, pairs: WordPairs, frequencies: Float[Tensor, " word"], alike: float = ALIKE
    ) -> None:
        self.pairs = pairs
        self.frequencies = frequencies
        self.alike = min(alike, MOST_ALIKE)

    @cached_property
    def unigram(self) -> Float[Tensor, " word"]:
        """The frequencies u of target words, which sum to 1."""
        smoothed = self.frequencies + UNSEEN
        return smoothed / smoothed.sum()

    @cached_property
    def _class_frequencies(self) -> list[Float[Tensor, " class"]]:
        """Smoothed frequencies of classes of target words, from the longest prefix."""
        return [
            self.frequencies.new_zeros(len(level.target.ids)).index_add_(
                0, level.target.of_word, self.frequencies + UNSEEN
            )
            for level in self.pairs.levels
        ]

    @cached_property
    def _total(self) -> float:
        """The sum of smoothed frequencies."""
        return float((self.frequencies + UNSEEN).sum())

    def new_null(self) -> Float[Tensor, " word"]:
        """Counts of zero of target words without a link."""
        return torch.zeros_like(self.frequencies)

    def _densities(self, counts: CountTable) -> Float[Tensor, " classes"]:
        """b(f | e) / u(f) for each pair of classes of the longest prefix."""
        levels, frequencies = self.pairs.levels[::-1], self._class_frequencies[::-1]
        density = self.frequencies.new_ones(len(levels[0].pair_source))
        for index, (level, frequency) in enumerate(zip(levels, frequencies, strict=True)):
            if index:
                density = take(density, levels[index - 1].pair)
            share = take(frequency, level.pair_target) / self._total
            total = take(counts.source_sums[len(levels) - index], level.pair_source)
            pairs = counts.classes[len(levels) - 1 - index]
            density = (pairs / share + CLASS_CONCENTRATION * density) / (
                total + CLASS_CONCENTRATION
            )
        return density

    def _mean(
        self,
        counts: CountTable,
        density: Float[Tensor, " classes"],
        entries: Int[Tensor, " some"] | slice,
    ) -> tuple[Float[Tensor, " some"], Float[Tensor, " some"]]:
        """The prior mean b(f | e) of some entries, and its part of words that are spelt alike."""
        pairs, spelling = self.pairs, counts.spelling
        mean = take(density, pairs.levels[0].pair[entries])
        mean = mean * take(self.unigram, pairs.pair_target[entries])
        number = take(spelling.source, pairs.pair_source[entries])
        alike = self.alike * spelling.alike[entries].to(mean.dtype) / number.clamp(min=1)
        return torch.where(number > 0, (1 - self.alike) * mean, mean) + alike, alike

    def mean(self, counts: CountTable) -> Float[Tensor, " entry"]:
        """The prior mean b(f | e) of every entry, by the counts of classes."""
        return self._mean(counts, self._densities(counts), slice(None))[0]

    def _smoothed(
        self, counts: CountTable
    ) -> Iterator[tuple[slice, Float[Tensor, " some"], Float[Tensor, " some"]]]:
        """Yields parameters of the posterior Dirichlet, and their sums, of some entries."""
        density = self._densities(counts)
        for begin in range(0, self.pairs.entries, CHUNK):
            part = slice(begin, min(begin + CHUNK, self.pairs.entries))
            mean, _ = self._mean(counts, density, part)
            total = take(counts.source_sums[0], self.pairs.pair_source[part])
            yield part, counts.links[part] + CONCENTRATION * mean, total + CONCENTRATION

    def _null(self, null: Float[Tensor, " word"]) -> Float[Tensor, " word"]:
        smoothed = null + NULL_CONCENTRATION * self.unigram
        return smoothed / smoothed.sum()

    def variational(self, counts: CountTable, null: Float[Tensor, " word"]) -> TranslationTable:
        """The table exp E log p(f | e) of a step of training."""
        weights = torch.zeros_like(counts.links)
        for part, parameters, total in self._smoothed(counts):
            weights[part] = (torch.digamma(parameters) - torch.digamma(total)).exp()
        return TranslationTable(weights, self._null(null))

    def predictive(self, counts: CountTable, null: Float[Tensor, " word"]) -> TranslationTable:
        """The normalised table of a trained aligner."""
        weights = torch.zeros_like(counts.links)
        for part, parameters, total in self._smoothed(counts):
            weights[part] = parameters / total
        return TranslationTable(weights, self._null(null))

    def learn_alike(self, counts: CountTable) -> None:
        """Sets the probability of words that are spelt alike to its maximum, step by step.

        Each source word that has words spelt like it counts once, however often it was linked:
        with n links it has the weight n / (n + 1).
        """
        spelling, pairs = counts.spelling, self.pairs
        entries = spelling.alike.nonzero()[:, 0]
        total = counts.source_sums[0]
        evidence = (total / (total + 1))[spelling.source > 0].sum()
        if float(evidence) <= 0:
            return
        density = self._densities(counts)
        share = counts.links[entries] / (total[pairs.pair_source[entries]] + 1)
        for _ in range(ALIKE_STEPS):
            mean, alike = self._mean(counts, density, entries)
            self.alike = min(float((share * alike / mean).sum() / evidence), MOST_ALIKE)

    def batch_table(
        self,
        cells: CellCounts,
        null: Float[Tensor, " word"],
        batch: PairBatch,
        own_null: Float[Tensor, "pair target"] | None = None,
    ) -> BatchTable:
        """The predictive weights of a batch.

        Args:
            cells: The counts of its words and their classes.
            null: Expected counts of target words without a link.
            batch: The batch, whose target words may be new ones.
            own_null: Probabilities of its words to have no link that are part of ``null``: they,
                and the words, are taken out of the counts of each line. None: nothing is.
        """
        is_out = (cells.target.own[0] > 0) & batch.target_mask
        total_left = self._total - is_out.sum(-1, keepdim=True).to(self.frequencies.dtype)
        unigram, *classes = (frequency / total_left for frequency in self._frequencies_at(cells))
        density = unigram.new_ones(())
        levels = list(zip(cells.links[1:], cells.source.sums[1:], classes, strict=True))
        for links, total, share in reversed(levels):
            density = torch.add(links / share[..., None], density, alpha=CLASS_CONCENTRATION)
            density /= total[:, None] + CLASS_CONCENTRATION
        mean = density * unigram[..., None]
        number = cells.source.alike[:, None]
        if cells.is_new.any():
            number = number + (cells.alike & cells.is_new).int()
        number = number.to(mean.dtype)
        others = 1 - self.alike * number.clamp(max=1)
        mean = torch.addcmul(mean * others, cells.alike, self.alike / number.clamp(min=1))
        total = cells.source.sums[0][:, None] + CONCENTRATION
        linked = torch.add(cells.links[0], mean, alpha=CONCENTRATION) / total * batch.cell_mask
        return BatchTable(linked, self._batch_null(unigram, null, batch, own_null))

    def _frequencies_at(self, cells: CellCounts) -> list[Float[Tensor, "pair target"]]:
        """Smoothed frequencies of target words, and of their classes, without those taken out."""
        ids, own = cells.target.ids, cells.target.own
        is_new = ids[0] >= len(self.frequencies)
        words = look_up(self.frequencies, ids[0]) + UNSEEN - own[0]
        classes = [
            look_up(frequency, index) + UNSEEN * is_new.to(count.dtype) - count
            for frequency, index, count in zip(
                self._class_frequencies, ids[1:], own[1:], strict=True
            )
        ]
        return [frequency.clamp(min=UNSEEN) for frequency in (words, *classes)]

    def _batch_null(
        self,
        unigram: Float[Tensor, "pair target"],
        null: Float[Tensor, " word"],
        batch: PairBatch,
        own: Float[Tensor, "pair target"] | None,
    ) -> Float[Tensor, "pair target 1"]:
        """The weights of target words without a link."""
        words = batch.target.clamp(min=0).long()
        counts, total = look_up(null, words), null.sum() + NULL_CONCENTRATION
        if own is not None:
            same = same_class(words, batch.target_mask, own.dtype)
            counts = (counts - (same @ own[..., None])[..., 0]).clamp(min=0)
            total = total - own.sum(-1, keepdim=True)
        return _at_words((counts + NULL_CONCENTRATION * unigram) / total, batch)

    def associations(self, bitext: Bitext) -> TranslationTable:
        r"""The table that training starts from.

        With :math:`n(e, f)` the number of sentence pairs in which both words occur, each weighted
        by the inverse of its length, it is proportional to
        :math:`n(e, f) \bigl(n(e, f) / \sqrt{n(e)\, n(f)}\bigr)^2`.
        """
        pairs = self.pairs
        counts = self.frequencies.new_zeros(pairs.entries + 1)
        for batch in bitext.batches:
            lengths = torch.maximum(batch.source_mask.sum(-1), batch.target_mask.sum(-1))
            weight = 1 / lengths.to(counts.dtype)[:, None, None].expand(batch.entries.shape)
            counts.scatter_add_(0, batch.entries.flatten().long(), weight.flatten())
        both = counts[:-1]
        source = both.new_zeros(len(pairs.source)).index_add_(0, pairs.pair_source, both)
        target = both.new_zeros(len(pairs.target)).index_add_(0, pairs.pair_target, both)
        weights = torch.zeros_like(counts)
        for begin in range(0, pairs.entries, CHUNK):
            part = slice(begin, min(begin + CHUNK, pairs.entries))
            sources, targets = pairs.pair_source[part], pairs.pair_target[part]
            chance = (take(source, sources) * take(target, targets)).sqrt()
            share = both[part] / chance.clamp(min=1e-20)
            weights[part] = both[part] * share**ASSOCIATION_POWER
        total = source.zero_().index_add_(0, pairs.pair_source, weights[:-1])
        for begin in range(0, pairs.entries, CHUNK):
            part = slice(begin, min(begin + CHUNK, pairs.entries))
            weights[part] /= take(total, pairs.pair_source[part]).clamp(min=1e-20)
        return TranslationTable(weights, self.unigram)
