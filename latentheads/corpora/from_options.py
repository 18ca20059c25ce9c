"""Makes the corpus that its options name: of the library's own text, of the hub, of a folder."""

from __future__ import annotations

import hashlib
import os
import pydoc_data.topics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from latentheads.corpora import pydoc
from latentheads.corpora.cache import cached, is_cache_file
from latentheads.corpora.cleaning import Cleaning
from latentheads.corpora.corpus import Corpus, Log
from latentheads.corpora.data import MADE, SPEECH_OPTIONS, TASK_OPTIONS, Data
from latentheads.corpora.from_grammar import sample_pairs, sample_tasks, sample_text_corpus
from latentheads.corpora.hub import HUB, PROSE, load_lines, load_pairs
from latentheads.corpora.length_limits import Side, limit_lengths
from latentheads.corpora.multi_task import parallel_tasks
from latentheads.corpora.parallel import PairOptions, parallel, split_references
from latentheads.corpora.running_text import text_corpus
from latentheads.corpora.speech.corpus import speech
from latentheads.corpora.speech.table import find_utterances, read_utterances, text_files
from latentheads.corpora.tasks import Task
from latentheads.corpora.text import PARTS, SentencePair, find_file, iterate_lines, read_pairs

__all__ = ["CHARACTERS", "make_corpus"]

CHARACTERS = 32
"""Characters of a word for each token that a line may have, more than text has. A line with such a
word is left out before subwords are learned: every merge reads the whole of a word."""


def make_corpus(data: Data, tell: Log | None = None, keep: bool = True) -> Corpus:
    """Makes the corpus that the options name, which it remembers.

    Args:
        data: The options.
        tell: Called with a line about what was left out of training, and with one about held-out
            sentences that stand in training too, where there are any.
        keep: Whether it may be put into the cache; nothing is written where a run folder says.

    Raises:
        ValueError: Its text is missing or broken; one line that names file and place. Or windows
            are asked for where there are no blocks.
    """
    if data.context and not data.block:
        raise ValueError(f"context must be 0 without a block, got {data.context}")
    corpus = replace(_make_corpus(data, tell, keep), data=data)
    if tell is not None and any(corpus.overlap):
        unit = "texts" if data.is_speech else corpus.valid.unit
        tell(
            f"{corpus.overlap.valid:,} of {len(corpus.valid):,} {unit} of valid and "
            f"{corpus.overlap.test:,} of {len(corpus.test):,} of test stand in training too"
        )
    return corpus


def _make_corpus(data: Data, tell: Log | None, keep: bool) -> Corpus:
    if data.mixture is not None and data.data == "grammar":
        sizes = data.task_sizes or [data.sentences] * len(data.mixture.tasks)
        corpus = sample_tasks(data.mixture, sizes, data.held_out)
        return replace(corpus, name=data.name)
    if data.data == "grammar" and data.task == "language-model":
        return sample_text_corpus(data.sentences, data.held_out)
    if data.data == "grammar":
        return sample_pairs(data.sentences, data.held_out, data.language)
    if not (data.made or data.from_hub or os.path.isdir(data.folder)):
        if data.data.startswith((os.sep, os.curdir)):  # a path, and no misspelt name
            raise ValueError(f"data must be a folder that there is, got {data.data!r}")
        known = "" if data.is_speech else f"one of {', '.join([*MADE, *HUB, *PROSE])}, or "
        raise ValueError(f"data must be {known}a folder; got {data.data!r}")
    if not (data.running or data.from_hub or data.is_speech):
        _check_is_parallel(data)
    if not data.cache:
        return _read_corpus(data, tell)
    place = Path(data.cache).expanduser()
    room = place if keep else None
    kept = cached(place, _key(data), lambda: _read_corpus(data, tell, room), keep)
    return kept if data.mixture is None else kept.with_mixture(data.mixture)


def _check_is_parallel(data: Data) -> None:
    """Says how running text, or speech, is read, where pairs were looked for and are not there."""
    names = [path.name.removesuffix(".gz") for path in data.folder.iterdir()]
    kinds = {name.rpartition(".")[2] for name in names}
    if data.tasks or kinds & {data.source, data.target}:
        return
    if "tsv" in kinds:
        raise ValueError(
            f"{data.folder} has no text in {data.source} or {data.target}, but tables in .tsv: for "
            "speech take task recognition, or speech-translation"
        )
    if "txt" in kinds:
        raise ValueError(
            f"{data.folder} has no text in {data.source} or {data.target}, but running text in "
            ".txt: for a language model take task language-model"
        )


def _read_corpus(data: Data, tell: Log | None, room: Path | None = None) -> Corpus:
    """Reads a corpus, with no line that is too long for a batch.

    Args:
        data: The options.
        tell: As for `make_corpus`.
        room: Where frames of speech may wait for the cache; None: where the system puts such files.
    """
    if data.is_speech:
        return _speech(data, tell, room)
    make = _prose if data.running else _tasks if data.tasks else _parallel
    corpus = make(data, tell)
    if data.block or not data.max_line:
        return corpus
    return limit_lengths(corpus, data.max_line, partial(_where, data, corpus), tell)


def _speech(data: Data, tell: Log | None, room: Path | None) -> Corpus:
    parts = (read_utterances(_source_of(data, part)) for part in PARTS)
    train, valid, test = parts
    mixture = data.mixture
    sizes = data.task_sizes or (data.first,) * (0 if mixture is None else len(mixture.tasks))
    return speech(
        data.name,
        train if mixture is not None else islice(train, data.first or None),
        valid,
        test,
        replace(data.audio_options, folder=room),
        types=data.types,
        lowercase=data.lowercase,
        max_line=data.max_line,
        log=tell,
        mixture=mixture,
        sizes=sizes,
    )


