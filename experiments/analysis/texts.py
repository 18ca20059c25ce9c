"""Finished runs, each with its corpus and the sentences that its heads are read on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jsonargparse import Namespace
from torch import Tensor

from latentheads.batch import EOS, UNK, Batch
from latentheads.corpora import Corpus, Part, Rows
from latentheads.corpora.batches import collate
from latentheads.corpora.data import ENGLISH, Data
from latentheads.corpora.grammar import Arc
from latentheads.corpora.vocabulary import Tagged
from latentheads.experiments.cli.options import open_run
from latentheads.metrics.alignment import Links
from latentheads.reading import (
    Parsed,
    encode_parsed,
    frequency_ranks,
    grammar_arcs,
    read_conllu,
)
from latentheads.runs.folder import unlike_names
from latentheads.runs.run import Run, check_own_corpus

__all__ = ["Parses", "Text", "parsed_part", "texts"]


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


SHOWN = 12
"""Tokens of a sentence in a figure."""


@dataclass(frozen=True)
class Text:
    """A run and what it is read on.

    Attributes:
        name: What the run is called in figures and tables.
        run: The run.
        corpus: Its corpus.
        part: The sentences.
        parses: Parsed sentences; None where there are none.
    """

    name: str
    run: Run
    corpus: Corpus
    part: Part
    parses: Parses | None

    def ranks(self, chain: str) -> Tensor:
        """Places by frequency in training of the types that a chain points at."""
        train, source = self.corpus.train, self.corpus.source
        if chain == "decoder-self" or source is None or train.sources is None:
            return frequency_ranks(torch.tensor(train.targets.tokens), len(self.corpus.target))
        return frequency_ranks(torch.tensor(train.sources.tokens), len(source))

    def pair_to_show(self) -> tuple[Batch, Links]:
        """The sentence pair whose longer side has about as many tokens as a figure shows well.

        With the gold links between its tokens.
        """
        place = int(np.abs(self.part.lengths - SHOWN).argmin())
        links = self.part.links[place] if self.part.links else frozenset()
        return collate(self.part, [place]), links

    def same(self, other: Text) -> bool:
        """Whether two runs are read on the same tokens."""
        mine, its = ((t.part.targets, t.part.sources) for t in (self, other))
        return all(
            a is b or (a is not None and b is not None and _equal(a, b))
            for a, b in zip(mine, its, strict=True)
        )


def _equal(one: Rows, other: Rows) -> bool:
    return len(one) == len(other) and all(map(np.array_equal, one, other))


def texts(options: Namespace) -> list[Text]:
    """Loads every run and its corpus.

    Raises:
        ValueError: One is no finished run, or its corpus has changed; or a file of parses is given
            and no run reads it.
    """
    paths = [Path(run) for run in options.runs]
    names = unlike_names(paths)
    parsed = None if options.conllu is None else read_conllu(options.conllu)
    runs = [open_run(str(path), options, finished=True) for path in paths]
    if parsed is not None and all(run.settings.data.data == "grammar" for run in runs):
        raise ValueError(
            "--conllu is for runs on other text: a run on the grammar knows its parses"
        )
    corpora: dict[Data, Corpus] = {}
    found = []
    for name, run in zip(names, runs, strict=True):
        data = run.settings.data
        if data in corpora and not run.settings.by_hand:
            check_own_corpus(run, corpora[data])
            run.given = corpora[data]
        corpus = corpora[data] = run.corpus
        part = getattr(corpus, options.part).first(options.sentences)
        if data.data == "grammar":
            parses = _of_grammar(part, corpus)
        elif parsed is not None:
            parses = parsed_part(parsed[: options.sentences], run, options.conllu)
        else:
            parses = None
        found.append(Text(name, run, corpus, part, parses))
    return found


def _of_grammar(part: Part, corpus: Corpus) -> Parses | None:
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


def parsed_part(parsed: Sequence[Parsed], run: Run, name: str) -> Parses:
    """Encodes the sentences of a file; a translation model is given empty targets."""
    vocabulary = run.source or run.target
    if isinstance(vocabulary, Tagged):
        raise ValueError(f"{run.path} has several target languages: --conllu is for one alone")
    if run.settings.data.lowercase:
        parsed = [replace(each, words=tuple(map(str.lower, each.words))) for each in parsed]
    try:
        rows, words = encode_parsed(parsed, vocabulary, vocabulary.tokenised)
    except ValueError as reason:
        raise ValueError(f"{name}, {reason}") from reason
    most = run.settings.data.max_line or int(rows.lengths.max(initial=0))
    for place in np.flatnonzero(rows.lengths > most).tolist():
        tokens = f"{rows.lengths[place]:,} tokens, more than max_line {most:,}"
        raise ValueError(f"{name}, sentence {place + 1}: {tokens}")
    arcs = [each.arcs for each in parsed]
    if run.source is None:
        return Parses(Part(rows, None), arcs, words, name)
    return Parses(Part(Rows.of([[EOS]] * len(rows)), rows), arcs, words, name)
