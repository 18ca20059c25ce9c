"""The texts of an evaluation: a run's own, its sources permuted, and files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from latentheads.contrib.uncertainty.evaluation import TEST, Texts
from latentheads.corpora.part import Part
from latentheads.corpora.rows import Rows
from latentheads.corpora.text import read_lines
from latentheads.errors import shown
from latentheads.runs.generation import encode_sources
from latentheads.runs.run import Run, check_own_corpus

PERMUTED = "permuted"
"""The name of the test part's sources with their tokens permuted."""


def read_others(arguments: Sequence[str]) -> dict[str, Path]:
    """Parses names and files, given as NAME=PATH."""
    paths: dict[str, Path] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not (name and equals and path) or not name.isidentifier():
            raise ValueError(f"others must be NAME=PATH, NAME an identifier; got {shown(argument)}")
        if name in (TEST, PERMUTED, "valid") or name in paths:
            raise ValueError(f"others: {name} is taken, choose another name")
        paths[name] = Path(path)
    return paths


def open_texts(
    runs: Sequence[Run], others: dict[str, Path], sentences: int, fitted: int, seed: int
) -> tuple[Texts, list[str]]:
    """Returns the texts for the evaluation of all runs, and notes about them.

    Raises:
        ValueError: The runs have different corpora, do not translate text, or have several tasks.
    """
    first = runs[0]
    for run in runs:
        if run.source is None:
            raise ValueError(f"{run.path} is a language model: give runs that translate text")
        if run.settings.data.is_speech:
            raise ValueError(f"{run.path} has speech input: give runs that translate text")
        mixture = run.settings.data.mixture
        if mixture is not None and len(mixture.tasks) > 1:
            raise ValueError(f"{run.path} has several tasks: give runs of one direction")
        if run.settings.data != first.settings.data:
            raise ValueError(f"{run.path} and {first.path} have different corpora: one is needed")
        check_own_corpus(run, first.corpus)
    corpus = first.corpus
    test = corpus.test.first(sentences)
    parts = {PERMUTED: _permute(test, seed)}
    notes = []
    for name, path in others.items():
        part, skipped = _encode_file(first, path, sentences)
        parts[name] = part
        if skipped:
            notes.append(f"{name}: {skipped} empty or too long lines of {path.name} were skipped")
    return Texts(corpus.valid.first(fitted), test, first.target, parts, corpus.name), notes


def _permute(part: Part, seed: int) -> Part:
    """Permutes the tokens of the sources; EOS stays last."""
    rng = np.random.default_rng(seed)
    assert part.sources is not None
    rows = [np.append(rng.permutation(row[:-1]), row[-1:]) for row in part.sources]
    return Part(part.targets, Rows.of(rows), task=part.task, mixture=part.mixture)


def _encode_file(run: Run, path: Path, sentences: int) -> tuple[Part, int]:
    """Encodes the first lines of a file that a run can translate; counts the skipped ones."""
    lines = read_lines(path)
    task = None if run.settings.data.mixture is None else 0
    encoded, end = None, 0
    while end < len(lines) and (encoded is None or len(encoded.indices) < sentences):
        end += 2 * sentences  # more if too few of these can be translated
        encoded = encode_sources(run, lines[:end], task, lambda index, why: None)
    if encoded is None or not encoded.indices:
        raise ValueError(f"{path} has no line that the runs can translate")
    part = encoded.part.take(range(min(sentences, len(encoded.part))))
    return part, encoded.indices[len(part) - 1] + 1 - len(part)
