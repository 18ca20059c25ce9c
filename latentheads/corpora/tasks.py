"""Tasks of a multi-task corpus (translation directions and domains) and their mixture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from latentheads.checks import check_choice
from latentheads.errors import shown

TaskKey = Literal["language", "domain", "speaker"]


@dataclass(frozen=True)
class Task:
    """A direction of translation; in speech recognition both languages are the same.

    Attributes:
        source: Source language.
        target: Target language.
        domain: Domain of the text, or the speaker; empty: any.
    """

    source: str
    target: str
    domain: str = ""

    @classmethod
    def parse(cls, text: str, source: str | None) -> Task:
        """Parses ``de``, ``en-de``, ``bible:de`` or ``bible:en-de``.

        Args:
            text: The name of the task.
            source: Source language if the name has none; empty: it must have one. None: the target
                language, for speech recognition.

        Raises:
            ValueError: The name is malformed, or both languages are the same.
        """
        domain, colon, direction = text.rpartition(":")
        languages = direction.split("-")
        if not all(languages) or len(languages) > 2 or (colon and not domain):
            raise ValueError(
                "a task is TARGET or SOURCE-TARGET, with or without DOMAIN: before; got "
                f"{shown(text)}"
            )
        if source == "" and not languages[1:]:
            raise ValueError(f"task {shown(text)} must name both languages, as SOURCE-TARGET")
        default_source = languages[-1] if source is None else source
        source_language = languages[0] if languages[1:] else default_source
        target_language = languages[-1]
        if source_language == target_language and source is not None:
            raise ValueError(
                f"source and target of task {shown(text)} must differ, got "
                f"{shown(target_language)} twice"
            )
        if source_language != target_language and source is None:
            raise ValueError(
                f"task {shown(text)} translates, and speech is written in its own language: "
                "name that alone, or use task translation"
            )
        return cls(source_language, target_language, domain)

    @property
    def direction(self) -> str:
        """Both languages, as SOURCE-TARGET; one name if they are the same."""
        return self.target if self.source == self.target else f"{self.source}-{self.target}"

    @property
    def name(self) -> str:
        """The name of the task, as `parse` accepts it."""
        return f"{self.domain}:{self.direction}" if self.domain else self.direction


class TaskIds(TypedDict, total=False):
    """The task ids of a batch for encoder and decoder."""

    source_task: Int[Tensor, " sentence"]
    target_task: Int[Tensor, " sentence"]
    one_task: bool


@dataclass(frozen=True)
class Mixture:
    """The tasks of a corpus and how they are mixed.

    Attributes:
        tasks: The tasks, without repetition.
        task_key: What defines the task ids. ``language``: the source language for the encoder and
            the target language for the decoder. ``domain`` or, of speech, ``speaker``: the domain
            for both.
        temperature: Sampling temperature T: a task of n sentences has a share proportional to
            n^(1/T) of an epoch. 1 uses every sentence once; a higher one upsamples small tasks.
        one_task: Whether all sentences of a batch are of one task.
    """

    tasks: tuple[Task, ...]
    task_key: TaskKey = "language"
    temperature: float = 1.0
    one_task: bool = False

    def __post_init__(self) -> None:
        for index, task in enumerate(self.tasks):
            if task in self.tasks[:index]:
                raise ValueError(f"task {task.name} is given twice")
        if self.task_key != "language" and not all(task.domain for task in self.tasks):
            without_domain = next(task for task in self.tasks if not task.domain)
            raise ValueError(
                f"tasks distinguished by {self.task_key} need one each; "
                f"{without_domain.name} has none"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tasks."""
        return tuple(task.name for task in self.tasks)

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the encoder's task ids."""
        return tuple(dict.fromkeys(self._sides(0)))

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the decoder's task ids."""
        return tuple(dict.fromkeys(self._sides(1)))

    @property
    def tags(self) -> tuple[str, ...]:
        """Target languages that need a tag in the source; empty if there is only one."""
        languages = tuple(dict.fromkeys(task.target for task in self.tasks))
        return languages if len(languages) > 1 else ()

    def _sides(self, side: int) -> list[str]:
        if self.task_key != "language":
            return [task.domain for task in self.tasks]
        return [(task.source, task.target)[side] for task in self.tasks]

    def index_of(self, text: str, source: str | None) -> int:
        """The index of a task, given its name; see `Task.parse`."""
        task = Task.parse(text, source)
        check_choice("task", task.name, self.names)
        return self.tasks.index(task)

    def task_ids(self, task: NDArray[np.int32]) -> TaskIds:
        """The task ids for encoder and decoder of a batch's sentences, given their task indices."""
        sides = []
        for side, names in enumerate((self.sources, self.targets)):
            name_ids = np.array([names.index(name) for name in self._sides(side)], dtype=np.int64)
            sides.append(name_ids[task])
        same_task = all((side == side[:1]).all() for side in sides)
        source, target = (torch.from_numpy(side) for side in sides)
        return {"source_task": source, "target_task": target, "one_task": bool(same_task)}

    def epoch_counts(self, sizes: Sequence[int]) -> list[int]:
        r"""Number of sentences of each task in an epoch; their sum is that of ``sizes``.

        Of :math:`N = \sum_t n_t` sentences task t has :math:`N n_t^{1/T} / \sum_s n_s^{1/T}`,
        rounded by the largest remainder method.
        """
        if self.temperature == 1:
            return list(sizes)
        total, largest = sum(sizes), max(sizes)
        weights = [
            math.exp(math.log(size / largest) / self.temperature) if size else 0.0 for size in sizes
        ]
        exact = [total * weight / math.fsum(weights) for weight in weights]
        counts = [math.floor(share) for share in exact]
        order = sorted(range(len(sizes)), key=lambda task: counts[task] - exact[task])
        for task in order[: total - sum(counts)]:
            counts[task] += 1
        return counts
