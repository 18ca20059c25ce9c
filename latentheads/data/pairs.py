"""Pairs of texts, source and target: from a folder, or from the Hugging Face hub."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import field, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from latentheads.corpora.cache import is_cache_file
from latentheads.corpora.cleaning import TOKEN_CHARACTERS, Cleaning
from latentheads.corpora.corpus import Corpus
from latentheads.corpora.hub import HUB, load_pairs
from latentheads.corpora.length_limits import Side
from latentheads.corpora.multi_task import parallel_tasks
from latentheads.corpora.parallel import PairOptions, encode_pairs, split_references
from latentheads.corpora.part import Log
from latentheads.corpora.processor import MAX_LINE, TextOptions, Whitespace
from latentheads.corpora.tasks import Task
from latentheads.corpora.text import PARTS, SentencePair, find_file, read_pairs
from latentheads.corpora.units import VocabSize
from latentheads.data.base import Cached, FolderData, name_of_folder
from latentheads.data.tasks import Tasks
from latentheads.errors import shown
from latentheads.metrics.protocol import Protocol
from latentheads.options import OptionError, Size, options_class


@options_class(kw_only=True)
class TextPairs(Cached):
    """What all pairs of texts share: a subclass reads the pairs, and locates each one.

    Attributes:
        source: Language translated from, as files or columns are called: en, de, ...
        target: Language translated into. Not with tasks.
        vocab_size: Subwords of a vocabulary, at most, learned from training by BPE.
        joint: One vocabulary for both sides.
        lowercase: Lower-case everything that the model reads and writes.
        tokenised: The text is tokenised: keep its words, and score it as it is.
        whitespace: normalise makes one blank of every run of blanks and tabs inside a line and
            removes leading and trailing ones, of references too; keep leaves all as it is.
        max_source: Most subwords of a source, its end counted; the rest is cut off. 0: any. Not
            with tasks.
        max_line: Most tokens of a line on either side, its end counted; 0: any. In training a
            longer one is left out, in valid and test it is an error.
        max_length: Longest training sentence in words; 0: any.
        max_ratio: Training pairs whose lengths differ by more than this factor are left out, as
            the papers do with 1.5; 0: any.
        max_train_samples: Use the first training pairs only, this many; 0: all.
        tasks: Several directions of translation, or domains, in place of one.
    """

    source: str = "de"
    target: str = "en"
    vocab_size: VocabSize = 10_000
    joint: bool = True
    lowercase: bool = False
    tokenised: bool = False
    whitespace: Whitespace = "normalise"
    max_source: Size = 0
    max_line: Size = MAX_LINE
    max_length: int = 175
    max_ratio: float = 0.0
    max_train_samples: Size = 0
    tasks: Tasks | None = None

    def _check(self) -> None:
        super()._check()
        if self.tasks is None:
            if self.source == self.target:
                raise OptionError(
                    "target", f" must differ from source, got {shown(self.source)} twice"
                )
            return
        if self.tasks.distinguish_by == "speaker":
            raise OptionError("tasks.distinguish_by", " speaker is of speech: text has no speakers")
        self.tasks.check_beside(self, ("target", "max_source"), "max_train_samples")
        _ = self.mixture

    @property
    def default_source(self) -> str | None:
        return self.source

    @property
    def is_tokenised(self) -> bool:
        return self.tokenised

    @property
    def text_options(self) -> TextOptions:
        return replace(
            super().text_options,
            whitespace=self.whitespace,
            max_line=self.max_line,
            max_source=self.max_source,
        )

    @property
    def direction(self) -> str:
        return "" if self.tasks else f"from {self.source} to {self.target}"

    @property
    @abstractmethod
    def _place_name(self) -> str:
        """Where the pairs are, in a title."""

    @property
    def name(self) -> str:
        if self.mixture is not None:
            return f"{self._place_name} {','.join(self.mixture.names)}"
        return f"{self._place_name} {self.source}-{self.target}"

    @property
    def has_references(self) -> bool:
        """Whether a held-out text may have several references."""
        return self.has_target_lists

    @property
    def has_target_lists(self) -> bool:
        """Whether every text, of training too, has a list of targets."""
        return False

    @abstractmethod
    def _read_pairs(self, part: str, task: Task) -> Iterator[SentencePair]:
        """The pairs of a part as they are read."""

    def _pairs(self, part: str, task: Task) -> Iterator[SentencePair]:
        """The pairs of a part, their white space normalised."""
        pairs, normalise = self._read_pairs(part, task), self.text_options.normalise
        if self.has_target_lists or (self.has_references and part != "train"):
            # references stay separated by tabs
            return (
                (normalise(left), "\t".join(map(normalise, right.split("\t"))))
                for left, right in pairs
            )
        return ((normalise(left), normalise(right)) for left, right in pairs)

    @abstractmethod
    def _location(self, part: str, side: Side, task: Task, index: int) -> str:
        """Where a pair stands: a line of a file, or a row of the hub."""

    @property
    def _own_task(self) -> Task:
        return Task(self.source, self.target)

    @property
    def _options(self) -> PairOptions:
        return PairOptions(
            vocab_size=self.vocab_size,
            joint=self.joint,
            lowercase=self.lowercase,
            tokenised=self.tokenised,
            cleaning=Cleaning(self.max_length, self.max_ratio, TOKEN_CHARACTERS * self.max_line),
        )

    def _read(self, log: Log | None, scratch: Path | None) -> Corpus:
        corpus = self._read_one(log) if self.tasks is None else self._read_tasks(log)
        locate = partial(self._name_location, corpus)
        return corpus.without_long_lines(self.max_line, locate, log)

    def _read_one(self, log: Log | None) -> Corpus:
        train, valid, test = (self._pairs(part, self._own_task) for part in PARTS)
        encoded = encode_pairs(
            self.name,
            (self._trained(pair) for pair in islice(train, self.max_train_samples or None)),
            valid,
            test,
            self._options,
            log,
            max_source=self.max_source,
            multiple_references=self.has_references,
        )
        return Corpus(self.name, *encoded)

    def _read_tasks(self, log: Log | None) -> Corpus:
        assert self.tasks is not None
        assert self.mixture is not None
        sizes = dict(
            zip(self.mixture.tasks, self.tasks.sizes_or(self.max_train_samples), strict=True)
        )

        def read(part: str, task: Task) -> Iterator[SentencePair]:
            first = sizes[task] if part == "train" else 0
            return islice(self._pairs(part, task), first or None)

        return parallel_tasks(self.name, self.mixture, read, self._options, log)

    def _trained(self, pair: SentencePair) -> SentencePair:
        """The text of a pair that is learned from: of a list of targets the first."""
        return (pair[0], split_references(pair[1])[0]) if self.has_target_lists else pair

    def _name_location(self, corpus: Corpus, part: str, side: Side, index: int) -> str:
        task = self._own_task
        if self.mixture is not None:
            tasks = getattr(corpus, part).task
            task = self.mixture.tasks[tasks[index]]
            index -= int(np.searchsorted(tasks, tasks[index]))
        if part == "train":
            index = self._index_read(task, index)
        return self._location(part, side, task, index)

    def _index_read(self, task: Task, index: int) -> int:
        """The index, among all training pairs that were read, of one that was kept."""
        reason = self._options.cleaning.rejection_reason
        numbered = enumerate(self._pairs("train", task))
        kept = (number for number, pair in numbered if reason(*self._trained(pair)) is None)
        return next(islice(kept, index, None))


@options_class(kw_only=True)
class Pairs(FolderData, TextPairs):
    """Pairs of texts from a folder with train.SOURCE and train.TARGET, valid.* and test.*.

    Plain UTF-8, one sentence a line, .gz accepted.

    Attributes:
        references: Suffix of the held-out files of references, several on a line with tabs between:
            ROUGE takes the nearest, all other scores are of the first. Empty: the target's own
            files. Not with tasks.
    """

    references: str = ""

    def _check(self) -> None:
        super()._check()
        if self.tasks is not None:
            self.tasks.check_beside(self, ("references",), "max_train_samples")

    @property
    def _place_name(self) -> str:
        return name_of_folder(self.folder)

    @property
    def has_references(self) -> bool:
        return bool(self.references)

    def _read_pairs(self, part: str, task: Task) -> Iterator[SentencePair]:
        stem, suffix = self._stem(part), self._suffix(part, task)
        return iter(read_pairs(self._folder_of(task), part, task.source, suffix, stem))

    def _suffix(self, part: str, task: Task) -> str:
        """Suffix of a part's file of targets; a held-out one may hold references."""
        return task.target if part == "train" else self.references or task.target

    def _folder_of(self, task: Task) -> Path:
        """The folder of a task's files; a direction may have its own."""
        folder = self.path / task.domain
        source, target = task.source, task.target
        own = (folder / f"{source}-{target}", folder / f"{target}-{source}")
        return next((path for path in own if self.tasks and path.is_dir()), folder)

    def _location(self, part: str, side: Side, task: Task, index: int) -> str:
        suffix = self._suffix(part, task) if side == "target" else task.source
        return (
            f"{find_file(self._folder_of(task), part, suffix, self._stem(part))}, line {index + 1}"
        )

    def _files(self) -> list[Path]:
        tasks = (self._own_task,) if self.mixture is None else self.mixture.tasks
        return [
            find_file(self._folder_of(task), part, suffix, self._stem(part))
            for part in PARTS
            for task in tasks
            for suffix in (task.source, self._suffix(part, task))
        ]


