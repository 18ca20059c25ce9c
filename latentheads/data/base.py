"""The base of every data class: where a corpus is and how it is read, as options."""

from __future__ import annotations

import hashlib
import os
import pkgutil
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any, ClassVar

from latentheads.batch import UNK
from latentheads.corpora.cache import cached
from latentheads.corpora.corpus import Corpus
from latentheads.corpora.part import Log, Part
from latentheads.corpora.processor import Processor, TextOptions
from latentheads.corpora.tasks import Mixture
from latentheads.corpora.vocabulary import Vocabulary
from latentheads.data.tasks import Tasks
from latentheads.errors import one_line_message
from latentheads.metrics.protocol import Protocol
from latentheads.options import Choice, OptionError, check_class, import_path, options_class

DATA: dict[str, str | type] = {
    "grammar": "latentheads.data.grammar:Grammar",
    "grammar-text": "latentheads.data.grammar:GrammarText",
    "pairs": "latentheads.data.pairs:Pairs",
    "running-text": "latentheads.data.running_text:RunningText",
    "speech": "latentheads.contrib.speech.data:Speech",
    "hub": "latentheads.data.pairs:Hub",
    "hub-text": "latentheads.data.running_text:HubText",
    "python-docs": "latentheads.data.running_text:PythonDocs",
    "in-memory": "latentheads.data.in_memory:InMemory",
}
"""The data classes by name, or where they are; a new corpus is a file beside these and a line."""

UNKNOWN = 0.01
"""Share of unknown target tokens above which it is printed."""

SLOW = 60.0
"""Seconds of reading above which a folder for the encoded corpus is recommended."""


@options_class(kw_only=True)
class Data(Choice, ABC):
    """Where a corpus is and how it is read.

    A subclass is a dataclass whose fields are the options of ``--data``. The properties below have
    defaults, which it may override. A class of your own, at the top level of its module, is named
    ``module:Class``.
    """

    extensible: ClassVar[bool] = True

    @classmethod
    def choices(cls) -> Mapping[str, type[Data]]:
        classes: dict[str, type[Data]] = {}
        for name, line in DATA.items():
            try:
                kind = pkgutil.resolve_name(line) if isinstance(line, str) else line
                classes[name] = check_class(kind, Data, str(line))
            except Exception as reason:  # a run that does not use it does not depend on it
                problem = f"DATA[{name!r}] = {line!r} is left out: {one_line_message(reason)}"
                warnings.warn(problem, stacklevel=1)
        return classes

    def __post_init__(self) -> None:
        self._check()

    def _check(self) -> None:
        """Raises an error for options that do not go together."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the corpus in tables and titles."""

    @abstractmethod
    def _make(self, log: Log | None, keep: bool) -> Corpus:
        """Makes the corpus; see :meth:`load`."""

    def load(self, log: Log | None = None, *, keep: bool = True) -> Corpus:
        """Makes the corpus, which keeps these options.

        Args:
            log: Called with a line about what was left out of training, and with one about held-out
                sentences that stand in training too.
            keep: Whether it may be put into the cache.

        Raises:
            ValueError: Its text is missing or broken; one line that names file and place.
        """
        corpus = self._make(log, keep)
        if not isinstance(corpus, Corpus):
            raise ValueError(
                f"{type(self).__name__}._make must return a Corpus, such as Corpus.from_pairs("
                f"train, valid, test, name=self.name), got {type(corpus).__name__}"
            )
        processor = self.processor(corpus.target, corpus.source)
        corpus = replace(corpus, data=self, processor=processor)
        if log is not None and any(corpus.overlap):
            unit = "texts" if self.is_speech else corpus.valid.unit
            log(
                f"{corpus.overlap.valid:,} of {len(corpus.valid):,} {unit} of valid and "
                f"{corpus.overlap.test:,} of {len(corpus.test):,} of test stand in training too"
            )
        if log is not None and not self.is_speech:
            for name, part in (("valid", corpus.valid), ("test", corpus.test)):
                if number := _count_empty(part):
                    pairs = f"{number:,} of {len(part):,} pairs of {name}"
                    log(f"{pairs} are empty on a side, and are scored like all others")
        # the line of a text has it, and a corpus with a true log p is synthetic
        if log is not None and not (self.is_language_model or corpus.test.true_log_probs):
            for name, part in (("valid", corpus.valid), ("test", corpus.test)):
                if (share := (part.targets.tokens == UNK).mean()) > UNKNOWN:
                    tokens = f"{share:.1%} of the target tokens of {name}"
                    log(f"{tokens} are unknown: all scores take them for one")
        return corpus

    def processor(self, target: Vocabulary, source: Vocabulary | None = None) -> Processor:
        """What encodes text as that of the corpus, by vocabularies that were learned on it."""
        return Processor(target, source, **vars(self.text_options))

    @property
    def text_options(self) -> TextOptions:
        """How text is encoded, its vocabularies aside."""
        return TextOptions(
            block_size=self.block_size,
            direction=self.direction,
            mixture=self.mixture,
            default_source=self.default_source,
        )

    @property
    def tasks(self) -> Tasks | None:
        """Its tasks; None where there is one alone."""
        return None

    @property
    def mixture(self) -> Mixture | None:
        """The tasks and how they are mixed; None where there is one alone."""
        return None if self.tasks is None else self.tasks.mixture(self.default_source)

    @property
    def default_source(self) -> str | None:
        """The language that a task is translated from where it names none.

        Empty: a task has to name it. None: the language of its target, as of recognised speech.
        """
        return ""

    @property
    def direction(self) -> str:
        """Source and target language in words; empty where the name has them, or there are none."""
        return ""

    @property
    def is_language_model(self) -> bool:
        """Whether there is no source."""
        return False

    @property
    def is_speech(self) -> bool:
        """Whether the source is audio."""
        return False

    @property
    def is_recognition(self) -> bool:
        """Whether the target is what is spoken in the source."""
        return False

    @property
    def has_parses(self) -> bool:
        """Whether the dependencies between the words of a sentence are known."""
        return False

    @property
    def block_size(self) -> int:
        """Tokens of the blocks of a running text; 0: sentences."""
        return 0

    @property
    def lowercase(self) -> bool:
        """Whether the text is lower-cased."""
        return False

    @property
    def is_tokenised(self) -> bool:
        """Whether a line is its tokens, with blanks between."""
        return False

    @property
    def protocol(self) -> Protocol:
        """How the papers compute BLEU on it: with case unless the text has none."""
        return "iwslt14" if self.lowercase else "wmt14"


