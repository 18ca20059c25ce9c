"""The texts of a trial: a run's own, its sources with their pieces permuted, and files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from latentheads.corpora import Part, Rows
from latentheads.corpora.text import read_lines
from latentheads.runs.generation import encode_sources
from latentheads.runs.run import Run, check_own_corpus
from latentheads.uncertainty.evaluation import TEST, Texts

__all__ = ["PERMUTED", "open_texts", "read_others"]

PERMUTED = "permuted"
"""The name of the test part's sources with their pieces in another order."""


def read_others(said: Sequence[str]) -> dict[str, Path]:
    """Reads names and files, as NAME=PATH.

    Raises:
        ValueError: A word is none, or names something twice.
    """
    found: dict[str, Path] = {}
    for word in said:
        name, equals, path = word.partition("=")
        if not (name and equals and path) or not name.isidentifier():
            raise ValueError(f"others must be NAME=PATH, the name a word; got {word!r}")
        if name in (TEST, PERMUTED, "valid") or name in found:
            raise ValueError(f"others: {name} is taken, choose another name")
        found[name] = Path(path)
    return found


def open_texts(
    runs: Sequence[Run], others: dict[str, Path], sentences: int, fitted: int, seed: int
) -> tuple[Texts, list[str]]:
    """The texts that all runs are tried on, and what is to be known about them.

    Args:
        runs: Of one corpus.
        others: Files of sources of other kinds, by name.
        sentences: First sentences of each text.
        fitted: First sentences of validation.
        seed: Of the permutations.

    Raises:
        ValueError: The runs are of different corpora, or translate nothing, or in many directions.
    """
    first = runs[0]
    for run in runs:
        if run.source is None:
            raise ValueError(f"{run.path} is a language model: it writes no translations")
        if run.settings.data.is_speech:
            raise ValueError(f"{run.path} hears speech: give runs that translate text")
        mixture = run.settings.data.mixture
        if mixture is not None and len(mixture.tasks) > 1:
            raise ValueError(f"{run.path} has several tasks: give runs of one direction")
        if run.settings.data != first.settings.data:
            raise ValueError(f"{run.path} and {first.path} are of different corpora: one is needed")
        check_own_corpus(run, first.corpus)
    corpus = first.corpus
    test = corpus.test.first(sentences)
    parts = {PERMUTED: _permute(test, seed)}
    notes = []
    for name, path in others.items():
        part, lost = _encode_file(first, path, sentences)
        parts[name] = part
        if lost:
            notes.append(f"{name}: {lost} empty or too long lines of {path.name} were left out")
    return Texts(corpus.valid.first(fitted), test, first.target, parts, corpus.name), notes


def _permute(part: Part, seed: int) -> Part:
    """The sources with their pieces in another order; the end stays."""
    rng = np.random.default_rng(seed)
    assert part.sources is not None
    rows = [np.append(rng.permutation(row[:-1]), row[-1:]) for row in part.sources]
    return Part(part.targets, Rows.of(rows), task=part.task, mixture=part.mixture)


def _encode_file(run: Run, path: Path, sentences: int) -> tuple[Part, int]:
    """The first lines of a file that a run can translate, and how many before them it cannot."""
    lines = read_lines(path)
    task = None if run.settings.data.mixture is None else 0
    known, end = None, 0
    while end < len(lines) and (known is None or len(known.places) < sentences):
        end += 2 * sentences  # more where too few of these are kept
        known = encode_sources(run, lines[:end], task, lambda place, why: None)
    if known is None or not known.places:
        raise ValueError(f"{path} has no line that the runs can translate")
    kept = known.part.take(range(min(sentences, len(known.part))))
    return kept, known.places[len(kept) - 1] + 1 - len(kept)