@options_class(kw_only=True)
class Hub(TextPairs):
    """Pairs of texts from the Hugging Face hub, or from local files that ``datasets`` reads.

    Attributes:
        corpus: multi30k, iwslt14, iwslt17 or wmt14; texts with their summaries, gigaword,
            cnn_dailymail or scitldr; or a name of your own with a path.
        path: Another repository of the hub than the known one, or a local folder.
        config: Its configuration.
    """

    corpus: str = field(default="multi30k", kw_only=False)
    path: str = ""
    config: str = ""

    def _check(self) -> None:
        super()._check()
        if self.corpus not in HUB and not self.path:
            raise OptionError(
                "corpus",
                f" must be one of {', '.join(HUB)}, or another one with a path; "
                f"got {shown(self.corpus)}",
            )
        if self.mixture is not None and any(task.domain for task in self.mixture.tasks):
            raise ValueError("a domain of a task is a folder: a corpus of the hub has none")
        if self.tasks and self.has_target_lists:
            raise ValueError(f"{self.corpus} has several references of a text: drop tasks")

    @property
    def _place_name(self) -> str:
        return self.corpus

    @property
    def has_target_lists(self) -> bool:
        return self.corpus in HUB and HUB[self.corpus].several

    @property
    def protocol(self) -> Protocol:
        cased = not self.lowercase and (self.corpus not in HUB or HUB[self.corpus].cased)
        return "wmt14" if cased else "iwslt14"

    def _read_pairs(self, part: str, task: Task) -> Iterator[SentencePair]:
        path, config = self.path or None, self.config or None
        return load_pairs(self.corpus, part, task.source, task.target, path, config)

    def _location(self, part: str, side: Side, task: Task, index: int) -> str:
        return f"row {index + 1} of {part} of {self.corpus}"

    def _files(self) -> list[Path]:
        return local_files(self.path, self.cache)


def local_files(path: str, cache: str) -> list[Path]:
    """The local files of a corpus that ``datasets`` reads, without those of the cache."""
    root = Path(path or os.devnull).expanduser()
    files = (file for file in (root, *root.rglob("*")) if file.is_file())
    return sorted(file for file in files if not is_cache_file(cache, file))
