"""Finished runs, each with its corpus and the sentences that its heads are read on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jsonargparse import Namespace

from latentheads.analysis import read_conllu
from latentheads.batch import Batch
from latentheads.corpora import Corpus, Part, Rows
from latentheads.corpora.batches import collate
from latentheads.corpora.data import Data
from latentheads.experiments.cli.options import open_run
from latentheads.metrics.alignment import Links
from latentheads.runs.folder import unlike_names
from latentheads.runs.parses import Parses, grammar_parses, parsed_part
from latentheads.runs.run import Run, check_own_corpus

__all__ = ["Text", "texts"]


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
        if data in corpora and not run.settings.in_memory:
            check_own_corpus(run, corpora[data])
            run.given = corpora[data]
        corpus = corpora[data] = run.corpus
        part = getattr(corpus, options.part).first(options.sentences)
        if data.data == "grammar":
            parses = grammar_parses(part, corpus)
        elif parsed is not None:
            parses = parsed_part(parsed[: options.sentences], run, options.conllu)
        else:
            parses = None
        found.append(Text(name, run, corpus, part, parses))
    return found
