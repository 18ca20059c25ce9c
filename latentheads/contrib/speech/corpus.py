"""A speech corpus: filterbank frames, and their transcripts or translations."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from latentheads.console import show_progress
from latentheads.contrib.speech.audio import AudioOptions, AudioReader, validate_header
from latentheads.contrib.speech.features import FRAME_SECONDS
from latentheads.contrib.speech.frames import pack_frames
from latentheads.contrib.speech.subsampler import subsampled_length
from latentheads.contrib.speech.table import COLUMNS, REQUIRED_COLUMNS, Utterance
from latentheads.contrib.speech.vocabulary import Positions
from latentheads.corpora.characters import Characters
from latentheads.corpora.corpus import Corpus
from latentheads.corpora.frames import Frames
from latentheads.corpora.length_limits import Side, validate_lengths
from latentheads.corpora.part import Log, Part
from latentheads.corpora.processor import Processor
from latentheads.corpora.subwords import Subwords
from latentheads.corpora.tasks import Mixture, Task
from latentheads.corpora.vocabulary import Tagged, Vocabulary, language_tag, tag_of
from latentheads.packages import MissingPackageError

MIN_FRAMES = 5
"""Minimum number of frames of a training utterance: a window of the subsampler."""

HELD_OUT = ("valid", "test")

LISTED = 6
"""Maximum number of labels that an error lists."""


def speech(
    name: str,
    train: Iterable[Utterance],
    valid: Iterable[Utterance],
    test: Iterable[Utterance],
    audio_options: AudioOptions,
    vocab_size: int = 0,
    lowercase: bool = False,
    max_line: int = 0,
    log: Log | None = None,
    mixture: Mixture | None = None,
    sizes: Sequence[int] = (),
) -> Corpus:
    """Makes a corpus from audio files and their texts.

    Training utterances that are silent, very short, too long, broken or without text are dropped
    and counted. In valid and test none is dropped: silence and an empty text are accepted, any
    other fault raises an error. This happens before the training files are read, which may take
    hours.

    Args:
        name: Name of the corpus.
        train: Utterances for training.
        valid: Utterances for validation.
        test: Utterances for test.
        audio_options: How audio files are read.
        vocab_size: Maximum size of the subword vocabulary of the text; 0: characters.
        lowercase: Whether to lower-case the text.
        max_line: Maximum number of tokens of a text and of positions of an utterance; 0: no limit.
        log: Called with a line about what is dropped from training.
        mixture: The tasks; utterances of no task are dropped from every part. None: no tasks.
        sizes: Number of training utterances used for each task, the first ones; 0: all.

    Raises:
        ValueError: A part, or a task in it, has no utterance or no word; an utterance of valid or
            test cannot be used; or ``vocab_size`` is too small.
    """
    if vocab_size:  # raises an error before any audio is read if vocab_size is too small
        Subwords.train((), vocab_size)
    assigner, train_filter = _TaskAssigner(mixture), _TrainingFilter(audio_options)
    held_out = {"valid": assigner.with_task(valid), "test": assigner.with_task(test)}
    texts = _read_tables(name, assigner, {"train": assigner.take_first(train, sizes), **held_out})

    def locate(part: str, side: Side, index: int) -> str:
        return texts[part][index].location

    frames = _load_held_out(texts, audio_options)
    for part in HELD_OUT if max_line else ():
        lengths = _count_lengths(texts[part], frames[part], vocab_size, lowercase)
        validate_lengths(part, lengths, max_line, locate)
    utterances: Iterable[Utterance] = texts["train"]
    if log is not None:
        utterances = show_progress(utterances, "reading audio", "file")
    train_frames = train_filter.iterate_frames(utterances)
    frames["train"] = pack_frames(train_frames, audio_options.filterbank.bins, audio_options.folder)
    texts["train"] = train_filter.utterances
    if not train_filter.utterances:
        raise ValueError(f"{name} has nothing to train on: {train_filter.summary()}")
    if log is not None:
        log(train_filter.summary())
        if assigner.left_out:
            log(f"{assigner.left_out:,} utterances of all parts are of no task: left out")
    assigner.check(name, "train", train_filter.utterances)
    target = _learn_vocabulary(
        texts["train"], vocab_size, lowercase, () if mixture is None else mixture.tags
    )
    source = Positions(audio_options.filterbank)
    train_part, valid_part, test_part = (
        assigner.add_tasks(_encode(texts[part], frames[part], target, source), texts[part], target)
        for part in texts
    )
    recognises = mixture is None or all(task.source == task.target for task in mixture.tasks)
    processor = Processor(
        target,
        source,
        mixture=mixture,
        default_source=None if recognises else "",
        max_seconds=audio_options.max_seconds,
    )
    train_part = replace(train_part, references=())
    corpus = Corpus(name, train_part, valid_part, test_part, processor)
    return corpus.without_long_lines(max_line, locate, log)


class _TaskAssigner:
    """Assigns utterances to tasks."""

    def __init__(self, mixture: Mixture | None) -> None:
        self.mixture = mixture
        self._task_indices: dict[tuple[str, str, str], int | None] = {}
        self.left_out = 0

    def task_index(self, utterance: Utterance) -> int | None:
        """The index of an utterance's task, 0 without tasks; None if no task matches."""
        if self.mixture is None:
            return 0
        by_speaker = self.mixture.task_key == "speaker"
        key = (
            utterance.source,
            utterance.target,
            utterance.speaker if by_speaker else utterance.domain,
        )
        if key not in self._task_indices:
            matching = (
                index for index, task in enumerate(self.mixture.tasks) if _matches(task, *key)
            )
            self._task_indices[key] = next(matching, None)
        return self._task_indices[key]

    def with_task(self, utterances: Iterable[Utterance]) -> Iterator[Utterance]:
        """The utterances that belong to a task; the others are counted."""
        for utterance in utterances:
            if self.task_index(utterance) is None:
                self.left_out += 1
            else:
                yield utterance

    def take_first(
        self, utterances: Iterable[Utterance], sizes: Sequence[int]
    ) -> Iterator[Utterance]:
        """The first utterances of each task, at most ``sizes`` of them; 0: all."""
        remaining = [size or sys.maxsize for size in sizes]
        for utterance in self.with_task(utterances):
            if remaining and (task := self.task_index(utterance)) is not None:
                remaining[task] -= 1
                if remaining[task] < 0:
                    continue
            yield utterance

    def check(self, name: str, part: str, utterances: Sequence[Utterance]) -> None:
        """Raises an error if a task has no utterance, or no word, in a part."""
        names = [""] if self.mixture is None else [f" of {task}" for task in self.mixture.names]
        with_utterance = {self.task_index(utterance) for utterance in utterances}
        with_text = {self.task_index(utterance) for utterance in utterances if utterance.text}
        for index, task in enumerate(names):
            if index not in with_utterance:
                raise ValueError(
                    f"{name} has no utterance in {part}{task}: {self.describe_labels()}"
                )
            if index not in with_text:
                raise ValueError(f"{name} has no word in the texts of {part}{task}")

    def describe_labels(self) -> str:
        """The speakers, domains and languages in the tables, for an error message."""
        labels = [
            ":".join(filter(None, (speaker, "-".join(filter(None, (source, target))))))
            for source, target, speaker in self._task_indices
        ]
        if not any(labels):
            return (
                f"the tables say nothing in columns {', '.join(COLUMNS[len(REQUIRED_COLUMNS) :])}"
            )
        suffix = ", ..." if len(labels) > LISTED else ""
        return f"the tables have {', '.join(filter(None, labels[:LISTED]))}{suffix}"

    def add_tasks(self, part: Part, utterances: Sequence[Utterance], target: Vocabulary) -> Part:
        """Adds to a part the task of each utterance, and its language tag if there are several."""
        if self.mixture is None:
            return part
        tasks = np.array([self.task_index(utterance) for utterance in utterances], np.int32)
        tags = None
        if isinstance(target, Tagged):
            tag_ids = [tag_of(target, task.target) for task in self.mixture.tasks]
            tags = np.array(tag_ids, np.int32)[tasks]
        return replace(part, task=tasks, mixture=self.mixture, tags=tags)


