r"""The translation table p(f | e): Dirichlet distributions whose means back off to first letters.

The words of a class share their first :math:`k` letters. With expected counts :math:`c` of links,
classes :math:`[e]_k, [f]_k` and the frequencies :math:`u` of target words,

.. math:: b_k(f \mid e) = \frac{c([e]_k, [f]_k) + \beta\, b_{k'}([f]_k \mid e)}
                               {c([e]_k) + \beta}\, \frac{u(f)}{u([f]_k)}, \qquad
          b_0(f \mid e) = u(f),

where :math:`k'` is the next shorter prefix. The distribution of a word is Dirichlet with
concentration :math:`\alpha` and the mean :math:`b` of the longest prefix, mixed with the word that
is spelt like :math:`e`. Training takes the variational posterior of that Dirichlet,

.. math:: t(f \mid e) = \exp\bigl(\psi(c(e, f) + \alpha\, b(f \mid e)) - \psi(c(e) + \alpha)\bigr)

(Riley and Gildea 2012, https://aclanthology.org/P12-2060), a trained aligner its mean
:math:`(c(e, f) + \alpha b(f \mid e)) / (c(e) + \alpha)`, which is normalised.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.contrib.align.bitext import Bitext, PairBatch

PREFIXES = (2, 3, 4, 5, 6)
"""Numbers of first letters that words of a class share."""

CONCENTRATION = 10.0
"""The concentration of a word's distribution."""

CLASS_CONCENTRATION = 5.0
"""The concentration of a class's distribution."""

SAME_SPELLING = 0.1
"""The prior probability that a word is translated by the one that is spelt like it."""

NULL_CONCENTRATION = 1000.0
"""The concentration of the distribution of words without a link."""

UNSEEN = 0.5
"""What is added to the frequency of every target word."""

ASSOCIATION_POWER = 2.0
"""Exponent of the association of words that training starts from."""


@dataclass
class LexiconCounts:
    """Expected counts of links, and of words without one.

    Attributes:
        links: By entry of the translation table; the last one is that of padding.
        null: By target word.
    """

    links: Float[Tensor, " entry"]
    null: Float[Tensor, " word"]

    def add(
        self,
        batch: PairBatch,
        links: Float[Tensor, "pair target source"],
        null: Float[Tensor, "pair target"],
    ) -> None:
        """Adds the posterior probabilities of a batch."""
        self.links.index_add_(0, batch.cells.flatten(), links.flatten())
        self.null.index_add_(0, batch.target.clamp(min=0).flatten(), null.flatten())


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
        return self.links[batch.cells]

    def without_link(self, batch: PairBatch) -> Float[Tensor, "pair target 1"]:
        """The weights of target words without a link; 1 at padding."""
        weights = self.null[batch.target.clamp(min=0)]
        return torch.where(batch.target_mask, weights, weights.new_ones(()))[..., None]


@dataclass(frozen=True)
class _PrefixClasses:
    """Pairs of classes of words that share their first letters.

    Attributes:
        pair: The pair of classes of each entry.
        source: The class of the source word of each pair of classes.
        source_of: The class of the source word of each entry.
        share: Of each entry, the share of its target word in the words of its class.
    """

    pair: Int[Tensor, " entry"]
    source: Int[Tensor, " classes"]
    source_of: Int[Tensor, " entry"]
    share: Float[Tensor, " entry"]

    def back_off(
        self, counts: Float[Tensor, " entry"], mean: Float[Tensor, " entry"]
    ) -> Float[Tensor, " entry"]:
        """The distribution of words by the counts of their classes.

        Args:
            counts: Expected counts of links.
            mean: The distribution that these classes back off to.
        """
        pairs = counts.new_zeros(len(self.source)).index_add_(0, self.pair, counts)
        totals = counts.new_zeros(int(self.source_of.max()) + 1 if len(self.source_of) else 0)
        totals.index_add_(0, self.source, pairs)
        smoothed = pairs[self.pair] + CLASS_CONCENTRATION * mean / self.share
        return smoothed * self.share / (totals[self.source_of] + CLASS_CONCENTRATION)


