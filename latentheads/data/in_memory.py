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


@options_class(kw_only=True)
class InMemory(Data):
    """A corpus that was put together in Python; no options make it again.

    Attributes:
        task: What it is for.
        block: Tokens of the blocks of a running text; 0: sentences.
        lowercase: Whether its text is lower-cased.
        tokenised: Whether a line is its tokens, with blanks between.
        tasks: Its tasks; None where there is one alone.
    """

    task: Literal["translation", "language-model", "recognition", "speech-translation"] = (
        "translation"
    )
    block: Size = 0
    lowercase: bool = False
    tokenised: bool = False
    tasks: Tasks | None = None

    @property
    def name(self) -> str:
        """What stands in a title."""
        return "a corpus in memory"

    @property
    def default_source(self) -> str | None:
        """Recognised speech has the language of its target."""
        return None if self.is_recognition else ""

    @property
    def is_language_model(self) -> bool:
        """Whether there is no source."""
        return self.task == "language-model"

    @property
    def is_speech(self) -> bool:
        """Whether the source is audio."""
        return self.task in ("recognition", "speech-translation")

    @property
    def is_recognition(self) -> bool:
        """Whether the target is what is spoken in the source."""
        return self.task == "recognition"

    @property
    def is_tokenised(self) -> bool:
        """Whether a line is its tokens, with blanks between."""
        return self.tokenised

    @property
    def text_options(self) -> TextOptions:
        """How text is encoded; an utterance may have half a minute."""
        return replace(super().text_options, max_seconds=30.0)

    def _make(self, log: Log | None, keep: bool) -> Corpus:
        raise ValueError("the corpus was put together in Python: give corpus")
