"""Text of one language, for a language model: from a folder, the hub, or Python's reference."""

from __future__ import annotations

import pydoc_data.topics
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from functools import partial
from itertools import islice
from pathlib import Path

from latentheads.corpora import pydoc
from latentheads.corpora.corpus import Corpus
from latentheads.corpora.hub import PROSE, load_lines
from latentheads.corpora.length_limits import Side
from latentheads.corpora.part import Log
from latentheads.corpora.processor import MAX_LINE, TextOptions, Whitespace
from latentheads.corpora.running_text import text_corpus
from latentheads.corpora.text import PARTS, find_file, iterate_lines
from latentheads.corpora.units import Unit, WordUnit
from latentheads.data.base import Cached, FolderData, name_of_folder
from latentheads.data.pairs import local_files
from latentheads.errors import shown
from latentheads.options import OptionError, Size, options_class


@options_class(kw_only=True)
class _Text(Cached):
    """What all running text shares.

    Attributes:
        block_size: Tokens of the blocks that the text is cut into; 0 takes every line for a
            sentence alone.
        context: Report perplexity by windows too, each token with at least this many before it; 0:
            by blocks alone.
        unit: Words, or subwords learned by BPE.
        lowercase: Lower-case everything that the model reads and writes.
        max_line: Most tokens of a line, its end counted; 0: any. Not with blocks.
        max_train_samples: Use the first training lines only, this many; 0: all.
    """

    block_size: Size = 0
    context: Size = 0
    unit: Unit = WordUnit()
    lowercase: bool = False
    max_line: Size = MAX_LINE
    max_train_samples: Size = 0
    is_language_model = True

    def _check(self) -> None:
        super()._check()
        if self.context and self.context >= self.block_size:
            most = (
                f"lie in 0 ... {self.block_size - 1}, a block less one"
                if self.block_size
                else "be 0"
            )
            raise OptionError("context", f" must {most}, got {self.context}")
        if self.block_size and self.max_line != MAX_LINE:
            raise OptionError("max_line", " is for lines, and blocks run across them: drop one")

    @property
    def text_options(self) -> TextOptions:
        return replace(super().text_options, max_line=self.max_line, context=self.context)

    @abstractmethod
    def _lines(self, part: str) -> Iterator[str]:
        """The lines of a part."""

    @abstractmethod
    def _location(self, part: str, side: Side, index: int) -> str:
        """Where a line stands."""

    def _read(self, log: Log | None, scratch: Path | None) -> Corpus:
        train, valid, test = (partial(self._lines_used, part) for part in PARTS)
        corpus = text_corpus(
            self.name,
            train,
            valid,
            test,
            block_size=self.block_size,
            unit=self.unit,
            lowercase=self.lowercase,
            log=log,
        )
        max_line = 0 if self.block_size else self.max_line
        return corpus.without_long_lines(max_line, self._location, log)

    def _lines_used(self, part: str) -> Iterator[str]:
        first = (self.max_train_samples or None) if part == "train" else None
        return map(self.text_options.normalise, islice(self._lines(part), first))


@options_class(kw_only=True)
class RawText(_Text):
    """Text whose lines are whatever somebody wrote.

    Attributes:
        whitespace: normalise makes one blank of every run of blanks and tabs inside a line and
            removes leading and trailing ones; keep leaves all as it is, for subwords.
    """

    whitespace: Whitespace = "normalise"

    @property
    def text_options(self) -> TextOptions:
        return replace(super().text_options, whitespace=self.whitespace)

    def _check(self) -> None:
        super()._check()
        if self.whitespace != "normalise" and isinstance(self.unit, WordUnit):
            raise OptionError("whitespace", " keep is for unit subword: words have none")


@options_class(kw_only=True)
class RunningText(FolderData, RawText):
    """Text of one language from a folder with train.txt, valid.txt and test.txt."""

    @property
    def name(self) -> str:
        return name_of_folder(self.folder)

    def _file(self, part: str) -> Path:
        return find_file(self.path, part, "txt", self._stem(part))

    def _lines(self, part: str) -> Iterator[str]:
        return iter(iterate_lines(self._file(part)))

    def _location(self, part: str, side: Side, index: int) -> str:
        return f"{self._file(part)}, line {index + 1}"

    def _files(self) -> Iterable[Path]:
        return map(self._file, PARTS)


@options_class(kw_only=True)
class HubText(RawText):
    """Text of one language from the Hugging Face hub, or from local files of ``datasets``.

    Attributes:
        corpus: wikitext-2 or wikitext-103, or a name of your own with a path.
        path: Another repository of the hub than the known one, or a local folder.
        config: Its configuration.
    """

    corpus: str = field(default="wikitext-2", kw_only=False)
    path: str = ""
    config: str = ""

    def _check(self) -> None:
        super()._check()
        if self.corpus not in PROSE and not self.path:
            raise OptionError(
                "corpus",
                f" must be one of {', '.join(PROSE)}, or another one with a path; "
                f"got {shown(self.corpus)}",
            )

    @property
    def name(self) -> str:
        return self.corpus

    def _lines(self, part: str) -> Iterator[str]:
        return load_lines(self.corpus, part, self.path or None, self.config or None)

    def _location(self, part: str, side: Side, index: int) -> str:
        return f"row {index + 1} of {part} of {self.corpus}"

    def _files(self) -> Iterable[Path]:
        return local_files(self.path, self.cache)


@options_class(kw_only=True)
class PythonDocs(_Text):
    """The prose of Python's own reference; it needs no file."""

    name = "pydoc"
    is_tokenised = True

    def _lines(self, part: str) -> Iterator[str]:
        return map(" ".join, getattr(pydoc.split(), part))

    def _location(self, part: str, side: Side, index: int) -> str:
        return f"row {index + 1} of {part} of pydoc"

    def _files(self) -> Iterable[Path]:
        return [Path(pydoc_data.topics.__file__)]
