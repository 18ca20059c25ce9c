"""Tasks: the directions of translation, each of a domain or of any, that a corpus mixes."""

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

__all__ = ["Apart", "Mixture", "Task", "TaskIds"]

Apart = Literal["language", "domain", "speaker"]


@dataclass(frozen=True)
class Task:
    """A direction of translation; of speech that is recognised both languages are one.

    Attributes:
        source: Language translated from.
        target: Language translated into.
        domain: What the text is about, or who speaks; empty where that is not told.
    """

    source: str
    target: str
    domain: str = ""

    @classmethod
    def read(cls, text: str, source: str | None) -> Task:
        """Reads ``de``, ``en-de``, ``bible:de`` or ``bible:en-de``.

        Args:
            text: What to read.
            source: Language translated from where the text names none; empty: it has to. None: the
                language of the target, as of speech that is recognised.

        Raises:
            ValueError: It is none of these, or both languages are the same.
        """
        domain, colon, direction = text.rpartition(":")
        languages = direction.split("-")
        if not all(languages) or len(languages) > 2 or (colon and not domain):
            raise ValueError(
                f"a task is TARGET or SOURCE-TARGET, with or without DOMAIN: before; got {text!r}"
            )
        if source == "" and not languages[1:]:
            raise ValueError(f"task {text!r} must name both languages, as SOURCE-TARGET")
        begin = languages[-1] if source is None else source
        first, last = languages[0] if languages[1:] else begin, languages[-1]
        if first == last and source is not None:
            raise ValueError(f"source and target of task {text!r} must differ, got {last!r} twice")
        if first != last and source is None:
            raise ValueError(
                f"task {text!r} translates, and speech is written in its own language: name that "
                "alone, or use task speech-translation"
            )
        return cls(first, last, domain)

    @property
    def direction(self) -> str:
        """Both languages, or the one that they are."""
        return self.target if self.source == self.target else f"{self.source}-{self.target}"

    @property
    def name(self) -> str:
        """The name of the task, as `read` reads it."""
        return f"{self.domain}:{self.direction}" if self.domain else self.direction


class TaskIds(TypedDict, total=False):
    """The tasks of a batch, as encoder and decoder tell them apart."""

    source_task: Int[Tensor, " sentence"]
    target_task: Int[Tensor, " sentence"]
    one_task: bool


@dataclass(frozen=True)
class Mixture:
    """The tasks of a corpus and how they are mixed.

    Attributes:
        tasks: Each once.
        apart: What encoder and decoder tell tasks apart by: the encoder by the source language and
            the decoder by the target language, or both by the domain, which of speech may be who
            speaks.
        temperature: T of the share n^(1/T) that a task of n sentences has in an epoch: 1 takes
            every sentence once, a higher one gives small tasks more.
        one_task: Whether a batch is of one task.
    """

    tasks: tuple[Task, ...]
    apart: Apart = "language"
    temperature: float = 1.0
    one_task: bool = False

    def __post_init__(self) -> None:
        for place, task in enumerate(self.tasks):
            if task in self.tasks[:place]:
                raise ValueError(f"task {task.name} is given twice")
        if self.apart != "language" and not all(task.domain for task in self.tasks):
            plain = next(task for task in self.tasks if not task.domain)
            raise ValueError(
                f"tasks told apart by {self.apart} need one each; {plain.name} has none"
            )
        if not self.temperature > 0:
            raise ValueError(f"task_temperature must be positive, got {self.temperature}")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tasks."""
        return tuple(task.name for task in self.tasks)

    @property
    def sources(self) -> tuple[str, ...]:
        """The names that the encoder tells apart."""
        return tuple(dict.fromkeys(self._sides(0)))

    @property
    def targets(self) -> tuple[str, ...]:
        """The names that the decoder tells apart."""
        return tuple(dict.fromkeys(self._sides(1)))

    @property
    def tags(self) -> tuple[str, ...]:
        """Target languages that the source has to name; none where there is only one."""
        found = tuple(dict.fromkeys(task.target for task in self.tasks))
        return found if len(found) > 1 else ()

    def _sides(self, side: int) -> list[str]:
        if self.apart != "language":
            return [task.domain for task in self.tasks]
        return [(task.source, task.target)[side] for task in self.tasks]

    def find(self, text: str, source: str | None) -> int:
        """The place of a task.

        Raises:
            ValueError: It is none of these.
        """
        task = Task.read(text, source)
        if task not in self.tasks:
            raise ValueError(f"unknown task {text!r}: choose from {', '.join(self.names)}")
        return self.tasks.index(task)

    def told(self, task: NDArray[np.int32]) -> TaskIds:
        """The tasks of a batch's sentences, as encoder and decoder tell them apart."""
        sides = []
        for side, names in enumerate((self.sources, self.targets)):
            places = np.array([names.index(name) for name in self._sides(side)], dtype=np.int64)
            sides.append(places[task])
        one = all((side == side[:1]).all() for side in sides)
        source, target = (torch.from_numpy(side) for side in sides)
        return {"source_task": source, "target_task": target, "one_task": bool(one)}

    def counts(self, sizes: Sequence[int]) -> list[int]:
        r"""Sentences of each task in an epoch, as many in all as there are.

        Of :math:`N = \sum_t n_t` sentences task t has :math:`N n_t^{1/T} / \sum_s n_s^{1/T}`,
        rounded so that nothing is lost: the largest remainders are rounded up.
        """
        if self.temperature == 1:
            return list(sizes)
        total, largest = sum(sizes), max(sizes)
        weights = [
            math.exp(math.log(size / largest) / self.temperature) if size else 0.0 for size in sizes
        ]
        exact = [total * weight / math.fsum(weights) for weight in weights]
        found = [math.floor(share) for share in exact]
        order = sorted(range(len(sizes)), key=lambda task: found[task] - exact[task])
        for task in order[: total - sum(found)]:
            found[task] += 1
        return found
