"""Sentences whose dependencies are known: of the grammar, or of a file in CoNLL-U."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from latentheads.batch import EOS, UNK
from latentheads.corpora import Corpus, Part, Rows
from latentheads.corpora.data import ENGLISH
from latentheads.corpora.grammar import Arc
from latentheads.corpora.vocabulary import Tagged
from latentheads.reading import Parsed, encode_parsed, grammar_arcs
from latentheads.runs.trained_model import TrainedModel

__all__ = ["Parses", "grammar_parses", "parsed_part"]


@dataclass(frozen=True)
class Parses:
    """Sentences whose dependencies are known.

    Attributes:
        part: The sentences.
        arcs: Dependencies of each.
        words: The word of each token; None where every token is a word.
        origin: Who parsed them.
    """

    part: Part
    arcs: Sequence[Sequence[Arc]]
    words: Sequence[Sequence[int]] | None
    origin: str


def grammar_parses(part: Part, corpus: Corpus) -> Parses | None:
    """Parses the English-like side; a sentence with an unknown word has no parse."""
    rows, words = part.sources, corpus.source
    if rows is None or words is None:
        rows, words = part.targets, corpus.target
    english = [task.source == ENGLISH for task in corpus.tasks]
    own = [True] * len(rows) if part.task is None else [english[task] for task in part.task]
    known = [place for place, row in enumerate(rows) if own[place] and UNK not in row]
    if not known:
        return None
    arcs = grammar_arcs(words.decode(rows[place].tolist()) for place in known)
    if isinstance(words, Tagged):
        arcs = [tuple(Arc(a.relation, a.head + 1, a.dependent + 1) for a in each) for each in arcs]
    return Parses(part.take(known), arcs, None, "the grammar")


def parsed_part(parsed: Sequence[Parsed], trained: TrainedModel, name: str) -> Parses:
    """Encodes the sentences of a file; a translation model is given empty targets."""
    vocabulary = trained.source or trained.target
    if isinstance(vocabulary, Tagged):
        raise ValueError(f"{trained.name} has several target languages: --conllu is for one alone")
    if trained.data.lowercase:
        parsed = [replace(each, words=tuple(map(str.lower, each.words))) for each in parsed]
    try:
        rows, words = encode_parsed(parsed, vocabulary, vocabulary.tokenised)
    except ValueError as reason:
        raise ValueError(f"{name}, {reason}") from reason
    most = trained.data.max_line or int(rows.lengths.max(initial=0))
    for place in np.flatnonzero(rows.lengths > most).tolist():
        tokens = f"{rows.lengths[place]:,} tokens, more than max_line {most:,}"
        raise ValueError(f"{name}, sentence {place + 1}: {tokens}")
    arcs = [each.arcs for each in parsed]
    if trained.source is None:
        return Parses(Part(rows, None), arcs, words, name)
    return Parses(Part(Rows.of([[EOS]] * len(rows)), rows), arcs, words, name)
