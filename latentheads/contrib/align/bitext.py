"""Sentence pairs as padded batches, and the word pairs that occur together in them.

The translation table of a text has one entry for each pair of words that occur in one sentence pair
at least. Batches store the entry of every cell, so that a table is looked up by one gather, and
expected counts are added by one scatter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latentheads.contrib.align.vocabulary import Vocabulary, Words

BATCH_CELLS = 60_000
"""Most cells of a batch: sentence pairs times source words times target words."""

CHUNK = 8_000_000
"""Cells whose distinct word pairs are found at once, which bounds memory."""

PADDING = -1

END = "\n"
"""The word that ends a sentence; no line contains it."""


@dataclass(frozen=True)
class PairBatch:
    """Some sentence pairs, padded.

    Attributes:
        indices: The index of each sentence pair in the text.
        source: Ids of source words; -1 at padding.
        target: Ids of target words; -1 at padding.
        cells: The entry of each pair of words in the translation table; the last one at padding.
    """

    indices: tuple[int, ...]
    source: Int[Tensor, "pair source"]
    target: Int[Tensor, "pair target"]
    cells: Int[Tensor, "pair target source"]

    @property
    def source_mask(self) -> Bool[Tensor, "pair source"]:
        """Whether a source position has a word."""
        return self.source != PADDING

    @property
    def target_mask(self) -> Bool[Tensor, "pair target"]:
        """Whether a target position has a word."""
        return self.target != PADDING

    def reverse(self) -> PairBatch:
        """The same pairs with source and target exchanged."""
        return PairBatch(self.indices, self.target, self.source, self.cells.mT)


@dataclass(frozen=True)
class Bitext:
    """A parallel text.

    Attributes:
        source: The source vocabulary.
        target: The target vocabulary.
        pair_source: The source word of every entry of the translation table.
        pair_target: The target word of every entry.
        batches: The sentence pairs that can be aligned: no side is empty.
        size: Number of sentence pairs, with those that cannot.
    """

    source: Vocabulary
    target: Vocabulary
    pair_source: Int[Tensor, " entry"]
    pair_target: Int[Tensor, " entry"]
    batches: Sequence[PairBatch]
    size: int

    def reverse(self) -> Bitext:
        """The same text with source and target exchanged; the entries keep their order."""
        return replace(
            self,
            source=self.target,
            target=self.source,
            pair_source=self.pair_target,
            pair_target=self.pair_source,
            batches=[batch.reverse() for batch in self.batches],
        )

    @property
    def entries(self) -> int:
        """Number of entries of the translation table."""
        return len(self.pair_source)

    @cached_property
    def target_counts(self) -> Int[Tensor, " word"]:
        """How often each target word occurs."""
        counts = torch.zeros(len(self.target), dtype=torch.int64)
        for batch in self.batches:
            counts += torch.bincount(batch.target[batch.target_mask], minlength=len(counts))
        return counts


def mark_ends(pairs: Iterable[tuple[Words, Words]]) -> list[tuple[Words, Words]]:
    """Adds a word for the end to both sentences, so that the last jump has a probability.

    A pair that cannot be aligned, because one side is empty, stays as it is.
    """
    return [
        ((*left, END), (*right, END)) if left and right else (left, right) for left, right in pairs
    ]


def make_bitext(
    pairs: Sequence[tuple[Words, Words]],
    vocabularies: tuple[Vocabulary, Vocabulary] | None = None,
    stored: Int[Tensor, "2 stored"] | None = None,
) -> Bitext:
    """Makes the batches of a parallel text.

    A pair with an empty side cannot be aligned, and its words are not those of the text: they would
    move the probabilities of other pairs.

    Args:
        pairs: The words of both sides of every sentence pair.
        vocabularies: Vocabularies to extend, of source and target; None: new ones.
        stored: Entries that the translation table has besides those of the text.
    """
    empty = Vocabulary(())
    source, target = vocabularies or (empty, empty)
    pairs = [pair if all(pair) else ((), ()) for pair in pairs]
    source = source.extend(words for words, _ in pairs)
    target = target.extend(words for _, words in pairs)
    encoded = [(source.encode(left), target.encode(right)) for left, right in pairs]
    groups = list(_group_by_length(encoded))
    padded = [
        tuple(_pad([encoded[index][side] for index in group]) for side in (0, 1))
        for group in groups
    ]
    cell_keys = [_cell_keys(left, right, len(target)) for left, right in padded]
    keys = _distinct_keys(
        cell_keys, None if stored is None else stored[0] * len(target) + stored[1]
    )
    batches = [
        PairBatch(tuple(group), left, right, _find_cells(keys, cells))
        for group, (left, right), cells in zip(groups, padded, cell_keys, strict=True)
    ]
    return Bitext(
        source,
        target,
        keys // max(len(target), 1),
        keys % max(len(target), 1),
        batches,
        len(pairs),
    )


def _group_by_length(pairs: Sequence[tuple[list[int], list[int]]]) -> Iterator[list[int]]:
    """Yields groups of similar lengths; pairs with an empty side are left out."""
    lengths = [(len(left), len(right)) for left, right in pairs]
    group: list[int] = []
    longest = (0, 0)
    for index in sorted(range(len(pairs)), key=lengths.__getitem__):
        if not all(lengths[index]):
            continue
        new = tuple(map(max, longest, lengths[index]))
        if group and new[0] * new[1] * (len(group) + 1) > BATCH_CELLS:
            yield group
            group, new = [], lengths[index]
        group.append(index)
        longest = new[0], new[1]
    if group:
        yield group


def _pad(sentences: Sequence[list[int]]) -> Int[Tensor, "sentence word"]:
    """Pads sentences to the length of the longest."""
    return torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(sentence) for sentence in sentences], True, PADDING
    )


def _cell_keys(
    source: Int[Tensor, "pair source"], target: Int[Tensor, "pair target"], targets: int
) -> Int[Tensor, "pair target source"]:
    """One number for every pair of words; -1 at padding."""
    keys = source[:, None, :] * targets + target[:, :, None]
    is_padding = (source == PADDING)[:, None, :] | (target == PADDING)[:, :, None]
    return keys.masked_fill(is_padding, PADDING)


def _distinct_keys(
    cell_keys: Sequence[Int[Tensor, "pair target source"]], stored: Int[Tensor, " stored"] | None
) -> Int[Tensor, " entry"]:
    """The distinct keys of all cells and of stored entries, sorted."""
    distinct = torch.zeros(0, dtype=torch.int64) if stored is None else stored
    chunk, size = [distinct], 0
    for keys in cell_keys:
        chunk.append(keys.flatten())
        size += keys.numel()
        if size > CHUNK:
            chunk, size = [torch.unique(torch.cat(chunk))], 0
    distinct = torch.unique(torch.cat(chunk))
    return distinct[distinct != PADDING]


def _find_cells(
    keys: Int[Tensor, " entry"], cells: Int[Tensor, "pair target source"]
) -> Int[Tensor, "pair target source"]:
    """The entry of each cell; the number of entries at padding."""
    entries = torch.searchsorted(keys, cells).masked_fill_(cells == PADDING, len(keys))
    return entries.int()
