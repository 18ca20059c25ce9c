"""Expected counts of links by word pairs and by pairs of classes, of all lines or of all but one.

A line's own links are taken out of every sum by products with matrices that say which of its words
are of one class, so that the counts of all other lines cost a few small products and gathers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentheads.contrib.align.bitext import PADDING, PairBatch, WordPairs, take
from latentheads.contrib.align.spelling import Spelling, make_spelling


@dataclass(frozen=True)
class SideCounts:
    """The words of one side of a batch, then their classes from the longest prefix on.

    Attributes:
        ids: Which they are: 0 at padding, -1 for a new class.
        sums: The counts of their links.
        own: How many words of the line are of them, if they are taken out; or 0.
        alike: The number of words of the other language that are spelt like each word.
    """

    ids: Sequence[Int[Tensor, "pair word"]]
    sums: Sequence[Float[Tensor, "pair word"]]
    own: Sequence[Float[Tensor, "#pair #word"]]
    alike: Int[Tensor, "pair word"]


@dataclass(frozen=True)
class CellCounts:
    """The counts that the translations of a batch depend on, one for each of its word pairs.

    Attributes:
        links: By word pair, then by pair of classes from the longest prefix to the shortest.
        alike: Whether the words of a pair are spelt alike.
        is_new: Whether they stand together for the first time.
        source: The source words.
        target: The target words.
    """

    links: Sequence[Float[Tensor, "pair target source"]]
    alike: Bool[Tensor, "pair target source"]
    is_new: Bool[Tensor, "#pair #target #source"]
    source: SideCounts
    target: SideCounts

    def reverse(self) -> CellCounts:
        """The same counts with source and target exchanged."""
        links = [counts.mT for counts in self.links]
        return CellCounts(links, self.alike.mT, self.is_new.mT, self.target, self.source)


@dataclass(frozen=True)
class CountTable:
    """Expected counts of links.

    Attributes:
        pairs: The entries, and the pairs of classes.
        spelling: Which entries are spelt alike.
        links: The count of each entry; the last one is that of padding.
    """

    pairs: WordPairs
    spelling: Spelling
    links: Float[Tensor, " padded_entry"]

    @cached_property
    def classes(self) -> list[Float[Tensor, " _"]]:
        """The counts of pairs of classes, from the longest prefix to the shortest."""
        sums, counts = [], self.links[:-1]
        for level in self.pairs.levels:
            total = counts.new_zeros(len(level.pair_source)).index_add_(0, level.pair, counts)
            sums.append(total)
            counts = total
        return sums

    @cached_property
    def source_sums(self) -> list[Float[Tensor, " _"]]:
        """The counts of source words, then of their classes."""
        levels = [(level.pair_source, len(level.source.ids)) for level in self.pairs.levels]
        return self._margins([(self.pairs.pair_source, len(self.pairs.source)), *levels])

    @cached_property
    def target_sums(self) -> list[Float[Tensor, " _"]]:
        """The counts of target words, then of their classes."""
        levels = [(level.pair_target, len(level.target.ids)) for level in self.pairs.levels]
        return self._margins([(self.pairs.pair_target, len(self.pairs.target)), *levels])

    def _margins(self, owners: Sequence[tuple[Int[Tensor, " _"], int]]) -> list[Tensor]:
        """Sums of counts by their owners; an item has the owner of each count, and their number."""
        counts = [self.links[:-1], *self.classes]
        return [
            self.links.new_zeros(size).index_add_(0, owner, count)
            for (owner, size), count in zip(owners, counts, strict=True)
        ]

    def reverse(self) -> CountTable:
        """The same counts with source and target exchanged."""
        table = CountTable(self.pairs.reverse(), self.spelling.reverse(), self.links)
        # sums are those of this table, which it has or will have
        vars(table).update(
            classes=self.classes, source_sums=self.target_sums, target_sums=self.source_sums
        )
        return table

    def cells(
        self, batch: PairBatch, own: Float[Tensor, "pair target source"] | None = None
    ) -> CellCounts:
        """The counts of a batch of the text.

        Args:
            batch: The batch.
            own: Expected links of its lines that are part of the counts; they are taken out of the
                counts of each line. None: nothing is taken out.
        """
        # padding has the counts of the last entry, which its weight of 0 hides
        entry = batch.entries.clamp(max=self.pairs.entries - 1)
        links = [take(self.links, entry)]
        pair = entry
        for level, counts in zip(self.pairs.levels, self.classes, strict=True):
            pair = take(level.pair, pair)
            links.append(take(counts, pair))
        levels, spelling = self.pairs.levels, self.spelling
        sources = [level.source.of_word for level in levels]
        targets = [level.target.of_word for level in levels]
        source = _side(batch.source, sources, self.source_sums, spelling.source, take)
        target = _side(batch.target, targets, self.target_sums, spelling.target, take)
        if own is not None:
            links, source, target = _take_out(links, source, target, batch, own)
        is_new = torch.zeros(1, 1, 1, dtype=torch.bool)
        return CellCounts(links, take(self.spelling.alike, entry), is_new, source, target)


def _side(
    words: Int[Tensor, "pair word"],
    classes: Sequence[Int[Tensor, " _"]],
    sums: Sequence[Float[Tensor, " _"]],
    alike: Int[Tensor, " type"],
    find: Callable[[Tensor, Tensor], Tensor],
) -> SideCounts:
    """The counts of one side of a batch.

    Args:
        words: Its words.
        classes: The class of every word, by length of the prefix.
        sums: The counts of all words, then of their classes.
        alike: The number of words that are spelt like each.
        find: :func:`take`, or :func:`look_up` if words may be new.
    """
    first = words.clamp(min=0).long()
    ids = [first, *(take(level, first) for level in classes)]
    values = [find(total, index) for total, index in zip(sums, ids, strict=True)]
    return SideCounts(ids, values, [values[0].new_zeros(1, 1)] * len(ids), find(alike, first))


def same_class(
    classes: Int[Tensor, "pair word"], mask: Bool[Tensor, "pair word"], dtype: torch.dtype
) -> Float[Tensor, "pair word other"]:
    """Whether two words of a line are of one class; padding, which has no links, is one."""
    ids = torch.where(mask, classes, PADDING).int()
    return (ids[:, :, None] == ids[:, None, :]).to(dtype)


def _take_out(
    links: Sequence[Tensor],
    source: SideCounts,
    target: SideCounts,
    batch: PairBatch,
    own: Float[Tensor, "pair target source"],
) -> tuple[list[Tensor], SideCounts, SideCounts]:
    """Takes the links of each line out of the counts of its words and their classes."""
    columns = [same_class(ids, batch.source_mask, own.dtype) for ids in source.ids]
    rows = [same_class(ids, batch.target_mask, own.dtype) for ids in target.ids]
    # what rounding leaves of a count that is wholly the line's is no less than 0
    left = [
        torch.baddbmm(counts, row @ own, column, alpha=-1).clamp_(min=0)
        for counts, row, column in zip(links, rows, columns, strict=True)
    ]
    return (
        left,
        _take_out_of_side(source, columns, own.sum(1)),
        _take_out_of_side(target, rows, own.sum(2)),
    )


def _take_out_of_side(
    side: SideCounts,
    same: Sequence[Float[Tensor, "pair word other"]],
    own: Float[Tensor, "pair word"],
) -> SideCounts:
    sums = [
        (total - (own[:, None] @ matrix)[:, 0]).clamp_(min=0)
        for total, matrix in zip(side.sums, same, strict=True)
    ]
    return SideCounts(side.ids, sums, [matrix.sum(-1) for matrix in same], side.alike)


class NewCells:
    """The counts of lines that are new to a table, found by search.

    Args:
        table: The table.
        source: Source words that it does not have, with the ids that follow its own.
        target: Such target words.
    """

    def __init__(self, table: CountTable, source: dict[str, int], target: dict[str, int]) -> None:
        self._table = table
        levels = table.pairs.levels
        self._source = [level.source.with_words(source) for level in levels]
        self._target = [level.target.with_words(target) for level in levels]
        self._words = (
            (*table.pairs.source.words, *source) if source else table.pairs.source.words,
            (*table.pairs.target.words, *target) if target else table.pairs.target.words,
        )

    def cells(self, batch: PairBatch) -> CellCounts:
        """The counts of a batch of the new lines."""
        table = self._table
        sums, spelling = (table.source_sums, table.target_sums), table.spelling
        source = _side(batch.source, self._source, sums[0], spelling.source, look_up)
        target = _side(batch.target, self._target, sums[1], spelling.target, look_up)
        values = [table.links[:-1], *table.classes]
        searched = [
            _search(keys, counts, sources[:, None], targets[..., None])
            for keys, counts, sources, targets in zip(
                table.pairs.keys, values, source.ids, target.ids, strict=True
            )
        ]
        links = [counts for counts, _ in searched]
        return CellCounts(links, self._alike(batch), ~searched[0][1], source, target)

    def _alike(self, batch: PairBatch) -> Bool[Tensor, "pair target source"]:
        """Whether the words of every pair are spelt alike."""
        sides = [
            torch.unique(side.clamp(min=0), return_inverse=True)
            for side in (batch.source, batch.target)
        ]
        source, target = (
            [words[index] for index in ids.tolist()]
            for words, (ids, _) in zip(self._words, sides, strict=True)
        )
        # words of one line alone are compared: all words of many short lines have too many pairs
        cells = sides[0][1][:, None] * len(target) + sides[1][1][..., None]
        mask = batch.cell_mask
        keys, cell = torch.unique(cells[mask], return_inverse=True)
        spelling = make_spelling(source, target, keys // len(target), keys % len(target))
        return torch.zeros_like(mask).masked_scatter_(mask, spelling.alike[cell])


def _search(
    keys: tuple[Int[Tensor, " stored"], int],
    values: Float[Tensor, " stored"],
    source: Int[Tensor, "pair 1 source"],
    target: Int[Tensor, "pair target 1"],
) -> tuple[Float[Tensor, "pair target source"], Bool[Tensor, "pair target source"]]:
    """The value of each pair, 0 where it has none, and whether it has one."""
    sorted_keys, number = keys
    is_new = (source < 0) | (target < 0) | (target >= number)
    wanted = torch.where(is_new, -1, source * number + target)
    if not len(sorted_keys):
        return values.new_zeros(wanted.shape), torch.zeros_like(wanted, dtype=torch.bool)
    index = torch.searchsorted(sorted_keys, wanted).clamp_(max=len(sorted_keys) - 1)
    is_stored = sorted_keys[index] == wanted
    return torch.where(is_stored, values[index], values.new_zeros(())), is_stored


def look_up(values: Tensor, ids: Int[Tensor, "*shape"]) -> Tensor:
    """The value of each id; 0 for one that has none."""
    if not len(values):
        return values.new_zeros(ids.shape)
    is_known = (ids >= 0) & (ids < len(values))
    return take(values, ids.clamp(0, len(values) - 1)) * is_known
