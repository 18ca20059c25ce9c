"""A trained word aligner: both directions, and the posteriors of sentence pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from latentheads.contrib.align.bitext import (
    Bitext,
    PairBatch,
    group_lines,
    make_bitext,
    make_word_pairs,
    mark_ends,
    pad_batch,
)
from latentheads.contrib.align.chain import LinkChain
from latentheads.contrib.align.counts import CountTable, NewCells
from latentheads.contrib.align.jumps import Jumps
from latentheads.contrib.align.lexicon import Lexicon
from latentheads.contrib.align.model import LinkGuide, LinkModel
from latentheads.contrib.align.projection import ProjectedSpan, Span, project_spans
from latentheads.contrib.align.spelling import make_spelling
from latentheads.contrib.align.symmetrization import LinkPosterior
from latentheads.contrib.align.tokenization import TokenizedLine, join_tokens
from latentheads.contrib.align.training import (
    AlignerOptions,
    DirectionStart,
    Start,
    TrainedDirection,
    Training,
    predictive_models,
    train_directions,
)
from latentheads.contrib.align.vocabulary import Vocabulary, Words
from latentheads.contrib.align.workers import map_batches

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
        alike: The probability that a word is translated by one that is spelt like it.
    """

    counts: Float[Tensor, " entry"]
    null: Float[Tensor, " word"]
    frequencies: Float[Tensor, " word"]
    jumps: Jumps
    alike: float


@dataclass(frozen=True)
class NewLines:
    """Lines that are new to an aligner.

    Attributes:
        batches: Their batches; a line with an empty side is in none.
        counts: The counts of both directions, of links of source to target words; one object if
            they are the same.
    """

    batches: Sequence[PairBatch]
    counts: tuple[NewCells, NewCells]


@dataclass(frozen=True)
class WordAligner:
    """A trained word aligner.

    Attributes:
        source: The source vocabulary.
        target: The target vocabulary.
        entries: The source and the target word of every stored count, sorted.
        forward: The direction that generates the target.
        backward: The direction that generates the source; its sources are target words.
        options: Options of training.
        split: What separates the units that are aligned.
        pseudocount: The largest count of a word pair in the dictionary that training began with.
    """

    source: Vocabulary
    target: Vocabulary
    entries: Int[Tensor, "2 entry"]
    forward: Direction
    backward: Direction
    options: AlignerOptions
    split: str = "spaces"
    pseudocount: float = 0.0

    def __repr__(self) -> str:
        vocabularies = f"vocabularies of {len(self.source):,} and {len(self.target):,}"
        return f"WordAligner({vocabularies}, {self.entries.shape[1]:,} word pairs, {self.split})"

    @property
    def is_dictionary(self) -> bool:
        """Whether it has seen no line: a dictionary, to be trained on."""
        return not self.forward.frequencies.any()

    @cached_property
    def _tables(self) -> tuple[CountTable, CountTable]:
        """The counts of both directions, of links of source to target words."""
        first, second = self.entries
        pairs = make_word_pairs(self.source, self.target, first, second)
        spelling = make_spelling(self.source.words, self.target.words, first, second)
        forward, backward = (
            CountTable(pairs, spelling, torch.nn.functional.pad(direction.counts, (0, 1)))
            for direction in (self.forward, self.backward)
        )
        return forward, forward if torch.equal(forward.links, backward.links) else backward

    @cached_property
    def _directions(self) -> tuple[TrainedDirection, TrainedDirection]:
        tables = self._tables[0], self._tables[1].reverse()
        forward, backward = (
            TrainedDirection(
                Lexicon(table.pairs, kept.frequencies, kept.alike), table, kept.null, kept.jumps
            )
            for table, kept in zip(tables, (self.forward, self.backward), strict=True)
        )
        return forward, backward

    def read(self, pairs: Sequence[tuple[Words, Words]]) -> NewLines:
        """The batches of lines, whose words may be new."""
        marked = list(mark_ends(pairs))
        sides = list(zip(*marked, strict=True)) or [(), ()]
        vocabularies = self.source, self.target
        new = [words.new_words(side) for words, side in zip(vocabularies, sides, strict=True)]
        source, target = (
            [np.array(words.encode(line, added), np.int32) for line in side]
            for words, added, side in zip(vocabularies, new, sides, strict=True)
        )
        lines = list(zip(source, target, strict=True))
        batches = [pad_batch(lines, group) for group in group_lines(lines)]
        forward, backward = self._tables
        first = NewCells(forward, *new)
        second = first if forward is backward else NewCells(backward, *new)
        return NewLines(batches, (first, second))

    @torch.no_grad()
    def models(self, lines: NewLines, batch: PairBatch) -> tuple[LinkModel, LinkModel]:
        """The models of both directions for a batch of lines that :meth:`read` made."""
        forward, backward = lines.counts
        cells = forward.cells(batch)
        others = cells if forward is backward else backward.cells(batch)
        return predictive_models(self._directions, batch, (cells, others.reverse()))