def _matches(task: Task, source: str, target: str, domain: str) -> bool:
    """Whether an utterance belongs to a task; a language missing in the table matches any."""
    languages = source in ("", task.source) and target in ("", task.target)
    return languages and task.domain in ("", domain)


class _TrainingFilter:
    """Drops and counts training utterances that cannot be used.

    Attributes:
        utterances: The utterances that are kept.
    """

    def __init__(self, audio_options: AudioOptions) -> None:
        self.utterances: list[Utterance] = []
        self._reader = AudioReader(audio_options)
        self._frames = 0
        self._rejected: defaultdict[str, list[str]] = defaultdict(list)

    def iterate_frames(self, utterances: Iterable[Utterance]) -> Iterator[NDArray[np.float16]]:
        """Yields the frames of the utterances that are kept."""
        for utterance in utterances:
            try:
                if not utterance.text:
                    raise ValueError("it has no text")
                frames = self._reader.load_features(
                    utterance.audio, MIN_FRAMES, allow_silence=False
                )
            except MissingPackageError:  # not a fault of the file
                raise
            except ValueError as error:
                self._rejected[_fault_category(str(error))].append(f"{utterance.location}: {error}")
                continue
            self.utterances.append(utterance)
            self._frames += len(frames)
            yield frames

    def summary(self) -> str:
        """One line: how many utterances are kept and dropped, with the first location by reason."""
        minutes = self._frames * FRAME_SECONDS / 60
        line = f"{len(self.utterances):,} training utterances, {minutes:,.1f} min of speech"
        num_rejected = sum(map(len, self._rejected.values()))
        if not num_rejected:
            return line
        categories = (
            f"{len(locations):,} {category} ({locations[0]})"
            for category, locations in self._rejected.items()
        )
        return f"{line}; {num_rejected:,} left out: {', '.join(categories)}"


