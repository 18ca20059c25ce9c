"""Which corpus: one that the program makes, one of the hub, or a folder of text."""

from __future__ import annotations

import os
import pydoc_data.topics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from latentheads.checks import check_least
from latentheads.corpora import Corpus, Mixture, Task, pydoc
from latentheads.corpora.cache import cached
from latentheads.corpora.cleaning import Cleaning
from latentheads.corpora.corpus import grammar, grammar_sources
from latentheads.corpora.grammar import LANGUAGES
from latentheads.corpora.hub import HUB, PROSE, load_lines, load_pairs
from latentheads.corpora.limited import Side, limited
from latentheads.corpora.mixed import ENGLISH, grammar_tasks, parallel_tasks
from latentheads.corpora.parallel import parallel
from latentheads.corpora.prose import Unit, prose
from latentheads.corpora.tasks import Apart
from latentheads.corpora.text import PARTS, Pair, find, lines_of, read_pairs
from latentheads.metrics.translation import Protocol

__all__ = ["CHARACTERS", "TASK_OPTIONS", "Data", "make_corpus"]

MADE = ("grammar", "pydoc")
CHARACTERS = 32
"""Characters of a word for each token that a line may have, more than text has. A line with such a
word is left out before subwords are learned: every merge reads the whole of a word."""

TASK_OPTIONS = ("tasks", "task_sizes", "task_temperature", "one_task", "tell_apart")
"""Options that say nothing where there are no tasks."""


