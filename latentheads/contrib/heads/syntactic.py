"""Syntactic heads: they attend along a dependency more often than any fixed offset does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentheads.contrib.heads.roles import (
    AttentionView,
    Detector,
    OffsetCounts,
    Role,
    add_counts,
    argmax_pairs,
    count_by_offset,
    drop_single_choice,
    fraction,
)
from latentheads.corpora.grammar.syntax import Arc, parse
from latentheads.corpora.grammar.syntax import arcs as arcs_of
from latentheads.names import attention_type_of

RELATIONS = ("nsubj", "dobj", "amod", "advmod")
"""The relations of the paper."""


@dataclass(frozen=True)
class DirectedRelation:
    """A relation in one direction, and the most frequent offset of its words in the text.

    Attributes:
        relation: Name of the relation.
        to_dependent: Whether governors attend to dependents; else dependents to governors.
        offset: The offset in words.
        baseline: Accuracy of the offset.
        count: Number of words with the relation in this direction.
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
class SyntacticHeads:
    """Share of words for which every head attends along the relations.

    Attributes:
        cases: Relations in both directions.
        accuracy: By block; NaN for a head without counted words.
        baseline: By block: accuracy of the best fixed offset in the sentences in which a head is
            active; for a head that is always active, the baseline of the case.
        margin: Minimum difference to the baseline of a syntactic head.
    """

    cases: tuple[DirectedRelation, ...]
    accuracy: dict[str, Float[Tensor, "case head"]]
    baseline: dict[str, Float[Tensor, "case head"]]
    margin: float

    def needed(self, baseline: float) -> float:
        """The minimum accuracy of a syntactic head."""
        return baseline + self.margin

    @property
    def roles(self) -> list[Role]:
        """The syntactic heads, one role per relation and direction."""
        return [
            Role(block, head, "syntactic", self.cases[case].name, score, baseline)
            for block, table in self.accuracy.items()
            for case, row in enumerate(zip(table.tolist(), self.baseline[block].tolist()))
            for head, (score, baseline) in enumerate(zip(*row, strict=True))
            if score >= self.needed(baseline)
        ]