FAULT_CATEGORIES = {
    "no text": "without text",
    "silent": "silent",
    "more than max_seconds": "too long",
    "less than": "too short",
    "sampling rate": "of an unfit sampling rate",
}
"""Names of the reasons for dropping an utterance, by a phrase of the error message."""


def _fault_category(reason: str) -> str:
    return next(
        (category for phrase, category in FAULT_CATEGORIES.items() if phrase in reason),
        "unreadable",
    )


def _read_tables(
    name: str, assigner: _TaskAssigner, parts: Mapping[str, Iterable[Utterance]]
) -> dict[str, list[Utterance]]:
    """Reads and validates the tables of all parts, before any audio file is read."""
    texts = {part: [*utterances] for part, utterances in parts.items()}
    if not texts["train"]:
        raise ValueError(f"{name} has nothing to train on: {assigner.describe_labels()}")
    for part, utterances in texts.items():
        assigner.check(name, part, utterances)
    if assigner.mixture is None:
        _check_one_target_language(name, chain(*texts.values()))
    return texts


def _check_one_target_language(name: str, utterances: Iterable[Utterance]) -> None:
    """Without tasks, raises an error if a spoken language has texts in several languages."""
    targets_of = defaultdict[str, set[str]](set)
    for utterance in utterances:
        if utterance.source and utterance.target:
            targets_of[utterance.source].add(utterance.target)
    for source, targets in targets_of.items():
        if len(targets) > 1:
            raise ValueError(
                f"{name} has texts in {', '.join(sorted(targets))} of what is said in {source}: "
                "choose by tasks"
            )


def _load_held_out(
    texts: Mapping[str, Sequence[Utterance]], audio_options: AudioOptions
) -> dict[str, Frames]:
    """Loads the frames of valid and test; the headers of all files are validated first."""
    for part in HELD_OUT:
        for utterance in texts[part]:
            with _name_utterance_on_error(utterance):
                validate_header(utterance.audio, audio_options)
    reader = AudioReader(audio_options)

    def load(utterance: Utterance) -> NDArray[np.float16]:
        with _name_utterance_on_error(utterance):
            return reader.load_features(utterance.audio)

    bins, folder = audio_options.filterbank.bins, audio_options.folder
    return {part: pack_frames(map(load, texts[part]), bins, folder) for part in HELD_OUT}


@contextmanager
def _name_utterance_on_error(utterance: Utterance) -> Iterator[None]:
    """Adds the location of a valid or test utterance to an error."""
    try:
        yield
    except MissingPackageError:
        raise
    except ValueError as error:
        raise ValueError(
            f"{utterance.location}: {error}; nothing of valid and test is left out"
        ) from None


def _count_lengths(
    utterances: Sequence[Utterance], frames: Frames, vocab_size: int, lowercase: bool
) -> NDArray[np.int64]:
    """Number of tokens of both sides before subwords are learned; 0 for subwords."""
    positions = subsampled_length(frames.lengths)
    if vocab_size:
        return np.stack([positions, np.zeros_like(positions)])
    lines = [utterance.text for utterance in utterances]
    return np.stack([positions, Characters.count(lines, lowercase).encode_all(lines).lengths])


def _learn_vocabulary(
    texts: Sequence[Utterance], vocab_size: int, lowercase: bool, languages: Sequence[str]
) -> Vocabulary:
    """Learns the vocabulary of the text, with a tag for each of several languages."""
    lines = (utterance.text for utterance in texts)
    vocabulary = (
        Subwords.train(lines, vocab_size, lowercase)
        if vocab_size
        else Characters.count(lines, lowercase)
    )
    return Tagged(vocabulary, [*map(language_tag, languages)]) if languages else vocabulary


def _encode(
    texts: Sequence[Utterance], frames: Frames, target: Vocabulary, source: Positions
) -> Part:
    lines = [utterance.text for utterance in texts]
    return Part(target.encode_all(lines), source.rows(frames), lines, frames=frames)