@dataclass(frozen=True)
class Data:
    """The corpus.

    Attributes:
        data: ``grammar``, sentences drawn from a synchronous grammar whose exact log p(y | x) is
            known; ``pydoc``, the prose of Python's own reference; a corpus of the Hugging Face hub,
            ``multi30k``, ``iwslt14``, ``iwslt17`` or ``wmt14``, texts with their summaries,
            ``gigaword``, ``cnn_dailymail`` or ``scitldr``, or, for a language model,
            ``wikitext-2`` or ``wikitext-103``; or a folder with train.SOURCE and train.TARGET,
            valid.* and test.*, one sentence a line, for a language model train.txt, valid.txt and
            test.txt, .gz accepted.
        task: translation, or language-model (pydoc and wikitext: always; grammar: of its
            English-like side).
        language: Target language of the grammar.
        sentences: Training sentences drawn from the grammar.
        held_out: Sentences of valid and of test drawn from the grammar.
        source: Language translated from, as files or columns are called: en, de, ...
        target: Language translated into.
        block: Tokens of the blocks that a running text is cut into, for a language model; 0 takes
            every line for a sentence alone.
        context: Report perplexity by windows too, each token with so many before it or more; 0:
            by blocks alone.
        unit: What a language model's text is made of: its words, or subwords learned by BPE.
        minimum: A word seen less often in training is unknown to a language model.
        train_name: How a folder's training files are called before the dot.
        valid_name: The same for validation; empty: valid, val or dev.
        test_name: The same for test.
        types: Subwords of a vocabulary, at most, learned from training by BPE.
        joint: One vocabulary for both sides.
        lowercase: Lower-case everything that the model sees and writes.
        tokenised: A translation's text is tokenised: keep its words, and score it as it is.
        max_source: Most subwords of a source, its end counted; the rest is cut off. 0: any.
        references: How a folder's held-out files of references are called behind the dot, several
            on a line with tabs between; empty: the target's own files.
        max_line: Most tokens of a line on either side, its end counted; 0: any. In training a
            longer one is left out, in valid and test it is refused; running text in blocks has any.
        max_length: Longest training sentence in words; 0: any.
        max_ratio: Training pairs whose lengths differ by more than this factor are left out, as
            the papers do with 1.5; 0: any.
        first: Use the first so many training pairs, or lines, only; 0: all.
        hub_path: Another repository of the hub than the known one, or local files.
        hub_config: Its configuration.
        cache: Folder that keeps the encoded corpus for the next start; empty: none.
        tasks: Several directions of translation in one corpus, comma between: de (from the source
            language into it) or en-de, of a domain as bible:de or bible:en-de, a folder in that of
            data. The files of a direction may stand in a folder en-de of their own. Of the
            grammar: en, its languages, its domains news and talk. Empty: source into target alone.
        task_sizes: Training pairs of each task in turn, the first so many; empty: the same for
            all, by first or, for the grammar, by sentences.
        task_temperature: T of the share n^(1/T) that a task of n training pairs has in an epoch: 1
            takes every pair once, 5 is usual and gives small tasks more.
        one_task: Make each batch of one task, not of all.
        tell_apart: What model and guide may tell tasks apart by: language (the encoder by that of
            the source, the decoder by that of the target) or domain.
    """

    data: str = MADE[0]
    task: Literal["translation", "language-model"] = "translation"
    language: str = next(iter(LANGUAGES))
    sentences: int = 20_000
    held_out: int = 500
    block: int = 0
    context: int = 0
    unit: Unit = "word"
    minimum: int = 1
    source: str = "de"
    target: str = "en"
    train_name: str = "train"
    valid_name: str = ""
    test_name: str = "test"
    types: int = 10_000
    joint: bool = True
    lowercase: bool = False
    tokenised: bool = False
    max_source: int = 0
    references: str = ""
    max_line: int = 1024
    max_length: int = 175
    max_ratio: float = 0.0
    first: int = 0
    hub_path: str = ""
    hub_config: str = ""
    cache: str = ""
    tasks: str = ""
    task_sizes: tuple[int, ...] = ()
    task_temperature: float = 1.0
    one_task: bool = False
    tell_apart: Apart = "language"

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise ValueError(
                f"unknown language {self.language!r}: choose from {', '.join(LANGUAGES)}"
            )
        check_least(vars(self), sentences=1, held_out=1, types=1, minimum=1)
        check_least(vars(self), first=0, block=0, max_source=0, max_line=0)
        if self.context < 0 or 0 < self.block <= self.context:
            most = f"lie in 0 ... {self.block - 1}, a block less one" if self.block else "be 0"
            raise ValueError(f"context must {most}, got {self.context}")
        if self.tasks:
            self._check_tasks()
        elif not (self.made or self.running) and self.source == self.target:
            raise ValueError(f"source and target must differ, got {self.source!r} twice")

    def _check_tasks(self) -> None:
        mixture = self.mixture
        assert mixture is not None
        if self.running or self.task != "translation" or self.data == "pydoc":
            raise ValueError("tasks are directions of translation: a language model has none")
        if self.from_hub and any(task.domain for task in mixture.tasks):
            raise ValueError("a domain of a task is a folder: a corpus of the hub has none")
        if self.task_sizes and len(self.task_sizes) != len(mixture.tasks):
            raise ValueError(
                f"task_sizes must be one for each of the {len(mixture.tasks)} tasks, "
                f"got {len(self.task_sizes)}"
            )
        if min(self.task_sizes, default=1) < 1:
            raise ValueError(f"task_sizes must be at least 1, got {min(self.task_sizes)}")

    @property
    def begin(self) -> str:
        """The language that a task is translated from where it names none."""
        return ENGLISH if self.data == "grammar" else self.source

    @property
    def mixture(self) -> Mixture | None:
        """The tasks and how they are mixed; None where there are none."""
        if not self.tasks:
            return None
        tasks = tuple(Task.read(text, self.begin) for text in self.tasks.split(","))
        return Mixture(tasks, self.tell_apart, self.task_temperature, self.one_task)

    @property
    def made(self) -> bool:
        """Whether the program makes the corpus itself."""
        return self.data in MADE

    @property
    def running(self) -> bool:
        """Whether it is text of one language, for a language model."""
        if self.data in ("pydoc", *PROSE):
            return True
        return not self.made and self.task == "language-model"

    @property
    def from_hub(self) -> bool:
        """Whether it is read with ``datasets``."""
        return bool(self.hub_path) or self.data in (*HUB, *PROSE)

    @property
    def several(self) -> bool:
        """Whether a held-out text may have several references."""
        return bool(self.references) or (self.data in HUB and HUB[self.data].several)

    @property
    def folder(self) -> Path:
        """Where the files are, if it is no corpus of the hub and not made."""
        return Path(self.data).expanduser()

    @property
    def name(self) -> str:
        """What the corpus is called."""
        name = os.path.basename(os.path.abspath(self.folder))
        if self.mixture is not None:
            return f"{name} {','.join(self.mixture.names)}"
        return name if self.running else f"{name} {self.source}-{self.target}"

    @property
    def protocol(self) -> Protocol:
        """How the papers count BLEU on it: case counts unless their own text has none."""
        cased = not self.lowercase and (self.data not in HUB or HUB[self.data].cased)
        return "wmt14" if cased else "iwslt14"

    @property
    def words(self) -> bool:
        """Whether its lines are their tokens already."""
        return self.made or self.tokenised