def infer_posteriors(
    batches: Sequence[PairBatch],
    models_of: Callable[[int], tuple[LinkModel, LinkModel]],
    lines: Sequence[tuple[TokenizedLine, TokenizedLine]],
    guide: str = "exact",
    report: Callable[[int, int], None] = lambda done, total: None,
    workers: int = 1,
    spans: Sequence[Sequence[Span]] = (),
    projected: dict[int, list[ProjectedSpan | None]] | None = None,
) -> Iterator[LinkPosterior]:
    """Yields the posterior of the links of the words of each line, in their order.

    Batches of a block of lines come one after another, so that few wait for the lines before them.

    Args:
        batches: The batches of the lines; a line with an empty side is in none.
        models_of: Called with the index of a batch: its models of both directions.
        lines: The tokens of both sides of each sentence pair, and their words.
        guide: The guide that links are inferred by.
        report: Called with the number of batches that are done, and of all.
        workers: Processes that share the batches.
        spans: The spans of each line, which are carried to the target; none: those of no line are.
        projected: Gets the carried spans of each line that is aligned, by its index.

    Raises:
        FloatingPointError: A line has no finite probability.
    """

    def align_batch(
        number: int, _: int
    ) -> list[tuple[int, LinkPosterior, list[ProjectedSpan | None]]]:
        batch = batches[number]
        with torch.no_grad():
            sides = list(zip(models_of(number), (batch, batch.reverse()), strict=True))
            exact = [model.posterior(side) for model, side in sides]
            chains = exact
            if guide != "exact":
                chains = [LinkGuide(model, guide).posterior(side) for model, side in sides]
            aligned = []
            for row, (index, posterior) in enumerate(_split_batch(batch, chains, exact, lines)):
                carried: list[ProjectedSpan | None] = []
                if spans:
                    carried = project_spans(spans[index], posterior, chains, row, lines[index])
                aligned.append((index, posterior, carried))
            return aligned

    waiting: dict[int, LinkPosterior] = {}
    following = 0
    for done, aligned in enumerate(map_batches(align_batch, len(batches), workers), 1):
        for index, posterior, carried in aligned:
            waiting[index] = posterior
            if spans and projected is not None:
                projected[index] = carried
        while following < len(lines) and (following in waiting or _is_unaligned(lines[following])):
            is_aligned = following in waiting
            yield waiting.pop(following) if is_aligned else _unknown(lines[following])
            following += 1
        report(done, len(batches))
    yield from (_unknown(lines[index]) for index in range(following, len(lines)))


def _is_unaligned(line: tuple[TokenizedLine, TokenizedLine]) -> bool:
    return not (line[0].tokens and line[1].tokens)


def _unknown(line: tuple[TokenizedLine, TokenizedLine]) -> LinkPosterior:
    return LinkPosterior.unknown(line[0].length, line[1].length)