@options_class(kw_only=True)
class Cached(Data):
    """Data that may be kept encoded for the next start.

    Attributes:
        cache: Folder that keeps the encoded corpus for the next start; empty: none.
    """

    cache: str = ""

    @abstractmethod
    def _read(self, log: Log | None, scratch: Path | None) -> Corpus:
        """Reads the corpus; large files may wait for the cache in the folder ``scratch``."""

    @abstractmethod
    def _files(self) -> Iterable[Path]:
        """The local files that it is read from, on which a kept corpus depends."""

    def _make(self, log: Log | None, keep: bool) -> Corpus:
        if not self.cache:
            started = time.monotonic()
            corpus = self._read(log, None)
            seconds = time.monotonic() - started
            if log is not None and seconds > SLOW:
                log(f"reading took {seconds:.0f} s; with --data.cache FOLDER later starts are fast")
            return corpus
        folder = Path(self.cache).expanduser()
        scratch = folder if keep else None
        corpus = cached(folder, self._key(), lambda: self._read(log, scratch), keep)
        return corpus if self.mixture is None else corpus.with_mixture(self.mixture)

    def _key(self) -> str:
        """Everything that the encoded corpus depends on: the options, and the state of the files.

        The context is of the evaluation alone, and how tasks are mixed is of training.
        """
        stamps = [(str(path.resolve()), *_stamp(path)) for path in self._files()]
        options: dict[str, Any] = asdict(self) | {"class": import_path(type(self)), "context": 0}
        if self.tasks is not None:
            options["tasks"] = self.tasks.key(self.is_speech)
        return repr((options, hashlib.sha256(repr(stamps).encode()).hexdigest()))


def _count_empty(part: Part) -> int:
    """The number of pairs with a side that has no token of text before EOS."""
    if part.sources is None:
        return 0
    has_tag = part.mixture is not None and bool(part.mixture.tags)
    return int(((part.sources.lengths < 2 + has_tag) | (part.targets.lengths < 2)).sum())


def _stamp(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_size, state.st_mtime_ns


def name_of_folder(folder: str) -> str:
    """The last part of a folder's path."""
    return os.path.basename(os.path.abspath(os.path.expanduser(folder)))


@options_class(kw_only=True)
class FolderData(Cached):
    """Data from a folder; the base stands before that of the kind of data.

    Attributes:
        folder: Where the files are.
        train_name: Name of the training files before the dot.
        valid_name: The same for validation; empty: valid, val or dev.
        test_name: The same for test.
    """

    folder: str = field(default="", kw_only=False)
    train_name: str = "train"
    valid_name: str = ""
    test_name: str = "test"

    def _check(self) -> None:
        super()._check()
        if not self.folder:
            raise OptionError("folder", " must name a folder")

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.folder).expanduser()

    def _make(self, log: Log | None, keep: bool) -> Corpus:
        self._check_files()
        return super()._make(log, keep)

    def _check_files(self) -> None:
        """Raises a ValueError where the folder cannot hold such data."""
        if not self.path.is_dir():
            where = "" if self.path.is_absolute() else f" in the current folder, {Path.cwd()}"
            raise ValueError(f"data must be an existing folder, got {self.folder!r}{where}")

    def _stem(self, part: str) -> str | None:
        """The name of a part's files before the dot; None: the usual ones."""
        return getattr(self, f"{part}_name") or None
