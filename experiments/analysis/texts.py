"""Finished runs, each with its corpus and the sentences of the analysis."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from latentheads.contrib.heads.conllu import read_conllu
from latentheads.contrib.heads.parses import Parses, grammar_parses, parsed_part
from latentheads.corpora.part import Part
from latentheads.corpora.rows import Rows
from latentheads.experiments.cli.parser import Options, open_run
from latentheads.runs.folder import distinct_names
from latentheads.runs.run import Run, share_corpora


@dataclass(frozen=True)
class Text:
    """A run and the text of its analysis."""

    name: str
    run: Run
    part: Part
    parses: Parses | None

    def same(self, other: Text) -> bool:
        """Whether two runs are analysed on the same tokens."""
        own, others = ((t.part.targets, t.part.sources) for t in (self, other))
        return all(
            a is b or (a is not None and b is not None and _equal(a, b))
            for a, b in zip(own, others, strict=True)
        )


def _equal(first: Rows, second: Rows) -> bool:
    return len(first) == len(second) and all(map(np.array_equal, first, second))


def texts(options: Options) -> list[Text]:
    """Loads all runs and their corpora.

    Raises:
        ValueError: One is not a finished run, its corpus has changed, or a file of parses is given
            but no run needs it.
    """
    paths = [Path(run) for run in options.runs]
    names = distinct_names(paths)
    parsed = None if options.conllu is None else read_conllu(options.conllu)
    runs = [open_run(str(path), options, finished=True) for path in paths]
    if parsed is not None and all(run.settings.data.has_parses for run in runs):
        raise ValueError("--conllu is for runs on other text: the parses of the grammar are known")
    share_corpora(runs)
    loaded = []
    for name, run in zip(names, runs, strict=True):
        part = getattr(run.corpus, options.part).first(options.sentences)
        if run.settings.data.has_parses:
            parses = grammar_parses(part, run.corpus)
        elif parsed is not None:
            parses = parsed_part(parsed[: options.sentences], run, options.conllu)
        else:
            parses = None
        loaded.append(Text(name, run, part, parses))
    return loaded
