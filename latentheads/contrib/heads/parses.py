"""Parsed sentences: of the built-in grammar, or of a CoNLL-U file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from latentheads.batch import EOS, UNK
from latentheads.contrib.heads.conllu import ParsedSentence, encode_parsed
from latentheads.contrib.heads.syntactic import grammar_arcs
from latentheads.corpora.corpus import Corpus
from latentheads.corpora.grammar import ENGLISH
from latentheads.corpora.grammar.syntax import Arc
from latentheads.corpora.part import Part
from latentheads.corpora.rows import Rows
from latentheads.corpora.vocabulary import Tagged
from latentheads.runs.trained_model import TrainedModel


@dataclass(frozen=True)
class Parses:
    """Encoded sentences with their dependencies.

    Attributes:
        part: The sentences.
        arcs: The dependencies of each sentence.
        words: The word index of each token; None if every token is a word.
        origin: Where the parses come from.
    """

    part: Part
    arcs: Sequence[Sequence[Arc]]
    words: Sequence[Sequence[int]] | None
    origin: str


def grammar_parses(part: Part, corpus: Corpus) -> Parses | None:
    """Parses the English-like sentences of a part; skips those with unknown words."""
    rows, vocabulary = part.sources, corpus.source
    if rows is None or vocabulary is None:
        rows, vocabulary = part.targets, corpus.target
    english = [task.source == ENGLISH for task in corpus.tasks]
    is_english = [True] * len(rows) if part.task is None else [english[task] for task in part.task]
    indices = [index for index, row in enumerate(rows) if is_english[index] and UNK not in row]
    if not indices:
        return None
    arcs = grammar_arcs(vocabulary.decode(rows[index].tolist()) for index in indices)
    if isinstance(vocabulary, Tagged):  # the tag is the first token
        arcs = [tuple(Arc(a.relation, a.head + 1, a.dependent + 1) for a in row) for row in arcs]
    return Parses(part.take(indices), arcs, None, "the grammar")


def parsed_part(parsed: Sequence[ParsedSentence], trained: TrainedModel, name: str) -> Parses:
    """Encodes the sentences of a CoNLL-U file, with empty targets for a translation model."""
    vocabulary = trained.source or trained.target
    if isinstance(vocabulary, Tagged):
        raise ValueError(f"{trained.name} has several target languages: --conllu is for one alone")
    if vocabulary.lowercase:
        parsed = [replace(s, words=tuple(map(str.lower, s.words))) for s in parsed]
    try:
        rows, words = encode_parsed(parsed, vocabulary, spaced=vocabulary.tokenised)
    except ValueError as reason:
        raise ValueError(f"{name}, {reason}") from reason
    max_length = trained.processor.max_line or int(rows.lengths.max(initial=0))
    for index in np.flatnonzero(rows.lengths > max_length).tolist():
        tokens = f"{rows.lengths[index]:,} tokens, more than max_line {max_length:,}"
        raise ValueError(f"{name}, sentence {index + 1}: {tokens}")
    arcs = [sentence.arcs for sentence in parsed]
    if trained.source is None:
        return Parses(trained.processor.part_of_lines(rows), arcs, words, name)
    return Parses(Part(Rows.of([[EOS]] * len(rows)), rows), arcs, words, name)
