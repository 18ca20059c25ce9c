"""A trained word aligner: both directions, the posteriors of sentence pairs, its files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from latentheads.contrib.align.bitext import Bitext, PairBatch, make_bitext, mark_ends
from latentheads.contrib.align.chain import LinkChain
from latentheads.contrib.align.jumps import Jumps
from latentheads.contrib.align.lexicon import Lexicon, LexiconCounts
from latentheads.contrib.align.model import LinkGuide, LinkModel
from latentheads.contrib.align.symmetrization import LinkPosterior
from latentheads.contrib.align.tokenization import TokenizedLine, join_tokens
from latentheads.contrib.align.training import (
    AlignerOptions,
    TrainedDirection,
    train_directions,
)
from latentheads.contrib.align.vocabulary import Vocabulary, Words

LEAST_COUNT = 1e-3
"""Expected counts below this are not kept."""


@dataclass(frozen=True)
class Direction:
    """What is kept of one direction.

    Attributes:
        counts: Expected counts of links, by stored entry.
        null: Expected counts of target words without a link.
        frequencies: How often each target word occurs.
        jumps: Weights of jumps.
    """

    counts: Float[Tensor, " entry"]
    null: Float[Tensor, " word"]
    frequencies: Float[Tensor, " word"]
    jumps: Jumps

    def model(self, bitext: Bitext, entries: Int[Tensor, " entry"]) -> LinkModel:
        """The model of a text whose vocabularies begin with those of training.

        Args:
            bitext: The text, seen in this direction.
            entries: Where its table has the stored entries.
        """
        added = len(bitext.target) - len(self.frequencies)
        pad = torch.nn.functional.pad
        lexicon = Lexicon(bitext, pad(self.frequencies, (0, added)))
        counts = lexicon.new_counts()
        counts.links[entries] = self.counts
        counts = LexiconCounts(counts.links, pad(self.null, (0, added)))
        return LinkModel(lexicon.predictive(counts), self.jumps)


@dataclass(frozen=True)
class WordAligner:
    """A trained word aligner.

    Attributes:
        source: The source vocabulary.
        target: The target vocabulary.
        entries: The source and the target word of every stored count.
        forward: The direction that generates the target.
        backward: The direction that generates the source; its sources are target words.
        options: Options of training.
        split: What separates the units that are aligned.
        guide: The guide that links are inferred by.
    """

    source: Vocabulary
    target: Vocabulary
    entries: Int[Tensor, "2 entry"]
    forward: Direction
    backward: Direction
    options: AlignerOptions
    split: str = "spaces"
    guide: str = "exact"

    def read(self, pairs: Sequence[tuple[Words, Words]]) -> Bitext:
        """The batches of a text, with the entries of the translation table that it needs."""
        return make_bitext(mark_ends(pairs), (self.source, self.target), self.entries)

    def models(self, bitext: Bitext) -> tuple[LinkModel, LinkModel]:
        """The models of both directions for a text that :meth:`read` made."""
        width = len(bitext.target)
        keys = bitext.pair_source * width + bitext.pair_target
        entries = torch.searchsorted(keys, self.entries[0] * width + self.entries[1])
        backward = self.backward.model(bitext.reverse(), entries)
        return self.forward.model(bitext, entries), backward

    @torch.no_grad()
    def posteriors(
        self,
        bitext: Bitext,
        lines: Sequence[tuple[TokenizedLine, TokenizedLine]],
        report: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[LinkPosterior]:
        """The posterior of the links of the words of a text that :meth:`read` made.

        Args:
            bitext: The text.
            lines: The tokens of both sides of each sentence pair, and their words.
            report: Called with the number of batches that are done, and of all.

        Raises:
            FloatingPointError: A line has no finite probability.
        """
        posteriors = [LinkPosterior.unknown(left.length, right.length) for left, right in lines]
        guides = [LinkGuide(model, self.guide) for model in self.models(bitext)]
        for done, batch in enumerate(bitext.batches, 1):
            both = batch, batch.reverse()
            chains = [guide.posterior(side) for guide, side in zip(guides, both, strict=True)]
            for index, posterior in _split_batch(batch, chains, lines):
                posteriors[index] = posterior
            report(done, len(bitext.batches))
        return posteriors


def _split_batch(
    batch: PairBatch,
    chains: Sequence[LinkChain],
    lines: Sequence[tuple[TokenizedLine, TokenizedLine]],
) -> Iterator[tuple[int, LinkPosterior]]:
    """Yields the posterior of every sentence pair of a batch, with its index."""
    forward, backward = (chain.marginals.numpy() for chain in chains)
    log_probs = [chain.log_normaliser.tolist() for chain in chains]
    for row, index in enumerate(batch.indices):
        if not all(math.isfinite(side[row]) for side in log_probs):
            raise FloatingPointError(f"line {index + 1:,} has no finite probability")
        source, target = lines[index]
        shape = slice(len(source.tokens)), slice(len(target.tokens))
        posterior = LinkPosterior(
            join_tokens(forward[row].T[shape], source, target),
            join_tokens(backward[row][shape], source, target),
            (log_probs[0][row], log_probs[1][row]),
        )
        if not (source.has_word_tokens and target.has_word_tokens):
            nulls = (
                _word_nulls(chains[1], row, source, target),
                _word_nulls(chains[0], row, target, source),
            )
            posterior = replace(posterior, nulls=nulls)
        yield index, posterior


def _word_nulls(
    chain: LinkChain, row: int, generated: TokenizedLine, generating: TokenizedLine
) -> Float[ndarray, " word"]:
    """The probability that no token of each generated word is linked to a token of a word."""
    tokens = [token for word in generating.tokens_by_word for token in word]
    links = chain.marginals[row][:, tokens]
    nulls = (1 - links.sum(-1)).clamp(0, 1).tolist()
    positions = [1 + token for token in tokens]
    probabilities = [
        nulls[word[0]] if len(word) == 1 else chain.unlinked_probability(row, word, positions)
        for word in generated.tokens_by_word
    ]
    return np.array(probabilities, links.numpy().dtype)


@torch.no_grad()
def train_aligner(
    pairs: Sequence[tuple[Words, Words]],
    options: AlignerOptions | None = None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[WordAligner, Bitext]:
    """Trains an aligner.

    Args:
        pairs: The words of both sides of every sentence pair.
        options: Options of training.
        report: Called with the number of batches that are done, and of all passes.

    Returns:
        The aligner, and the text, for :meth:`WordAligner.posteriors`.

    Raises:
        ValueError: No sentence pair has words on both sides.
    """
    options = options or AlignerOptions()
    bitext = make_bitext(mark_ends(pairs))
    if not bitext.batches:
        raise ValueError("no line has words on both sides: there is nothing to train on")
    forward, backward = train_directions(bitext, options, report)
    is_stored = torch.maximum(forward.counts.links, backward.counts.links)[:-1] > LEAST_COUNT
    entries = torch.stack([bitext.pair_source[is_stored], bitext.pair_target[is_stored]])
    sides = _stored_direction(forward, is_stored), _stored_direction(backward, is_stored)
    return WordAligner(bitext.source, bitext.target, entries, *sides, options), bitext


def _stored_direction(trained: TrainedDirection, is_stored: Tensor) -> Direction:
    text = trained.lexicon.bitext
    return Direction(
        trained.counts.links[:-1][is_stored],
        trained.counts.null,
        text.target_counts.to(trained.counts.null.dtype),
        trained.jumps,
    )