class SyntacticDetector(Detector):
    """Finds heads that attend along a dependency, 10 points better than the best fixed offset.

    A word is correct if it attends to one of the words to which it has the relation. The baseline
    always attends to the most frequent offset of the relation, in the same sentences: those in
    which the head is active. With subwords, the weight on a key word is the sum over its subwords,
    and the weight from a query word is the mean over its subwords; so all indices are in words.

    Args:
        arcs: Dependencies of each sentence of the corpus, in word indices from 0. A batch has the
            indices of its sentences in ``sentences``.
        words: The word index of each token of each sentence; None if every token is a word.
        relations: Names of the relations.
        margin: Minimum difference to the baseline, in points, not relative to it.
    """

    def __init__(
        self,
        arcs: Sequence[Sequence[Arc]],
        words: Sequence[Sequence[int]] | None = None,
        relations: Sequence[str] = RELATIONS,
        margin: float = 0.1,
    ) -> None:
        self.arcs, self.words = list(arcs), None if words is None else list(words)
        self.directed = [(relation, down) for relation in relations for down in (True, False)]
        self.margin = margin
        self._hits: dict[str, Tensor] = {}
        self._counted: dict[str, Tensor] = {}
        self._offsets: dict[str, OffsetCounts] = defaultdict(dict)
        self._text_offsets: dict[str, OffsetCounts] = defaultdict(dict)
        self._words: dict[str, Tensor] = {}

    def update(self, view: AttentionView) -> None:
        membership = self._members(view)
        related = self._related(view.sentence_indices, membership.any(-1)).to(membership.device)
        weights = _in_words(view.weights, membership)
        allowed = _in_words(view.pairs.unsqueeze(1).to(weights), membership).squeeze(1) > 0
        pairs, active = drop_single_choice(allowed), view.active[..., None, None]
        related &= pairs.unsqueeze(1)
        counted = related.unsqueeze(2) & active.unsqueeze(1)
        correct = argmax_pairs(weights, pairs.unsqueeze(1) & active).unsqueeze(1) & counted
        totals = (self._hits, correct), (self._counted, counted), (self._words, related)
        for total, pairs_of_words in totals:
            counts = pairs_of_words.any(-1).sum((0, -1)).cpu()
            total[view.block] = total.get(view.block, 0) + counts
        add_counts(self._offsets[view.block], count_by_offset(counted))
        add_counts(self._text_offsets[view.block], count_by_offset(related))

    def _members(self, view: AttentionView) -> Bool[Tensor, "batch word token"]:
        """True at the tokens of each word of a self-attention."""
        if attention_type_of(view.block) == "decoder-cross":
            raise ValueError(
                "attention_type must be one of self-attention: dependencies are within a sentence"
            )
        counted = view.tokens.counted_keys()
        word_index = counted.cumsum(-1) - 1
        if self.words is not None:
            word_index = self._words_of_tokens(view.sentence_indices, word_index)
        word_ids = torch.arange(int(word_index.max()) + 1, device=counted.device)
        return (word_index.unsqueeze(1) == word_ids[:, None]) & counted.unsqueeze(1)

    def _words_of_tokens(self, sentence_indices: Sequence[int], token_index: Tensor) -> Tensor:
        """Maps token indices to word indices, for every sentence."""
        assert self.words is not None
        rows = [torch.as_tensor(self.words[index], dtype=torch.long) for index in sentence_indices]
        table = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(token_index.device)
        lengths = (token_index.amax(-1) + 1).tolist()
        for sentence, row, length in zip(sentence_indices, rows, lengths, strict=True):
            if len(row) != length:
                raise ValueError(
                    f"words of sentence {sentence} must be {length} tokens, got {len(row)}"
                )
        return table.gather(-1, token_index.clamp(0, table.shape[-1] - 1))

    def _related(
        self, sentence_indices: Sequence[int], is_word: Bool[Tensor, "batch word"]
    ) -> Bool[Tensor, "batch case word word"]:
        """True from a word to the words to which it has each relation and direction."""
        size = is_word.shape[-1]
        lengths = (is_word * torch.arange(1, size + 1, device=is_word.device)).amax(-1).tolist()
        related = torch.zeros(
            len(sentence_indices), len(self.directed), size, size, dtype=torch.bool
        )
        cases = {case: index for index, case in enumerate(self.directed)}
        for row, (sentence, length) in enumerate(zip(sentence_indices, lengths, strict=True)):
            for relation, governor, dependent in self.arcs[sentence]:
                if not (0 <= governor < length and 0 <= dependent < length):
                    raise ValueError(
                        f"arcs of sentence {sentence} must be within its {length} words"
                    )
                if (relation, True) in cases:
                    related[row, cases[relation, True], governor, dependent] = True
                    related[row, cases[relation, False], dependent, governor] = True
        return related

    def result(self) -> SyntacticHeads:
        """The accuracy of every head and the baselines."""
        if not self._hits:
            raise ValueError("this detector was not updated with any heads")
        block = next(iter(self._hits))
        words = self._words[block]
        offset, count = _best(self._text_offsets[block])
        baseline = fraction(count, words.clamp_min(1)).tolist()
        cases = tuple(
            DirectedRelation(
                relation, down, int(offset[n]) if words[n] else 0, baseline[n], int(words[n])
            )
            for n, (relation, down) in enumerate(self.directed)
        )
        counted = self._counted.items()
        accuracy = {name: fraction(self._hits[name], total) for name, total in counted}
        best = {name: fraction(_best(self._offsets[name])[1], total) for name, total in counted}
        return SyntacticHeads(cases, accuracy, best, self.margin)


def _best(counts: OffsetCounts) -> tuple[Int[Tensor, "*case"], Int[Tensor, "*case"]]:
    """Returns the most frequent offset of every case, of equals the least, and its count."""
    offsets = sorted(counts)
    count, index = torch.stack([counts[offset] for offset in offsets]).max(0)
    return torch.tensor(offsets)[index], count


def _in_words(
    weights: Float[Tensor, "batch any token token"], membership: Bool[Tensor, "batch word token"]
) -> Float[Tensor, "batch any word word"]:
    """Sums weights over the subwords of the key and averages them over those of the query."""
    subwords = membership.to(weights).unsqueeze(1)
    mean = subwords / subwords.sum(-1, keepdim=True).clamp_min(1)
    return mean @ weights @ subwords.transpose(-1, -2)


def grammar_arcs(lines: Iterable[str]) -> list[tuple[Arc, ...]]:
    """Parses sentences of the built-in grammar and returns their dependencies."""
    return [arcs_of(parse(line.split())[0]) for line in lines]