def make_corpus(
    data: Data, tell: Callable[[str], object] | None = None, keep: bool = True
) -> Corpus:
    """Makes the corpus that the options name.

    Args:
        data: The options.
        tell: Called with a line about what was left out of training.
        keep: Whether it may be put into the cache; nothing is written where a run folder says.

    Raises:
        ValueError: Its text is missing or broken; one line that names file and place.
    """
    return replace(_make_parts(data, tell, keep), data=data)


def _make_parts(data: Data, tell: Callable[[str], object] | None, keep: bool) -> Corpus:
    """Makes the corpus of the options, as it was before anybody noted them."""
    if data.mixture is not None and data.data == "grammar":
        sizes = data.task_sizes or [data.sentences] * len(data.mixture.tasks)
        corpus = grammar_tasks(data.mixture, sizes, data.held_out)
        return replace(corpus, name=data.name)
    if data.data == "grammar" and data.task == "language-model":
        return grammar_sources(data.sentences, data.held_out)
    if data.data == "grammar":
        return grammar(data.sentences, data.held_out, data.language)
    if not (data.made or data.from_hub or os.path.isdir(data.folder)):
        known = ", ".join([*MADE, *HUB, *PROSE])
        raise ValueError(f"data must be one of {known}, or a folder; got {data.data!r}")
    if not (data.running or data.from_hub):
        _refuse_running_text(data)
    if not data.cache:
        return _read_corpus(data, tell)
    kept = cached(Path(data.cache).expanduser(), _key(data), lambda: _read_corpus(data, tell), keep)
    return kept if data.mixture is None else kept.mixed(data.mixture)


def _refuse_running_text(data: Data) -> None:
    """Says how a folder of running text is read, where pairs were looked for and are not there."""
    names = [path.name.removesuffix(".gz") for path in data.folder.iterdir()]
    kinds = {name.rpartition(".")[2] for name in names}
    if "txt" in kinds and not data.tasks and not kinds & {data.source, data.target}:
        raise ValueError(
            f"{data.folder} has no text in {data.source} or {data.target}, but running text in "
            ".txt: for a language model add --task language-model"
        )


def _read_corpus(data: Data, tell: Callable[[str], object] | None) -> Corpus:
    """Reads a corpus, with no line that is too long for a batch."""
    make = _prose if data.running else _tasks if data.tasks else _parallel
    corpus = make(data, tell)
    if data.block or not data.max_line:
        return corpus
    return limited(corpus, data.max_line, partial(_where, data, corpus), tell)


def _where(data: Data, corpus: Corpus, part: str, side: Side, place: int) -> str:
    """Says where a sentence of a part stands: a line of a file, or a row of the hub."""
    task = Task(data.source, data.target)
    if data.mixture is not None:
        own = getattr(corpus, part).task
        task = data.mixture.tasks[own[place]]
        place -= int(np.searchsorted(own, own[place]))
    if part == "train" and not data.running:
        place = _place_read(data, task, place)
    if data.from_hub or data.made:
        return f"row {place + 1} of {part} of {data.data}"
    ending = "txt" if data.running else getattr(task, side)
    if side == "target" and part != "train":
        ending = data.references or ending
    return f"{find(_place(data, task), part, ending, _stem(data, part))}, line {place + 1}"


def _place_read(data: Data, task: Task, place: int) -> int:
    """The place, among all training pairs that were read, of one that was kept."""
    read, fault = enumerate(_pairs(data, "train", task)), _cleaning(data).fault
    kept = (number for number, pair in read if fault(*_learned(data, pair)) is None)
    return next(islice(kept, place, None))


def _learned(data: Data, pair: Pair) -> Pair:
    """What is learned from a pair: of several references the first."""
    return (pair[0], pair[1].split("\t")[0]) if data.several else pair


def _cleaning(data: Data) -> Cleaning:
    return Cleaning(data.max_length, data.max_ratio, CHARACTERS * data.max_line)


