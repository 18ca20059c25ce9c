"""What turns a text into token ids after training as it did in training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from latentheads.batch import EOS
from latentheads.checks import check_as_many, check_list
from latentheads.corpora.part import Part
from latentheads.corpora.rows import Rows
from latentheads.corpora.tasks import Mixture
from latentheads.corpora.text import list_texts, normalise_whitespace
from latentheads.corpora.vocabulary import Vocabulary, tag_of
from latentheads.errors import shown
from latentheads.options import from_dict

Whitespace = Literal["normalise", "keep"]
"""What becomes of the blanks and tabs of a text."""

MAX_LINE = 1024
"""Most tokens of a line by default."""


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How text is encoded, its vocabularies aside: what a run folder keeps beside them.

    Attributes:
        whitespace: Whether runs of blanks and tabs become one blank, or stay.
        max_line: Most tokens of a line; 0: any.
        max_source: Most tokens of a source, the rest of which is cut off; 0: any.
        max_seconds: Longest utterance of speech; 0: any.
        block_size: Tokens of the blocks of a running text; 0: sentences.
        context: Least context of a token where perplexity is measured by windows; 0: by blocks
            alone.
        direction: Source and target language in words; empty where they are not known.
        mixture: The tasks and how they are mixed; None where there is one alone.
        default_source: The language that a task is translated from where its name has none. Empty:
            it has to have one. None: the language of its target, as of recognised speech.
    """

    whitespace: Whitespace = "keep"
    max_line: int = MAX_LINE
    max_source: int = 0
    max_seconds: float = 0.0
    block_size: int = 0
    context: int = 0
    direction: str = ""
    mixture: Mixture | None = None
    default_source: str | None = ""

    def normalise(self, line: str) -> str:
        """A line with its white space as the text of the corpus has it."""
        return normalise_whitespace(line) if self.whitespace == "normalise" else line


@dataclass(frozen=True)
class Processor(TextOptions):
    """Encodes and decodes text for a model; it needs neither the corpus nor its options.

    Attributes:
        target: Target vocabulary.
        source: Source vocabulary; None for a language model.

    Example:
        >>> from latentheads.corpora import Words
        >>> Processor(Words(["a", "house"])).encode(["a house", "a"])
        Part(2 sentences, 5 target tokens)
    """

    target: Vocabulary
    source: Vocabulary | None = None

    @property
    def reads_text(self) -> bool:
        """Whether its input is text: no source of speech."""
        return self.source is None or self.source.is_text

    @property
    def longest_line(self) -> int:
        """Most tokens of a text; 0: any, as of a text that is cut into blocks."""
        return 0 if self.block_size else self.max_line

    def encode(
        self,
        inputs: Sequence[str | Path],
        targets: Sequence[str] | None = None,
        *,
        task: int | str | None = None,
    ) -> Part:
        """Encodes inputs as a part of a corpus.

        Args:
            inputs: Lines; of a source that is no text, files. Those of a language model are its
                targets.
            targets: The translation of each; None: the part has sources in their place, and no
                score of it has a meaning.
            task: The name of their task, or its index, where there are several.

        Raises:
            ValueError: There are not as many targets as inputs, a language model has some, or it is
                not known of which task inputs are.

        Example:
            >>> from latentheads.corpora import Words
            >>> processor = Processor(Words(["the", "house"]), Words(["das", "haus"]))
            >>> next(lh.data.batches(processor.encode(["das haus"], ["the house"])))
            Batch(1 sentences, 3 target tokens, source)
        """
        check_list("inputs", inputs)
        inputs = [*inputs]
        if self.reads_text:
            inputs = [self.normalise(line) for line in list_texts("inputs", inputs)]
        if targets is not None:
            targets = [self.normalise(line) for line in list_texts("targets", targets)]
            if self.source is None:
                raise ValueError("targets of a language model are its inputs: drop targets")
            check_as_many("targets", targets, "inputs", inputs)
        if self.source is None:
            if task is not None:
                raise ValueError(f"a language model has no tasks, got task {shown(task)}")
            return self.part_of_lines(self.target.encode_inputs(inputs)[0])
        rows, frames = self.source.encode_inputs(inputs, self.max_seconds)
        if self.max_source:
            rows = rows.truncate(self.max_source)
        part = self.with_task(Part(rows, rows, frames=frames), self.index_of_task(task))
        return part if targets is None else replace(part, targets=self.target.encode_all(targets))

    def part_of_lines(self, rows: Rows) -> Part:
        """Lines of a language model; one of running text follows the end of another."""
        tags = np.full(len(rows), EOS, np.int32) if self.block_size else None
        return Part(rows, None, tags=tags)

    def index_of_task(self, task: int | str | None) -> int | None:
        """The index of a task, given its name or index; None where there are none.

        Raises:
            ValueError: There is no such task; or there are several, and none is given.
        """
        mixture = self.mixture
        if mixture is None:
            if task is not None:
                raise ValueError(f"task is for a corpus of several, got {shown(task)}")
            return None
        if isinstance(task, str):
            return mixture.index_of(task, self.default_source)
        number = len(mixture.tasks)
        if task is None and number == 1:
            return 0
        if task is None or not 0 <= task < number:
            names = ", ".join(mixture.names)
            raise ValueError(f"task must be one of {names}, or its index; got {shown(task)}")
        return task

    def with_task(self, part: Part, task: int | None) -> Part:
        """A part of one task alone, with the tag of its target language where there are several."""
        if self.mixture is None or task is None:
            return part
        part = replace(part, task=np.full(len(part), task, np.int32), mixture=self.mixture)
        if not self.mixture.tags or not len(part):
            return part
        language = self.mixture.tasks[task].target
        if part.frames is not None:  # speech has no token that a tag could stand before
            tags = np.full(len(part), tag_of(self.target, language), np.int32)
            return replace(part, tags=tags)
        assert part.sources is not None
        assert self.source is not None
        return replace(part, sources=part.sources.prepended(tag_of(self.source, language)))

    def to_json(self) -> dict[str, Any]:
        """All but the vocabularies, which have a file of their own."""
        options = {field.name: getattr(self, field.name) for field in fields(TextOptions)}
        return asdict(TextOptions(**options))

    @classmethod
    def from_json(cls, value: Any, target: Vocabulary, source: Vocabulary | None) -> Processor:
        """Restores a processor from the value of `to_json` and its vocabularies."""
        return cls(target, source, **vars(from_dict(TextOptions, value, path="processor")))
