"""A corpus as models see it: three parts of token ids, with what is known about each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from latentheads.batch import UNK
from latentheads.corpora.overlap import Overlap, count_shared
from latentheads.corpora.rows import Rows
from latentheads.corpora.speech.frames import Frames
from latentheads.corpora.tasks import Mixture, Task
from latentheads.corpora.text import PARTS
from latentheads.corpora.vocabulary import Vocabulary
from latentheads.metrics.alignment import Links
from latentheads.values import shown

if TYPE_CHECKING:
    from latentheads.data import Data

__all__ = [
    "Corpus",
    "Part",
    "Tell",
    "check_corpus",
    "check_part",
    "known_truth",
]

Tell = Callable[[str], object]
"""Called with a line about what was read, kept or left out, such as ``print``."""


@dataclass(frozen=True)
class Part:
    """One part of a corpus, for training, validation or test.

    Attributes:
        targets: Target token ids, each sentence ended by EOS.
        sources: Source token ids, or None for a language model.
        references: The target sentences as text; none for training.
        truth: The exact log p(y | x) of every sentence in nats, log p(y) for a language model; NaN
            of one with a word that the vocabulary does not hold, None where none is known.
        block: Length of the blocks into which a running text is cut; 0 for sentences.
        words: Words of the text, one for the end of each line; None where they were not counted.
        task: The place of each sentence's task in the mixture; None where there are no tasks.
        mixture: The tasks and how they are mixed.
        alternatives: All texts that count as right for each sentence, where there are several.
        links: The gold word alignment of each sentence pair, as places of source and target tokens;
            none where it is not known, nor for training.
        frames: What is heard of each utterance, where the source is speech; None: it is text.
        tags: The token in front of each target, where speech is written in several languages: it
            is read, and not scored. None: BOS.
    """

    targets: Rows
    sources: Rows | None
    references: Sequence[str] = ()
    truth: list[float] | None = None
    block: int = 0
    words: int | None = None
    task: NDArray[np.int32] | None = None
    mixture: Mixture | None = None
    alternatives: Sequence[Sequence[str]] = ()
    links: Sequence[Links] = ()
    frames: Frames | None = None
    tags: NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def __repr__(self) -> str:
        tasks = "" if self.mixture is None else f", {len(self.mixture.tasks)} tasks"
        return f"Part({len(self):,} {self.unit}, {self.tokens:,} target tokens{tasks})"

    @property
    def sides(self) -> tuple[Rows, ...]:
        """The targets, and the sources where there are any."""
        return (self.targets,) if self.sources is None else (self.targets, self.sources)

    @property
    def texts(self) -> tuple[Rows, ...]:
        """The sides that are text."""
        return self.sides if self.frames is None else (self.targets,)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of the longer side of every sentence."""
        if self.sources is None:
            return self.targets.lengths
        return np.maximum(self.targets.lengths, self.sources.lengths)

    @property
    def unit(self) -> str:
        """The unit that the plate counts."""
        if self.frames is not None:
            return "utterances"
        return "blocks" if self.block else "sentences"

    @property
    def tokens(self) -> int:
        """Target tokens, one EOS a sentence or line included."""
        return int(self.targets.lengths.sum())

    def places(self, task: int) -> NDArray[np.int64]:
        """The sentences of a task."""
        return np.flatnonzero(self.task == task)

    def take(self, places: Sequence[int] | NDArray[np.int64]) -> Part:
        """Some of the sentences, in the order asked for; a block is read behind what it was."""
        chosen = np.asarray(places, dtype=np.int64)
        return replace(
            self,
            targets=self.targets.view(chosen) if self.block else self.targets.take(chosen),
            sources=None if self.sources is None else self.sources.take(chosen),
            references=[self.references[place] for place in chosen] if self.references else (),
            truth=None if self.truth is None else [self.truth[place] for place in chosen],
            words=None,
            task=None if self.task is None else self.task[chosen],
            alternatives=[self.alternatives[p] for p in chosen] if self.alternatives else (),
            links=[self.links[place] for place in chosen] if self.links else (),
            frames=None if self.frames is None else self.frames.take(chosen),
            tags=None if self.tags is None else self.tags[chosen],
        )

    def first(self, number: int) -> Part:
        """The first sentences, or blocks of a running text; of several tasks some of each."""
        number = min(number, len(self))
        if self.task is not None:
            return self.take(np.arange(number) * len(self) // number)
        return replace(self.take(range(number)), targets=self.targets.first(number))


def check_part(given: object) -> None:
    """Refuses a value that is no part of a corpus."""
    if not isinstance(given, Part):
        found = type(given).__name__
        raise ValueError(f"part must be one of a corpus, as corpus.test, got {found}")


@dataclass(frozen=True)
class Corpus:
    """Train, valid and test, with their vocabularies.

    Attributes:
        name: What it is called.
        train: What is learned from.
        valid: What is watched.
        test: What is reported.
        target: Target vocabulary.
        source: Source vocabulary, or None for a language model.
        data: The options that it was made of, so that it can be made again; None of one that was
            put together by hand.
    """

    name: str
    train: Part
    valid: Part
    test: Part
    target: Vocabulary
    source: Vocabulary | None = None
    data: Data | None = None

    def __repr__(self) -> str:
        names = ("train", "valid", "test", "target", "source", "overlap")
        shown = (f"{name}={getattr(self, name)!r}" for name in names)
        return f"Corpus({self.name!r}, {', '.join(shown)})"

    @cached_property
    def overlap(self) -> Overlap:
        """How many held-out sentences stand in training too."""
        train = self.train.texts
        return Overlap(*(count_shared(train, part.texts) for part in (self.valid, self.test)))

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks that it mixes, if any."""
        return () if self.train.mixture is None else self.train.mixture.tasks

    def source_texts(self, part: Part) -> list[str]:
        """The source sentences of a part as text; their translations are its ``references``.

        Args:
            part: One of the corpus.

        Raises:
            ValueError: It has no source: it is for a language model.
        """
        if self.source is None or part.sources is None:
            raise ValueError(f"corpus {self.name!r} has no source: its texts are the references")
        return [self.source.decode(row.tolist()) for row in part.sources]

    def mixed(self, mixture: Mixture) -> Corpus:
        """The same corpus with its tasks mixed in another way."""
        parts = {name: getattr(self, name) for name in PARTS}
        return replace(self, **{n: replace(part, mixture=mixture) for n, part in parts.items()})


def check_corpus(given: object) -> None:
    """Refuses a value that is no whole corpus."""
    if not isinstance(given, Corpus):
        raise ValueError(f"corpus must be a Corpus, with all its parts, got {shown(given)}")


def known_truth(truth: Sequence[float], *sides: Rows) -> list[float]:
    """The truth, NaN for a sentence with an unknown word: that is of other tokens."""
    unknown = [any(UNK in row for row in rows) for rows in zip(*sides, strict=True)]
    return [math.nan if out else value for out, value in zip(unknown, truth, strict=True)]