def _split_batch(
    batch: PairBatch,
    chains: Sequence[LinkChain],
    exact: Sequence[LinkChain],
    lines: Sequence[tuple[TokenizedLine, TokenizedLine]],
) -> Iterator[tuple[int, LinkPosterior]]:
    """Yields the links of every sentence pair of a batch by a guide, with its index.

    The normaliser of a guide is no probability of the words: that of the exact posterior is.
    """
    # in single precision a sum may exceed 1
    forward, backward = (chain.marginals.clamp(max=1).numpy() for chain in chains)
    log_probs = [chain.log_normaliser.tolist() for chain in exact]
    for row, index in enumerate(batch.indices):
        if not all(math.isfinite(side[row]) for side in log_probs):
            raise FloatingPointError(f"line {index + 1:,} has no finite probability")
        source, target = lines[index]
        shape = slice(len(source.tokens)), slice(len(target.tokens))
        # a copy keeps the order of a transposed matrix through a pipe: its sums round alike
        links = np.asfortranarray(forward[row].T[shape])
        posterior = LinkPosterior(
            join_tokens(links, source, target),
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
    pairs: Iterable[tuple[Words, Words]],
    options: AlignerOptions | None = None,
    report: Callable[[int, int], None] = lambda done, total: None,
    start: WordAligner | None = None,
    workers: int = 1,
) -> tuple[WordAligner, Training]:
    """Trains an aligner.

    Args:
        pairs: The words of both sides of every sentence pair; each is read once.
        options: Options of training.
        report: Called with the number of batches that are done, and of all passes.
        start: An aligner that is trained on: its counts are added to those of the text, and its
            jumps stay as they are, with their options.
        workers: Processes that share the batches of each pass.

    Returns:
        The aligner, and its training, which has the models of each line given all other lines.
    """
    options = options or AlignerOptions()
    before = None if start is None else ((start.source, start.target), start.entries)
    bitext = make_bitext(mark_ends(pairs), *(before or ()))
    begin = None if start is None else _begin(start, bitext)
    training = train_directions(bitext, options, report, begin, workers)
    forward, backward = training.directions
    links = forward.counts.links[:-1], backward.counts.links[:-1]
    is_stored = torch.maximum(*links) > LEAST_COUNT
    pairs_of_words = bitext.pairs
    entries = torch.stack(
        [pairs_of_words.pair_source[is_stored], pairs_of_words.pair_target[is_stored]]
    )
    sides = _stored_direction(forward, is_stored), _stored_direction(backward, is_stored)
    vocabularies = pairs_of_words.source, pairs_of_words.target
    pseudocount = 0.0 if start is None else start.pseudocount
    jumps = forward.jumps  # those of a kept aligner have its options
    options = replace(
        options, null_probability=jumps.null_probability, jump_smoothing=jumps.smoothing
    )
    aligner = WordAligner(*vocabularies, entries, *sides, options, pseudocount=pseudocount)
    return aligner, training


def _begin(aligner: WordAligner, bitext: Bitext) -> Start:
    """The counts of an aligner by the entries of a text that has those of the aligner too."""
    pairs = bitext.pairs
    keys, number = pairs.keys[0]
    entries = torch.searchsorted(keys, aligner.entries[0].long() * number + aligner.entries[1])
    forward, backward = aligner.forward, aligner.backward
    links = forward.counts.new_zeros(pairs.entries + 1).index_copy_(0, entries, forward.counts)
    other = torch.zeros_like(links).index_copy_(0, entries, backward.counts)
    if torch.equal(links, other):
        other = links
    return (
        _begin_direction(forward, links, len(pairs.source), len(pairs.target)),
        _begin_direction(backward, other, len(pairs.target), len(pairs.source)),
    )


def _begin_direction(
    kept: Direction, links: Float[Tensor, " padded_entry"], generating: int, generated: int
) -> DirectionStart:
    def extend(values: Tensor) -> Tensor:
        return torch.nn.functional.pad(values, (0, generated - len(values)))

    # a dictionary has seen no line, and has no jumps
    jumps = kept.jumps.with_words(generating) if kept.frequencies.any() else None
    return DirectionStart(links, extend(kept.null), extend(kept.frequencies), jumps, kept.alike)


def _stored_direction(trained: TrainedDirection, is_stored: Tensor) -> Direction:
    return Direction(
        trained.counts.links[:-1][is_stored],
        trained.null,
        trained.lexicon.frequencies,
        trained.jumps,
        trained.lexicon.alike,
    )
