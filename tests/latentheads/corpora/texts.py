"""Small texts and the corpora made of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from itertools import islice
from typing import Any

import numpy as np

from latentheads.batch import EOS
from latentheads.corpora import (
    Corpus,
    LoaderState,
    Mixture,
    Part,
    PartLoader,
    Rows,
    Step,
    Task,
    batches,
)
from latentheads.corpora.multi_task import parallel_tasks
from latentheads.corpora.parallel import PairOptions, encode_pairs
from latentheads.corpora.running_text import text_corpus
from latentheads.corpora.text import SentencePair
from latentheads.corpora.units import SubwordUnit, WordUnit
from tests.tiny import TARGET_TYPES

TRAIN = [("Der Hund schläft .", "The dog sleeps ."), ("Ein Hund", "A dog")] * 5
VALID = [("Der  Hund", "The DOG "), ("", ""), ("a " * 300, "b")]
TEST = [("Das Haus", "The house")]
MIXED_SIZES = {"train": 60, "valid": 5, "test": 7}

WRITTEN = [field.name for field in fields(PairOptions)]

STORY = {
    "train": ["The dog sleeps .", "", " A dog\u2028barks ", "The dog <unk> the naïve Dog ."],
    "valid": ["The cat sleeps .", ""],
    "test": ["A <eos> dog", "😀"],
}

TEXTS = [(3, 5, 2), (5, 5, 2), (6, 5, 0), (15, 5, 0), (17, 5, 2), (17, 5, 4), (19, 7, 3), (7, 1, 0)]
"""Length of a text, block and context: shorter than a block, cut evenly, with a remainder."""


def running(length: int, block: int) -> Part:
    """A text of no sense in the types of the tiny models, the same every time."""
    tokens = np.random.default_rng(length).integers(EOS, TARGET_TYPES, length, dtype=np.int32)
    return Part(Rows.in_blocks(tokens, block), None, block_size=block)


def pets(**options: Any) -> Corpus:
    """Pairs of sentences."""
    given = {"train": TRAIN, "valid": VALID, "test": TEST, "vocab_size": 300, **options}
    written = {name: given.pop(name) for name in WRITTEN if name in given}
    encoded = encode_pairs("pets", options=PairOptions(**written), **given)
    return Corpus("pets", *encoded)


def story(**options: Any) -> Corpus:
    """A running text; a part may be given as a list of lines."""
    given = {**STORY, **options}
    if given.get("unit") == "subword":
        given["unit"] = SubwordUnit(vocab_size=300)
    elif given.get("unit") == "word":
        given["unit"] = WordUnit()
    for part in STORY:
        lines = given[part]
        given[part] = lines if callable(lines) else lines.copy().__iter__
    return text_corpus("story", **given)


def mixture_of(text: str, **options: Any) -> Mixture:
    """The mixture of tasks, comma between; from English where one says nothing else."""
    return Mixture(tuple(Task.parse(word, "en") for word in text.split(",")), **options)


def pairs_of(corpus: Corpus, part: Part) -> list[SentencePair]:
    """The sentences of a part as text."""
    return [
        (corpus.source.decode(left.tolist()), corpus.target.decode(right.tolist()))
        for left, right in zip(part.sources, part.targets, strict=True)
    ]


def places_of(part: Part, **options: Any) -> list[int]:
    """The sentences of a part in the order of an epoch."""
    return [
        sentence for batch in batches(part, 97, **options) for sentence in batch.sentences.tolist()
    ]


def take(stream: PartLoader, number: int, *start: LoaderState) -> list[Step]:
    """The first updates of a stream."""
    return list(islice(stream.steps(*start), number))


def places_in(update: Step) -> list[list[int]]:
    """The sentences of an update, a list for each batch that counts."""
    return [batch.sentences.tolist() for batch, weight in update.micro_batches if weight]


def mixed_lines(part: str, task: Task) -> Iterator[SentencePair]:
    """Text in which a task says its name; an empty pair first; de is large, the others small."""
    yield ("", "<2de> <eos>") if part == "train" else ("la", "la la")
    for number in range(MIXED_SIZES[part] // (1 if task.target == "de" else 4)):
        tail = " la" * (number % 5)
        yield f"{task.source} <2de> {number}{tail}", f"{task.target} {task.domain} {number}{tail}"


def mixed_pets(
    text: str, temperature: float = 1.0, one_task: bool = False, log: Any = None, **options: Any
) -> Corpus:
    mixed = mixture_of(text, temperature=temperature, one_task=one_task)
    return parallel_tasks(
        "pets", mixed, mixed_lines, PairOptions(**{"vocab_size": 300, **options}), log
    )
