"""Syntactic heads: they point along a dependency, where no fixed offset would find it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentheads.analysis.roles import (
    Counts,
    Detector,
    Role,
    View,
    add,
    by_offset,
    free,
    pointed,
    share,
)
from latentheads.corpora.grammar import Arc
from latentheads.corpora.grammar.syntax import arcs as arcs_of
from latentheads.corpora.grammar.syntax import parse
from latentheads.names import attention_type_of

__all__ = ["RELATIONS", "Case", "Relations", "Syntactic", "grammar_arcs"]

RELATIONS = ("nsubj", "dobj", "amod", "advmod")
"""The relations of the paper."""


@dataclass(frozen=True)
class Case:
    """A relation in one direction, and the fixed offset that finds it most often in the text.

    Attributes:
        relation: Its name.
        to_dependent: Whether governors point to dependents; else dependents to governors.
        offset: The offset in words.
        baseline: How often the offset is right.
        count: Words of which it could be asked.
    """

    relation: str
    to_dependent: bool
    offset: int
    baseline: float
    count: int

    @property
    def name(self) -> str:
        """For example ``nsubj to dependent``."""
        return f"{self.relation} to {'dependent' if self.to_dependent else 'governor'}"


@dataclass(frozen=True)
class Syntactic:
    """How often every head points along the relations.

    Attributes:
        cases: Relations in both directions.
        accuracy: By block; NaN where a head was not asked.
        baseline: By block: how often the best offset is right in the sentences in which a head
            speaks, that of the case for one that always does.
        margin: By how much a syntactic head is better than the baseline.
        relative: Whether the margin is a share of the baseline; else it is added to it.
    """

    cases: tuple[Case, ...]
    accuracy: dict[str, Float[Tensor, "case head"]]
    baseline: dict[str, Float[Tensor, "case head"]]
    margin: float
    relative: bool

    def needed(self, baseline: float) -> float:
        """The accuracy from which on a head is syntactic."""
        return baseline * (1 + self.margin) if self.relative else baseline + self.margin

    @property
    def roles(self) -> list[Role]:
        """The syntactic heads, one role a relation and direction."""
        return [
            Role(block, head, "syntactic", self.cases[case].name, score, baseline)
            for block, table in self.accuracy.items()
            for case, row in enumerate(zip(table.tolist(), self.baseline[block].tolist()))
            for head, (score, baseline) in enumerate(zip(*row, strict=True))
            if score >= self.needed(baseline)
        ]


class Relations(Detector):
    """Finds heads that point along a dependency, better than the best fixed offset by 10 points.

    A word is right when it points to a word with which it is in the relation, of which there may
    be several. The baseline always points to the most frequent offset of the relation in the same
    sentences, those in which the head speaks. Where words are cut, the weight on a word is the sum
    over its pieces, and the weight of a word the mean over its pieces; so everything here is in
    words.

    Args:
        arcs: Dependencies of each sentence of the corpus, in words from 0; a batch says by its
            ``index`` which sentences it holds.
        words: The word of each token of each sentence; None where every token is a word.
        relations: Their names.
        margin: By how much a head must be better.
        relative: Take the margin relative to the baseline, as in "10 % higher".
    """

    def __init__(
        self,
        arcs: Sequence[Sequence[Arc]],
        words: Sequence[Sequence[int]] | None = None,
        relations: Sequence[str] = RELATIONS,
        margin: float = 0.1,
        relative: bool = False,
    ) -> None:
        if margin < 0:
            raise ValueError(f"margin must not be negative, got {margin}")
        if words is not None and len(words) != len(arcs):
            raise ValueError(f"words must be of {len(arcs)} sentences, as arcs; got {len(words)}")
        self.arcs, self.words = arcs, words
        self.directed = [(relation, down) for relation in relations for down in (True, False)]
        self.margin, self.relative = margin, relative
        self._hits: dict[str, Tensor] = {}
        self._asked: dict[str, Tensor] = {}
        self._offsets: dict[str, Counts] = defaultdict(dict)
        self._text: dict[str, Counts] = defaultdict(dict)
        self._words: dict[str, Tensor] = {}

    def look(self, view: View) -> None:
        """Counts the right words of a block."""
        if max(view.places) >= len(self.arcs):
            raise ValueError(f"arcs must be of every sentence, got {len(self.arcs)}")
        member = self._members(view)
        related = self._related(view.places, member.any(-1)).to(member.device)
        weights = _in_words(view.weights, member)
        reached = _in_words(view.pairs.unsqueeze(1).to(weights), member).squeeze(1) > 0
        pairs, speaks = free(reached), view.speaks[..., None, None]
        related &= pairs.unsqueeze(1)
        asked = related.unsqueeze(2) & speaks.unsqueeze(1)
        right = pointed(weights, pairs.unsqueeze(1) & speaks).unsqueeze(1) & asked
        for total, each in ((self._hits, right), (self._asked, asked), (self._words, related)):
            self._count(total, view.block, each.any(-1).sum((0, -1)))
        add(self._offsets[view.block], by_offset(asked))
        add(self._text[view.block], by_offset(related))

    def _count(self, total: dict[str, Tensor], block: str, more: Tensor) -> None:
        total[block] = total.get(block, 0) + more.cpu()

    def _members(self, view: View) -> Bool[Tensor, "batch word token"]:
        """Which tokens make a word, of those that a self-attention reads."""
        if attention_type_of(view.block) == "decoder-cross":
            raise ValueError("chain must be one of self-attention: dependencies are within a side")
        real = view.known.answering()
        place = real.cumsum(-1) - 1
        if self.words is not None:
            place = self._cut(view.places, place)
        own = torch.arange(int(place.max()) + 1, device=real.device)
        return (place.unsqueeze(1) == own[:, None]) & real.unsqueeze(1)

    def _cut(self, places: Sequence[int], place: Tensor) -> Tensor:
        """The word of the n-th token of every sentence."""
        assert self.words is not None
        rows = [torch.as_tensor(self.words[each], dtype=torch.long) for each in places]
        table = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(place.device)
        for each, row, last in zip(places, rows, (place.amax(-1) + 1).tolist(), strict=True):
            if len(row) != last:
                raise ValueError(f"words of sentence {each} must be {last} tokens, got {len(row)}")
        return table.gather(-1, place.clamp(0, table.shape[-1] - 1))

    def _related(
        self, places: Sequence[int], words: Bool[Tensor, "batch word"]
    ) -> Bool[Tensor, "batch case word word"]:
        """True from a word to those with which it is in each relation and direction."""
        size = words.shape[-1]
        lengths = (words * torch.arange(1, size + 1, device=words.device)).amax(-1).tolist()
        found = torch.zeros(len(places), len(self.directed), size, size, dtype=torch.bool)
        cases = {case: place for place, case in enumerate(self.directed)}
        for row, (place, length) in enumerate(zip(places, lengths, strict=True)):
            for relation, governor, dependent in self.arcs[place]:
                if not (0 <= governor < length and 0 <= dependent < length):
                    raise ValueError(f"arcs of sentence {place} must be within its {length} words")
                if (relation, True) in cases:
                    found[row, cases[relation, True], governor, dependent] = True
                    found[row, cases[relation, False], dependent, governor] = True
        return found

    def result(self) -> Syntactic:
        """The accuracy of every head beside the baselines."""
        if not self._hits:
            raise ValueError("no heads were shown to this detector")
        block = next(iter(self._hits))
        words = self._words[block]
        offset, found = _best(self._text[block])
        baseline = share(found, words.clamp_min(1)).tolist()
        cases = tuple(
            Case(relation, down, int(offset[n]) if words[n] else 0, baseline[n], int(words[n]))
            for n, (relation, down) in enumerate(self.directed)
        )
        asked = self._asked.items()
        accuracy = {name: share(self._hits[name], number) for name, number in asked}
        best = {name: share(_best(self._offsets[name])[1], number) for name, number in asked}
        return Syntactic(cases, accuracy, best, self.margin, self.relative)


def _best(counts: Counts) -> tuple[Int[Tensor, "*case"], Int[Tensor, "*case"]]:
    """The most frequent offset of every case, and how often it occurs."""
    most, place = torch.stack(list(counts.values())).max(0)
    return torch.tensor(list(counts))[place], most


def _in_words(
    weights: Float[Tensor, "batch any token token"], member: Bool[Tensor, "batch word token"]
) -> Float[Tensor, "batch any word word"]:
    """Sums weights over the pieces of the key and averages them over those of the query."""
    pieces = member.to(weights).unsqueeze(1)
    mean = pieces / pieces.sum(-1, keepdim=True).clamp_min(1)
    return mean @ weights @ pieces.transpose(-1, -2)


def grammar_arcs(lines: Iterable[str]) -> list[tuple[Arc, ...]]:
    """The dependencies of sentences of the built-in grammar.

    Raises:
        ValueError: The grammar does not generate a sentence.
    """
    return [arcs_of(parse(line.split())[0]) for line in lines]
