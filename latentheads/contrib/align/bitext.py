"""Sentence pairs as padded batches, and the word pairs that occur together in them.

The translation table of a text has one entry for each pair of words that occur in one sentence pair
at least. Batches have the entry of every cell, so that a table is looked up by one gather, and
expected counts are added by one scatter; two bytes of each are stored. Entries are also grouped by
the classes of their words, those with the same first letters, from long prefixes to short ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from numpy import ndarray
from torch import Tensor

from latentheads.console import show_progress
from latentheads.contrib.align.vocabulary import PrefixClasses, Vocabulary, Words

BATCH_CELLS = 100_000
"""Most cells of a batch: sentence pairs times source words times target words."""

BLOCK_CELLS = 8_000_000
"""Cells of consecutive lines after which a block ends: batches never mix lines of two blocks, so
that posteriors leave memory block by block in the order of the text."""

BAND = 3
"""Lengths of a source that are grouped together before those of the target."""

CHUNK = 8_000_000
"""Keys that are sorted at once, which bounds memory."""

RANKS = 2**16
"""Target words that the two bytes of a cell can distinguish, for one source word."""

PREFIXES = (2, 3, 4, 5, 6)
"""Numbers of first letters that words of a class share."""

PADDING = -1

END = "\n"
"""The word that ends a sentence; no line contains it."""

Lines = Sequence[tuple[Int[ndarray, " source"], Int[ndarray, " target"]]]
"""The ids of the words of both sides of sentence pairs."""

EMPTY = np.zeros(0, np.int32), np.zeros(0, np.int32)
"""A line that cannot be aligned."""


@dataclass(frozen=True)
class PairBatch:
    """Some sentence pairs, padded.

    Attributes:
        indices: The index of each sentence pair in the text.
        source: Ids of source words; -1 at padding.
        target: Ids of target words; -1 at padding.
        cells: The entry of each pair of words in the translation table; the last one at padding.
            None: the lines are new to the table, whose entries are searched for.
    """

    indices: tuple[int, ...]
    source: Int[Tensor, "pair source"]
    target: Int[Tensor, "pair target"]
    cells: Int[Tensor, "pair target source"] | None = None

    @property
    def source_mask(self) -> Bool[Tensor, "pair source"]:
        """Whether a source position has a word."""
        return self.source != PADDING

    @property
    def target_mask(self) -> Bool[Tensor, "pair target"]:
        """Whether a target position has a word."""
        return self.target != PADDING

    @property
    def cell_mask(self) -> Bool[Tensor, "pair target source"]:
        """Whether a cell is a pair of words."""
        return self.source_mask[:, None] & self.target_mask[..., None]

    @property
    def entries(self) -> Int[Tensor, "pair target source"]:
        """The entries of a batch of the text of the table."""
        assert self.cells is not None
        return self.cells

    def reverse(self) -> PairBatch:
        """The same pairs with source and target exchanged."""
        cells = None if self.cells is None else self.cells.mT
        return PairBatch(self.indices, self.target, self.source, cells)


@dataclass(frozen=True)
class ClassLevel:
    """Pairs of classes of words that share a number of first letters.

    Attributes:
        source: The class of each source word.
        target: The class of each target word.
        pair: The pair of classes of each pair of the next longer prefix, or of each entry.
        pair_source: The class of source words of each pair of classes; sorted by it and the next.
        pair_target: The class of target words of each pair of classes.
    """

    source: PrefixClasses
    target: PrefixClasses
    pair: Int[Tensor, " longer"]
    pair_source: Int[Tensor, " classes"]
    pair_target: Int[Tensor, " classes"]

    def reverse(self) -> ClassLevel:
        """The same classes with source and target exchanged; the pairs keep their order."""
        return ClassLevel(self.target, self.source, self.pair, self.pair_target, self.pair_source)


@dataclass(frozen=True)
class WordPairs:
    """The entries of a translation table, and the pairs of classes of their words.

    Attributes:
        source: The source vocabulary.
        target: The target vocabulary.
        pair_source: The source word of every entry; entries are sorted by it and the next.
        pair_target: The target word of every entry.
        levels: Pairs of classes, from the longest prefix to the shortest.
    """

    source: Vocabulary
    target: Vocabulary
    pair_source: Int[Tensor, " entry"]
    pair_target: Int[Tensor, " entry"]
    levels: tuple[ClassLevel, ...]

    @property
    def entries(self) -> int:
        """Number of entries of the translation table."""
        return len(self.pair_source)

    @cached_property
    def keys(self) -> list[tuple[Int[Tensor, " pair"], int]]:
        """The sorted keys of entries, and of pairs of classes, with the factor of the source."""
        sides = [(self.pair_source, self.pair_target, len(self.target))]
        sides += [
            (level.pair_source, level.pair_target, len(level.target.ids)) for level in self.levels
        ]
        return [(source.long() * number + target, number) for source, target, number in sides]

    def reverse(self) -> WordPairs:
        """The same pairs with source and target exchanged; the entries keep their order."""
        levels = tuple(level.reverse() for level in self.levels)
        return WordPairs(self.target, self.source, self.pair_target, self.pair_source, levels)


def take(values: Shaped[Tensor, " _"], ids: Int[Tensor, "*shape"]) -> Shaped[Tensor, "*shape"]:
    """The value of each id; `index_select` is faster than indexing."""
    return values.index_select(0, ids.flatten()).view(ids.shape)


def make_word_pairs(
    source: Vocabulary,
    target: Vocabulary,
    pair_source: Int[Tensor, " entry"],
    pair_target: Int[Tensor, " entry"],
) -> WordPairs:
    """Groups the entries of a table, which are sorted, by the first letters of their words."""
    levels: list[ClassLevel] = []
    sources, targets = pair_source, pair_target
    for letters in show_progress(sorted(PREFIXES, reverse=True), "grouping words", "prefix"):
        classes = PrefixClasses.of(source, letters), PrefixClasses.of(target, letters)
        if levels:  # each pair of longer prefixes has one pair of shorter ones
            sources, targets = (
                side.shorten(ids, other)
                for side, ids, other in (
                    (levels[-1].source, levels[-1].pair_source, classes[0]),
                    (levels[-1].target, levels[-1].pair_target, classes[1]),
                )
            )
        else:
            sources, targets = classes[0].of_word[sources], classes[1].of_word[targets]
        number = max(len(classes[1].ids), 1)
        keys, pair = torch.unique(sources.long() * number + targets, return_inverse=True)
        pairs = (keys // number).int(), (keys % number).int()
        levels.append(ClassLevel(*classes, pair.int(), *pairs))
    return WordPairs(source, target, pair_source, pair_target, tuple(levels))


@dataclass(frozen=True)
class Bitext:
    """A parallel text.

    Attributes:
        pairs: The word pairs that occur in it.
        batches: The sentence pairs that can be aligned: no side is empty.
        size: Number of sentence pairs, with those that cannot.
    """

    pairs: WordPairs
    batches: Sequence[PairBatch]
    size: int

    def reverse(self) -> Bitext:
        """The same text with source and target exchanged; the entries keep their order."""
        return replace(self, pairs=self.pairs.reverse(), batches=_Reversed(self.batches))

    @cached_property
    def target_counts(self) -> Int[Tensor, " word"]:
        """How often each target word occurs."""
        counts = torch.zeros(len(self.pairs.target), dtype=torch.int64)
        for batch in self.batches:
            counts += torch.bincount(batch.target[batch.target_mask], minlength=len(counts))
        return counts


class _Stored(Sequence[PairBatch]):
    """Batches whose cells are made when they are read, of two bytes each.

    Entries are sorted by source and then by target. So an entry is the first one of its source word
    and of the block of :data:`RANKS` target words that its target is of, and a rank after it.

    Args:
        batches: The batches without cells.
        keys: The sorted keys of all entries.
        sizes: Number of source and of target words.
    """

    def __init__(
        self, batches: Sequence[PairBatch], keys: Int[Tensor, " entry"], sizes: tuple[int, int]
    ) -> None:
        self._batches, self._padding = batches, len(keys)
        self._blocks = -(-sizes[1] // RANKS)
        starts = torch.arange(sizes[0])[:, None] * sizes[1] + torch.arange(self._blocks) * RANKS
        self._starts = torch.searchsorted(keys, starts.flatten()).int()
        self._ranks = [
            (_find_cells(keys, batch, sizes[1]) - self._first_entries(batch)).to(torch.uint16)
            for batch in show_progress(batches, "finding pairs of words", "batch")
        ]

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> PairBatch:  # type: ignore[override]
        batch = self._batches[index]
        entries = self._ranks[index].int().add_(self._first_entries(batch))
        return replace(batch, cells=entries.masked_fill_(~batch.cell_mask, self._padding))

    def _first_entries(self, batch: PairBatch) -> Int[Tensor, "pair target source"]:
        source, target = batch.source.clamp(min=0), batch.target.clamp(min=0)
        blocks = (target // RANKS)[..., None]
        return take(self._starts, source[:, None] * self._blocks + blocks)


class _Reversed(Sequence[PairBatch]):
    """Batches with source and target exchanged, made when they are read."""

    def __init__(self, batches: Sequence[PairBatch]) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> PairBatch:  # type: ignore[override]
        return self._batches[index].reverse()


def mark_ends(pairs: Iterable[tuple[Words, Words]]) -> Iterator[tuple[Words, Words]]:
    """Adds a word for the end to both sentences, so that the last jump has a probability.

    A pair that cannot be aligned, because one side is empty, has no words: they are not those of
    the text, and would move the probabilities of other pairs.
    """
    for left, right in pairs:
        yield ((*left, END), (*right, END)) if left and right else ((), ())


def make_bitext(
    pairs: Iterable[tuple[Words, Words]],
    vocabularies: tuple[Vocabulary, Vocabulary] | None = None,
    stored: Int[Tensor, "2 stored"] | None = None,
) -> Bitext:
    """Makes the batches of a parallel text.

    Args:
        pairs: The words of both sides of every sentence pair; each is read once.
        vocabularies: Vocabularies to extend, of source and target; None: new ones.
        stored: Entries that the translation table has besides those of the text.
    """
    old_words = [side.words for side in vocabularies] if vocabularies else [(), ()]
    ids = [_new_ids(words) for words in old_words]
    lines = [
        (_encode(ids[0], left), _encode(ids[1], right)) if left and right else EMPTY
        for left, right in show_progress(pairs, "reading pairs", "pair")
    ]
    source, target = (Vocabulary(tuple(words)) for words in ids)
    batches = [pad_batch(lines, group) for group in group_lines(lines)]
    size, sizes = len(lines), (len(source), max(len(target), 1))
    del lines
    others = [] if stored is None else [(stored[0].long() * sizes[1] + stored[1]).numpy()]
    shown = show_progress(batches, "collecting pairs of words", "batch")
    parts = chain(others, (_distinct_word_pairs(batch, sizes[1]) for batch in shown))
    keys = distinct_keys(parts)
    sides = (torch.from_numpy(side.astype(np.int32)) for side in divmod(keys, sizes[1]))
    # large sorts come before cells, which are most of what is held
    word_pairs = make_word_pairs(source, target, *sides)
    return Bitext(word_pairs, _Stored(batches, torch.from_numpy(keys), sizes), size)


def _new_ids(words: Words) -> defaultdict[str, int]:
    """The ids of words; a new word gets the next one."""
    ids: defaultdict[str, int] = defaultdict(None, zip(words, count()))
    ids.default_factory = ids.__len__
    return ids


def _encode(ids: Mapping[str, int], words: Words) -> Int[ndarray, " word"]:
    """The ids of words."""
    return np.array([ids[word] for word in words], np.int32)


def group_lines(lines: Lines) -> Iterator[list[int]]:
    """Yields groups of similar lengths, block after block; a line with an empty side has none."""
    block: list[int] = []
    cells = 0
    for index, (left, right) in enumerate(lines):
        if len(left) and len(right):
            block.append(index)
            cells += len(left) * len(right)
        if cells > BLOCK_CELLS:
            yield from _group_by_length(lines, block)
            block, cells = [], 0
    yield from _group_by_length(lines, block)


def _group_by_length(lines: Lines, block: list[int]) -> Iterator[list[int]]:
    """Yields groups of similar lengths of the lines of a block."""
    group: list[int] = []
    longest = (0, 0)
    sizes = {index: (len(lines[index][0]), len(lines[index][1])) for index in block}
    for index in sorted(block, key=lambda index: _by_length(*sizes[index])):
        lengths = sizes[index]
        new = max(longest[0], lengths[0]), max(longest[1], lengths[1])
        if group and new[0] * new[1] * (len(group) + 1) > BATCH_CELLS:
            yield group
            group, new = [], lengths
        group.append(index)
        longest = new
    if group:
        yield group


def _by_length(source: int, target: int) -> tuple[int, int]:
    """Sorts lines so that a batch needs little padding: targets grow and shrink in turns."""
    band = source // BAND
    return band, target if band % 2 else -target


def pad_batch(lines: Lines, group: Sequence[int]) -> PairBatch:
    """A batch of some lines, without the entries of their words."""
    sides = (_pad([lines[index][side] for index in group]) for side in (0, 1))
    return PairBatch(tuple(group), *sides)


def _pad(sentences: Sequence[Int[ndarray, " word"]]) -> Int[Tensor, "sentence word"]:
    """Pads sentences to the length of the longest."""
    padded = np.full((len(sentences), max(map(len, sentences))), PADDING, np.int32)
    for row, sentence in enumerate(sentences):
        padded[row, : len(sentence)] = sentence
    return torch.from_numpy(padded)


def _word_pair_keys(
    batch: PairBatch, targets: int
) -> tuple[Int[Tensor, "pair target source"], Bool[Tensor, "pair target source"]]:
    """The key of the pair of words of each cell of a batch, and which cells are no padding."""
    source, target = batch.source.long(), batch.target.long()
    keys = source[:, None, :] * targets + target[:, :, None]
    return keys, batch.cell_mask


def _distinct_word_pairs(batch: PairBatch, targets: int) -> Int[ndarray, " key"]:
    """The distinct keys of all pairs of words of a batch."""
    keys, mask = _word_pair_keys(batch, targets)
    return _distinct(keys[mask].numpy())


def _distinct(keys: Int[ndarray, " key"]) -> Int[ndarray, " distinct"]:
    """The distinct keys, sorted; sorting is faster here than the hashes of `numpy.unique`."""
    keys = np.sort(keys)
    return keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if len(keys) else keys


def distinct_keys(parts: Iterable[Int[ndarray, " key"]]) -> Int[ndarray, " key"]:
    """The distinct keys of all parts, sorted.

    Parts are joined in runs of doubling size, as a merge sort does, so that each key is sorted a
    few times only, and memory holds little more than the distinct ones.
    """
    runs: list[Int[ndarray, " key"]] = []
    chunk: list[Int[ndarray, " key"]] = []

    def close() -> None:
        if chunk:
            runs.append(_distinct(np.concatenate(chunk)))
            chunk.clear()
        while len(runs) > 1 and len(runs[-2]) < 2 * len(runs[-1]):
            last = runs.pop()
            runs[-1] = _distinct(np.concatenate([runs[-1], last]))

    for part in parts:
        chunk.append(part)
        if sum(map(len, chunk)) > CHUNK:
            close()
    close()
    return _distinct(np.concatenate([np.zeros(0, np.int64), *runs]))


def _find_cells(
    keys: Int[Tensor, " entry"], batch: PairBatch, targets: int
) -> Int[Tensor, "pair target source"]:
    """The entry of each cell; the number of entries at padding."""
    cells, mask = _word_pair_keys(batch, targets)
    # distinct keys are searched for in order, which is several times as fast in a large table
    distinct, cell = torch.unique(cells[mask], return_inverse=True)
    entries = torch.searchsorted(keys, distinct)
    return torch.full(cells.shape, len(keys), dtype=torch.int32).masked_scatter_(
        mask, entries.int()[cell]
    )
