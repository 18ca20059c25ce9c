"""A trained word aligner: both directions, the posteriors of sentence pairs, its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.word_alignment.bitext import Bitext, PairBatch, make_bitext, mark_ends
from latentheads.word_alignment.chain import LinkChain
from latentheads.word_alignment.jumps import Jumps
from latentheads.word_alignment.lexicon import Lexicon, LexiconCounts
from latentheads.word_alignment.model import LinkGuide, LinkModel
from latentheads.word_alignment.symmetrization import LinkPosterior
from latentheads.word_alignment.training import (
    AlignerOptions,
    TrainedDirection,
    train_directions,
)
from latentheads.word_alignment.vocabulary import Vocabulary, Words

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
        lengths: Sequence[tuple[int, int]],
        report: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[LinkPosterior]:
        """The posterior of the links of a text that :meth:`read` made.

        Args:
            bitext: The text.
            lengths: Numbers of source and target words of each sentence pair.
            report: Called with the number of batches that are done, and of all.
        """
        posteriors = [LinkPosterior.without_links(*shape) for shape in lengths]
        guides = [LinkGuide(model, self.guide) for model in self.models(bitext)]
        for done, batch in enumerate(bitext.batches, 1):
            both = batch, batch.reverse()
            chains = [guide.posterior(side) for guide, side in zip(guides, both, strict=True)]
            for index, posterior in _split_batch(batch, chains, lengths):
                posteriors[index] = posterior
            report(done, len(bitext.batches))
        return posteriors


def _split_batch(
    batch: PairBatch, chains: Sequence[LinkChain], lengths: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, LinkPosterior]]:
    """Yields the posterior of every sentence pair of a batch, with its index."""
    forward, backward = (chain.marginals.numpy() for chain in chains)
    log_probs = [chain.log_normaliser.tolist() for chain in chains]
    for row, index in enumerate(batch.indices):
        source, target = lengths[index]
        yield (
            index,
            LinkPosterior(
                forward[row, :target, :source].T,
                backward[row, :source, :target],
                (log_probs[0][row], log_probs[1][row]),
            ),
        )


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
