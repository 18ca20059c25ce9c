"""A part of a corpus, for training, validation or test: token ids, and what is known of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentheads.batch import UNK
from latentheads.checks import check_instance, check_least
from latentheads.corpora.frames import Frames
from latentheads.corpora.rows import Rows
from latentheads.corpora.tasks import Mixture
from latentheads.metrics.alignment import Links

Log = Callable[[str], object]
"""A function that logs a line about what was read, kept or dropped, such as ``print``."""


@dataclass(frozen=True)
class Part:
    """One part of a corpus, for training, validation or test.

    Attributes:
        targets: Target token ids, each sentence ended by EOS.
        sources: Source token ids, or None for a language model.
        references: The target sentences as text; none for training.
        true_log_probs: The exact log p(y | x) of every sentence in nats, log p(y) for a language
            model. NaN for a sentence with an unknown word; None if it is not known for the corpus.
        block_size: Length of the blocks into which a running text is split; 0 for sentences.
        words: Number of words of the text, plus one for the end of each line; None if not counted.
        task: The index of each sentence's task in the mixture; None without tasks.
        mixture: The tasks and how they are mixed.
        alternatives: All references of each sentence, where there are several.
        links: The gold word alignment of each sentence pair, as (source, target) token positions;
            empty where it is not known, and for training.
        frames: The frames of each utterance, where the source is speech; None: text.
        tags: The decoder's first input in the place of BOS, not scored: a language tag where speech
            has several target languages, EOS of lines for a model of running text. None: BOS.
    """

    targets: Rows
    sources: Rows | None
    references: Sequence[str] = ()
    true_log_probs: list[float] | None = None
    block_size: int = 0
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
        """Number of tokens of the longer side of every sentence."""
        if self.sources is None:
            return self.targets.lengths
        return np.maximum(self.targets.lengths, self.sources.lengths)

    @property
    def unit(self) -> str:
        """The unit of the data plate: sentences, blocks or utterances."""
        if self.frames is not None:
            return "utterances"
        return "blocks" if self.block_size else "sentences"

    @property
    def tokens(self) -> int:
        """Number of target tokens, one EOS for each sentence or line included."""
        return int(self.targets.lengths.sum())

    def indices_of_task(self, task: int) -> NDArray[np.int64]:
        """The indices of the sentences of a task."""
        return np.flatnonzero(self.task == task)

    def take(self, indices: Sequence[int] | NDArray[Any]) -> Part:
        """The sentences at some indices, in their order; blocks keep their preceding token."""
        # a mask selects too; a list, as an array of no index would be one of floats
        array = indices if isinstance(indices, np.ndarray) else list(indices)
        selected = np.arange(len(self))[array]

        def pick(values: Any) -> Any:
            if values is None or not len(values):
                return values
            return [values[index] for index in selected]

        return replace(
            self,
            targets=self.targets.view(selected) if self.block_size else self.targets.take(selected),
            sources=None if self.sources is None else self.sources.take(selected),
            references=pick(self.references),
            true_log_probs=pick(self.true_log_probs),
            words=None,
            task=None if self.task is None else self.task[selected],
            alternatives=pick(self.alternatives),
            links=pick(self.links),
            frames=None if self.frames is None else self.frames.take(selected),
            tags=None if self.tags is None else self.tags[selected],
        )

    def first(self, number: int) -> Part:
        """The first sentences, or blocks of a running text; of several tasks evenly spaced ones."""
        check_least({"number": number}, number=0)
        number = min(number, len(self))
        if self.task is not None:
            return self.take(np.arange(number) * len(self) // number)
        return replace(self.take(range(number)), targets=self.targets.first(number))


def check_part(part: object) -> None:
    """Raises an error if the value is not a part of a corpus."""
    check_instance("part", part, Part, "one of a corpus, as corpus.test")


def mask_unknown(log_probs: Sequence[float], *sides: Rows) -> list[float]:
    """Replaces the log-probability of a sentence with an unknown word by NaN.

    It belongs to the original words, not to UNK.
    """
    has_unknown = [any(UNK in row for row in rows) for rows in zip(*sides, strict=True)]
    return [
        math.nan if masked else log_prob
        for masked, log_prob in zip(has_unknown, log_probs, strict=True)
    ]
