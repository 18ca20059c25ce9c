"""A corpus that was put together in Python: what a run folder holds of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from latentheads.corpora.corpus import Corpus
from latentheads.corpora.part import Log
from latentheads.corpora.processor import TextOptions
from latentheads.data.base import Data
from latentheads.data.tasks import Tasks
from latentheads.options import Size, options_class

Task = Literal["translation", "language-model", "recognition", "speech-translation"]


@options_class(kw_only=True)
class InMemory(Data):
    """A corpus that was put together in Python; no options make it again.

    Attributes:
        task: What it is for.
        block_size: Tokens of the blocks of a running text; 0: sentences.
        lowercase: Whether its text is lower-cased.
        tokenised: Whether a line is its tokens, with blanks between.
        tasks: Its tasks; None where there is one alone.
    """

    task: Task = "translation"
    block_size: Size = 0
    lowercase: bool = False
    tokenised: bool = False
    tasks: Tasks | None = None
    name = "a corpus in memory"

    @classmethod
    def of(cls, corpus: Corpus) -> InMemory:
        """What a run needs of a corpus that was put together in Python."""
        mixture, tasks = corpus.train.mixture, None
        if mixture is not None:
            how = (mixture.temperature, mixture.one_task, mixture.task_key)
            tasks = Tasks(mixture.names, (), *how)
        return cls(
            task=_name_task(corpus),
            block_size=corpus.train.block_size,
            lowercase=corpus.target.lowercase,
            tokenised=corpus.target.tokenised,
            tasks=tasks,
        )

    @property
    def default_source(self) -> str | None:
        return None if self.is_recognition else ""

    @property
    def is_language_model(self) -> bool:
        return self.task == "language-model"

    @property
    def is_speech(self) -> bool:
        return self.task in ("recognition", "speech-translation")

    @property
    def is_recognition(self) -> bool:
        return self.task == "recognition"

    @property
    def is_tokenised(self) -> bool:
        return self.tokenised

    @property
    def text_options(self) -> TextOptions:
        """How text is encoded; an utterance may have half a minute."""
        return replace(super().text_options, max_seconds=30.0)

    def _make(self, log: Log | None, keep: bool) -> Corpus:
        raise ValueError("the corpus was put together in Python: give corpus")


def _name_task(corpus: Corpus) -> Task:
    if corpus.source is None:
        return "language-model"
    if corpus.source.is_text:
        return "translation"
    translates = any(task.source != task.target for task in corpus.tasks)
    return "speech-translation" if translates else "recognition"


def data_of(corpus: Corpus) -> Data:
    """The options of a corpus; of one that was put together in Python, those that a run needs."""
    return corpus.data if isinstance(corpus.data, Data) else InMemory.of(corpus)
