"""Several tasks in one corpus: which, how large, and how they are mixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pydantic import PositiveFloat

from latentheads.checks import split_items
from latentheads.corpora.tasks import Mixture, Task, TaskKey
from latentheads.options import Count, OptionError, changed_options, options_class


@options_class()
class Tasks:
    """Several directions of translation, or languages of speech, in one corpus.

    Attributes:
        names: The tasks, comma between: de (from the source language into it) or en-de, of a domain
            as bible:de or bible:en-de, a folder in that of the data. The files of a direction may
            stand in a folder en-de of their own. Of the grammar: en, its languages, its domains
            news and talk. Of speech: languages, or en-de to translate, of a domain or a speaker as
            ann:en, by the columns of its tables.
        sizes: Training pairs of each task, the first ones; empty: the same number for all.
        temperature: T of the share n^(1/T) that a task of n training pairs has in an epoch: 1 takes
            every pair once, 5 is usual and gives small tasks more.
        one_task: Make each batch of one task, not of all.
        distinguish_by: What model and guide distinguish tasks by: language (the encoder by that of
            the source, the decoder by that of the target), domain, or, of speech, speaker.
    """

    names: str | tuple[str, ...]
    sizes: tuple[Count, ...] = ()
    temperature: PositiveFloat = 1.0
    one_task: bool = False
    distinguish_by: TaskKey = "language"

    def __post_init__(self) -> None:
        if isinstance(self.names, str):
            object.__setattr__(self, "names", tuple(split_items(self.names)))
        if not any(self.names):
            raise OptionError("names", " must hold at least one task, as de or en-de")
        if self.sizes and len(self.sizes) != len(self.names):
            raise OptionError(
                "sizes",
                f" must be one for each of the {len(self.names)} tasks, got {len(self.sizes)}",
            )

    def check_beside(self, data: Any, one_direction: Sequence[str], size: str) -> None:
        """Raises an error for other options of the data that act on nothing beside several tasks.

        Args:
            data: The data.
            one_direction: Its options that are of one direction alone.
            size: Its option of the number of training pairs of every task.
        """
        changed = changed_options(data)
        for name in one_direction:
            if name in changed:
                raise OptionError(name, " is of one direction of translation: drop it, or tasks")
        if self.sizes and size in changed:
            raise OptionError(size, " is the same for all tasks: drop it, or tasks.sizes")

    def mixture(self, source: str | None) -> Mixture:
        """The tasks and how they are mixed."""
        tasks = tuple(Task.parse(name, source) for name in self.names)
        return Mixture(tasks, self.distinguish_by, self.temperature, self.one_task)

    def sizes_or(self, size: int) -> tuple[int, ...]:
        """The training pairs of each task."""
        return self.sizes or (size,) * len(self.names)

    def key(self, is_speech: bool) -> dict[str, Any]:
        """What an encoded corpus depends on: of speech, a speaker's or a domain's utterances."""
        options = asdict(self)
        return {
            name: value
            for name, value in options.items()
            if name in ("names", "sizes") or (is_speech and name == "distinguish_by")
        }
