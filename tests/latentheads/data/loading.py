"""Corpora as the data classes load them, from folders of text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from latentheads.corpora import Corpus
from latentheads.corpora.text import PARTS
from latentheads.data import Data, Pairs, RunningText, SubwordUnit

Loaded = tuple[Corpus, list[str]]


def load(data: Data) -> Loaded:
    """The corpus of some options, and the lines that were logged while it was made."""
    logged: list[str] = []
    return data.load(logged.append), logged


def load_pairs(folder: Path, **options: Any) -> Loaded:
    """Pairs of a folder, from English into German."""
    target = {} if "tasks" in options else {"target": "de"}
    given = {"source": "en", **target, "vocab_size": 300, **options}
    return load(Pairs(str(folder), **given))


def load_text(folder: Path, **options: Any) -> Loaded:
    """Running text of a folder."""
    given = {**options}
    if given.get("unit") == "subword":
        given["unit"] = SubwordUnit(vocab_size=300)
    return load(RunningText(str(folder), **given))


def same(one: Corpus, other: Corpus) -> bool:
    """Whether two corpora have the same vocabularies, token ids and references."""
    for mine, theirs in ((one.target, other.target), (one.source, other.source)):
        if (mine and mine.to_json()) != (theirs and theirs.to_json()):
            return False
    parts = [(getattr(one, name), getattr(other, name)) for name in PARTS]
    return all(
        (mine.block_size, mine.words, list(mine.references))
        == (theirs.block_size, theirs.words, list(theirs.references))
        and all(
            np.array_equal(a.tokens, b.tokens) and np.array_equal(a.ends, b.ends)
            for a, b in zip(mine.sides, theirs.sides, strict=True)
        )
        for mine, theirs in parts
    )