class Lexicon:
    """The prior of the translation table of a text.

    Args:
        bitext: The text, with all entries that have counts.
        frequencies: How often each target word occurs.
    """

    def __init__(self, bitext: Bitext, frequencies: Float[Tensor, " word"]) -> None:
        self.bitext = bitext
        smoothed = frequencies + UNSEEN
        self.unigram = smoothed / smoothed.sum()

    @cached_property
    def _classes(self) -> list[_PrefixClasses]:
        """The classes of words, from short prefixes to long ones."""
        return [self._prefix_classes(letters) for letters in PREFIXES]

    def _prefix_classes(self, letters: int) -> _PrefixClasses:
        bitext = self.bitext
        source = bitext.source.prefix_classes(letters)[bitext.pair_source]
        target_class = bitext.target.prefix_classes(letters)
        number = len(target_class)
        frequency = self.unigram.new_zeros(number).index_add_(0, target_class, self.unigram)
        share = self.unigram / frequency[target_class]
        keys = source * number + target_class[bitext.pair_target]
        distinct, pair = torch.unique(keys, return_inverse=True)
        return _PrefixClasses(pair, distinct // max(number, 1), source, share[bitext.pair_target])

    @cached_property
    def _same_spelling(self) -> tuple[Tensor, Tensor]:
        """Whether the words of each entry are spelt alike, and the prior weight of that."""
        match = self.bitext.source.matches(self.bitext.target)[self.bitext.pair_source]
        weight = SAME_SPELLING * (match >= 0).to(self.unigram.dtype)
        return (match == self.bitext.pair_target).to(self.unigram.dtype), weight

    def new_counts(self) -> LexiconCounts:
        """Counts of zero."""
        return LexiconCounts(
            self.unigram.new_zeros(self.bitext.entries + 1), torch.zeros_like(self.unigram)
        )

    def mean(self, counts: Float[Tensor, " entry"]) -> Float[Tensor, " entry"]:
        """The prior mean b(f | e) of every entry, by the counts of classes."""
        mean = self.unigram[self.bitext.pair_target]
        for classes in self._classes:
            mean = classes.back_off(counts, mean)
        same, weight = self._same_spelling
        return (1 - weight) * mean + weight * same

    def _smoothed(self, counts: LexiconCounts) -> tuple[Tensor, Tensor, Tensor]:
        """The parameters of the posterior Dirichlet of links, their sums, and null's mean."""
        links = counts.links[:-1]
        totals = links.new_zeros(len(self.bitext.source))
        totals.index_add_(0, self.bitext.pair_source, links)
        null = counts.null + NULL_CONCENTRATION * self.unigram
        return (
            links + CONCENTRATION * self.mean(links),
            totals[self.bitext.pair_source] + CONCENTRATION,
            null / null.sum(),
        )

    def variational(self, counts: LexiconCounts) -> TranslationTable:
        """The table exp E log p(f | e) of a step of training."""
        links, totals, null = self._smoothed(counts)
        weights = (torch.digamma(links) - torch.digamma(totals)).exp()
        return TranslationTable(torch.nn.functional.pad(weights, (0, 1)), null)

    def predictive(self, counts: LexiconCounts) -> TranslationTable:
        """The normalised table of a trained aligner."""
        links, totals, null = self._smoothed(counts)
        return TranslationTable(torch.nn.functional.pad(links / totals, (0, 1)), null)

    def associations(self) -> TranslationTable:
        r"""The table that training starts from.

        With :math:`n(e, f)` the number of sentence pairs in which both words occur, each weighted
        by the inverse of its length, it is proportional to
        :math:`n(e, f) \bigl(n(e, f) / \sqrt{n(e)\, n(f)}\bigr)^2`.
        """
        bitext = self.bitext
        counts = self.new_counts()
        for batch in bitext.batches:
            lengths = torch.maximum(batch.source_mask.sum(-1), batch.target_mask.sum(-1))
            weight = 1 / lengths.to(self.unigram.dtype)[:, None, None].expand(batch.cells.shape)
            counts.links.index_add_(0, batch.cells.flatten(), weight.flatten())
        both = counts.links[:-1]
        source = both.new_zeros(len(bitext.source)).index_add_(0, bitext.pair_source, both)
        target = both.new_zeros(len(bitext.target)).index_add_(0, bitext.pair_target, both)
        chance = (source[bitext.pair_source] * target[bitext.pair_target]).sqrt()
        score = both * (both / chance.clamp(min=1e-20)) ** ASSOCIATION_POWER
        total = torch.zeros_like(source).index_add_(0, bitext.pair_source, score)
        links = score / total[bitext.pair_source].clamp(min=1e-20)
        return TranslationTable(torch.nn.functional.pad(links, (0, 1)), self.unigram)