def _source_of(data: Data, part: str) -> Path:
    """The table of a part of speech, or its folder."""
    return find_utterances(data.folder, part, getattr(data, f"{part}_name", "") or None)


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
    return f"{find_file(_place(data, task), part, ending, _stem(data, part))}, line {place + 1}"


def _place_read(data: Data, task: Task, place: int) -> int:
    """The place, among all training pairs that were read, of one that was kept."""
    read, fault = (
        enumerate(_pairs(data, "train", task)),
        _pair_options(data).cleaning.rejection_reason,
    )
    kept = (number for number, pair in read if fault(*_learned(data, pair)) is None)
    return next(islice(kept, place, None))


def _learned(data: Data, pair: SentencePair) -> SentencePair:
    """The text of a pair that is learned from: of a list of targets the first."""
    return (pair[0], split_references(pair[1])[0]) if data.lists_targets else pair


def _pair_options(data: Data) -> PairOptions:
    return PairOptions(
        types=data.types,
        joint=data.joint,
        lowercase=data.lowercase,
        tokenised=data.tokenised,
        cleaning=Cleaning(data.max_length, data.max_ratio, CHARACTERS * data.max_line),
    )


def _prose(data: Data, tell: Log | None) -> Corpus:
    train, valid, test = (partial(_lines, data, part) for part in PARTS)
    return text_corpus(
        data.name,
        train,
        valid,
        test,
        block=data.block,
        unit=data.unit,
        types=data.types,
        minimum=data.minimum,
        lowercase=data.lowercase,
        log=tell,
    )


def _lines(data: Data, part: str) -> Iterator[str]:
    """The lines of a part of a running text."""
    first = (data.first or None) if part == "train" else None
    if data.data == "pydoc":
        return islice(map(" ".join, getattr(pydoc.split(), part)), first)
    if data.from_hub:
        lines = load_lines(data.data, part, data.hub_path or None, data.hub_config or None)
    else:
        lines = iterate_lines(find_file(data.folder, part, "txt", _stem(data, part)))
    return islice(lines, first)


def _parallel(data: Data, tell: Log | None) -> Corpus:
    train, valid, test = (_pairs(data, part) for part in PARTS)
    return parallel(
        data.name,
        (_learned(data, pair) for pair in islice(train, data.first or None)),
        valid,
        test,
        _pair_options(data),
        tell,
        max_source=data.max_source,
        multiple_references=data.several,
    )


def _tasks(data: Data, tell: Log | None) -> Corpus:
    mixture = data.mixture
    assert mixture is not None

    def read(part: str, task: Task) -> Iterator[SentencePair]:
        sizes = data.task_sizes or [data.first] * len(mixture.tasks)
        first = sizes[mixture.tasks.index(task)] if part == "train" else 0
        return islice(_pairs(data, part, task), first or None)

    return parallel_tasks(data.name, mixture, read, _pair_options(data), tell)


def _pairs(data: Data, part: str, task: Task | None = None) -> Iterator[SentencePair]:
    task = task or Task(data.source, data.target)
    if data.from_hub:
        path, config = data.hub_path or None, data.hub_config or None
        return load_pairs(data.data, part, task.source, task.target, path, config)
    stem = _stem(data, part)
    right = _ending(data, part, task)
    return iter(read_pairs(_place(data, task), part, task.source, right, stem))


def _ending(data: Data, part: str, task: Task) -> str:
    """What the name of a part's file of targets ends in; a held-out one may hold references."""
    return task.target if part == "train" else data.references or task.target


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
    unsaid: tuple[str, ...] = TASK_OPTIONS[2:] if data.tasks else TASK_OPTIONS
    if (
        data.tasks and data.is_speech
    ):  # who speaks, or about what, says which utterances are a task's
        unsaid = tuple(name for name in unsaid if name != "tell_apart")
    for name in (*unsaid, *(() if data.is_speech else SPEECH_OPTIONS)):
        del options[name]
    return repr((options, _digest_stamps(stamps) if data.is_speech else stamps))


def _digest_stamps(stamps: Sequence[tuple[str, int, int]]) -> str:
    """The state of many files in a few letters."""
    return hashlib.sha256(repr(stamps).encode()).hexdigest()


def _files(data: Data) -> list[Path]:
    """The local files that it is read from, on which a kept one therefore depends."""
    if data.is_speech:
        places = [_source_of(data, part) for part in PARTS]
        audio = [each.audio for place in places for each in read_utterances(place)]
        return [*(text for place in places for text in text_files(place)), *audio]
    if data.made:
        return [Path(pydoc_data.topics.__file__)]
    if not data.from_hub:
        return [
            find_file(folder, part, side, _stem(data, part))
            for part in PARTS
            for folder, sides in _sides(data, part)
            for side in sides
        ]
    place = Path(data.hub_path or os.devnull)
    files = (file for file in (place, *place.rglob("*")) if file.is_file())
    return sorted(file for file in files if not is_cache_file(data.cache, file))


def _sides(data: Data, part: str) -> list[tuple[Path, tuple[str, ...]]]:
    """The folders of the files of a part, with what their names end in."""
    if data.running:
        return [(data.folder, ("txt",))]
    tasks = (Task(data.source, data.target),) if data.mixture is None else data.mixture.tasks
    return [(_place(data, task), (task.source, _ending(data, part, task))) for task in tasks]