def _prose(data: Data, tell: Callable[[str], object] | None) -> Corpus:
    train, valid, test = (partial(_lines, data, part) for part in PARTS)
    return prose(
        data.name,
        train,
        valid,
        test,
        data.block,
        data.unit,
        data.types,
        data.minimum,
        data.lowercase,
        tell=tell,
    )


def _lines(data: Data, part: str) -> Iterator[str]:
    """The lines of a part of a running text."""
    first = (data.first or None) if part == "train" else None
    if data.data == "pydoc":
        return islice(map(" ".join, getattr(pydoc.split(), part)), first)
    if data.from_hub:
        lines = load_lines(data.data, part, data.hub_path or None, data.hub_config or None)
    else:
        lines = lines_of(find(data.folder, part, "txt", _stem(data, part)))
    return islice(lines, first)


def _parallel(data: Data, tell: Callable[[str], object] | None) -> Corpus:
    train, valid, test = (_pairs(data, part) for part in PARTS)
    return parallel(
        data.name,
        islice(train, data.first or None),
        valid,
        test,
        data.types,
        data.joint,
        data.lowercase,
        data.tokenised,
        _cleaning(data),
        tell=tell,
        max_source=data.max_source,
        several=data.several,
    )


def _tasks(data: Data, tell: Callable[[str], object] | None) -> Corpus:
    mixture = data.mixture
    assert mixture is not None

    def read(part: str, task: Task) -> Iterator[Pair]:
        sizes = data.task_sizes or [data.first] * len(mixture.tasks)
        first = sizes[mixture.tasks.index(task)] if part == "train" else 0
        return islice(_pairs(data, part, task), first or None)

    return parallel_tasks(
        data.name,
        mixture,
        read,
        data.types,
        data.joint,
        data.lowercase,
        data.tokenised,
        _cleaning(data),
        tell,
    )


def _pairs(data: Data, part: str, task: Task | None = None) -> Iterator[Pair]:
    task = task or Task(data.source, data.target)
    if data.from_hub:
        path, config = data.hub_path or None, data.hub_config or None
        return load_pairs(data.data, part, task.source, task.target, path, config)
    stem = _stem(data, part)
    right = task.target if part == "train" else data.references or task.target
    return iter(read_pairs(_place(data, task), part, task.source, right, stem))


def _place(data: Data, task: Task) -> Path:
    """The folder of a task's files; a direction may have its own."""
    place = data.folder / task.domain
    own = (place / f"{task.source}-{task.target}", place / f"{task.target}-{task.source}")
    return next((folder for folder in own if data.tasks and folder.is_dir()), place)


def _stem(data: Data, part: str) -> str | None:
    return getattr(data, f"{part}_name") or None


def _key(data: Data) -> str:
    """Everything that the corpus depends on: the options, and when its files were written.

    The context is of the evaluation alone, and how tasks are mixed is of training.
    """
    found = [(str(file.resolve()), file.stat()) for file in _files(data)]
    stamps = [(name, state.st_size, state.st_mtime_ns) for name, state in found]
    options = asdict(replace(data, context=0))
    for name in TASK_OPTIONS[2:] if data.tasks else TASK_OPTIONS:
        del options[name]
    return repr((options, stamps))


def _files(data: Data) -> list[Path]:
    """The local files that it is read from, on which a kept one therefore depends."""
    if data.made:
        return [Path(pydoc_data.topics.__file__)]
    if not data.from_hub:
        found = [
            find(folder, part, side, _stem(data, part))
            for part in PARTS
            for folder, sides in _sides(data)
            for side in sides
        ]
        held_out = [part for part in PARTS if part != "train" and data.references]
        more = (find(data.folder, part, data.references, _stem(data, part)) for part in held_out)
        return [*found, *more]
    place = Path(data.hub_path or os.devnull)
    return sorted(file for file in (place, *place.rglob("*")) if file.is_file())


def _sides(data: Data) -> list[tuple[Path, tuple[str, ...]]]:
    """The folders of its files, with what their names end in."""
    if data.running:
        return [(data.folder, ("txt",))]
    tasks = (Task(data.source, data.target),) if data.mixture is None else data.mixture.tasks
    return [(_place(data, task), (task.source, task.target)) for task in tasks]
