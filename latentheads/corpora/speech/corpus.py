"""A corpus of speech: frames of sound, and what is said in it or its translation."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from latentheads.corpora.characters import Characters
from latentheads.corpora.corpus import Corpus, Part, Tell
from latentheads.corpora.length_limits import Side, limited, refuse_long
from latentheads.corpora.multi_task import name_tag
from latentheads.corpora.speech.audio import AudioOptions, AudioReader, check_head
from latentheads.corpora.speech.features import FRAME_SECONDS
from latentheads.corpora.speech.frames import Frames, pack
from latentheads.corpora.speech.table import COLUMNS, NEEDED, Utterance
from latentheads.corpora.speech.vocabulary import Positions
from latentheads.corpora.subwords import Subwords
from latentheads.corpora.tasks import Mixture, Task
from latentheads.corpora.vocabulary import Tagged, Vocabulary
from latentheads.layers.subsampler import subsampled_length
from latentheads.packages import MissingPackageError

__all__ = ["FEWEST_FRAMES", "speech"]

FEWEST_FRAMES = 5
"""Fewest frames of a training utterance: those of a window of the subsampler."""

HELD_OUT = ("valid", "test")

LISTED = 6
"""Kinds of utterances that an error names at most."""


def speech(
    name: str,
    train: Iterable[Utterance],
    valid: Iterable[Utterance],
    test: Iterable[Utterance],
    audio_options: AudioOptions,
    types: int = 0,
    lowercase: bool = False,
    max_line: int = 0,
    tell: Tell | None = None,
    mixture: Mixture | None = None,
    sizes: Sequence[int] = (),
) -> Corpus:
    """Makes a corpus from files of sound and their texts.

    Utterances that are silent, very short, too long, broken or without text are left out of
    training, and counted. In valid and test none is left out: silence and an empty text are taken,
    and anything else of these is refused before the files of training are read, which may take
    hours.

    Args:
        name: What the corpus is called.
        train: What is learned from.
        valid: What is watched.
        test: What is reported.
        audio_options: How files are read.
        types: Subwords of the text, at most; 0: it is written character by character.
        lowercase: Whether the model writes lower case alone.
        max_line: Most tokens of a text and most positions of an utterance; 0: any.
        tell: Called with a line about what was left out of training.
        mixture: The tasks; an utterance that is of none is left out of every part. None: there are
            none.
        sizes: How many of the first training utterances of each task are used; 0: all.

    Raises:
        ValueError: A part, or a task in it, has no utterance or no word, an utterance of valid or
            test cannot be used, or there are too few types.
    """
    if types:  # too few are refused before anything is listened to
        Subwords.train((), types)
    choose, learned = _Chooser(mixture), _Training(audio_options)
    held_out = {"valid": choose.every(valid), "test": choose.every(test)}
    texts = _gather(name, choose, {"train": choose.first(train, sizes), **held_out})

    def where(part: str, side: Side, place: int) -> str:
        return texts[part][place].where

    frames = _hear_held_out(texts, audio_options)
    for part in HELD_OUT if max_line else ():
        lengths = _known_lengths(texts[part], frames[part], types, lowercase)
        refuse_long(part, lengths, max_line, where)
    heard = learned.keep(texts["train"])
    frames["train"] = pack(heard, audio_options.filterbank.bins, audio_options.folder)
    texts["train"] = learned.kept
    if not learned.kept:
        raise ValueError(f"{name} has nothing to train on: {learned.counts()}")
    if tell is not None:
        tell(learned.counts())
    choose.check(name, "train", learned.kept)
    target = _learn(texts["train"], types, lowercase, () if mixture is None else mixture.tags)
    source = Positions(audio_options.filterbank)
    first, second, third = (
        choose.tell(_encode(texts[part], frames[part], target, source), texts[part], target)
        for part in texts
    )
    corpus = Corpus(name, replace(first, references=()), second, third, target, source)
    return limited(corpus, max_line, where, tell) if max_line else corpus


class _Chooser:
    """Which task each utterance is of.

    Args:
        mixture: The tasks; None: there are none.
    """

    def __init__(self, mixture: Mixture | None) -> None:
        self.mixture = mixture
        self._places: dict[tuple[str, str, str], int | None] = {}

    def place(self, each: Utterance) -> int | None:
        """The place of an utterance's task, 0 without tasks; None where no task fits."""
        if self.mixture is None:
            return 0
        speaks = self.mixture.apart == "speaker"
        key = each.source, each.target, each.speaker if speaks else each.domain
        if key not in self._places:
            fits = (place for place, task in enumerate(self.mixture.tasks) if _fits(task, *key))
            self._places[key] = next(fits, None)
        return self._places[key]

    def every(self, utterances: Iterable[Utterance]) -> Iterator[Utterance]:
        """The utterances that are of a task."""
        return (each for each in utterances if self.place(each) is not None)

    def first(self, utterances: Iterable[Utterance], sizes: Sequence[int]) -> Iterator[Utterance]:
        """The first utterances of each task, at most its size."""
        left = [size or sys.maxsize for size in sizes]
        for each in self.every(utterances):
            if left and (place := self.place(each)) is not None:
                left[place] -= 1
                if left[place] < 0:
                    continue
            yield each

    def check(self, name: str, part: str, utterances: Sequence[Utterance]) -> None:
        """Refuses a part in which a task has no utterance, or no word."""
        names = [""] if self.mixture is None else [f" of {task}" for task in self.mixture.names]
        present = {self.place(each) for each in utterances}
        written = {self.place(each) for each in utterances if each.text}
        for place, task in enumerate(names):
            if place not in present:
                raise ValueError(f"{name} has no utterance in {part}{task}: {self.say_labels()}")
            if place not in written:
                raise ValueError(f"{name} has no word in the texts of {part}{task}")

    def say_labels(self) -> str:
        """The speakers, domains and languages that the tables name, for a message."""
        labels = [
            ":".join(filter(None, (who, "-".join(filter(None, (source, target))))))
            for source, target, who in self._places
        ]
        if not any(labels):
            return f"the tables say nothing in columns {', '.join(COLUMNS[len(NEEDED) :])}"
        more = ", ..." if len(labels) > LISTED else ""
        return f"the tables have {', '.join(filter(None, labels[:LISTED]))}{more}"

    def tell(self, part: Part, utterances: Sequence[Utterance], target: Vocabulary) -> Part:
        """The part with the task of each utterance, and its tag where there are several."""
        if self.mixture is None:
            return part
        tasks = np.array([self.place(each) for each in utterances], np.int32)
        tags = None
        if isinstance(target, Tagged):
            names = [target.tag(name_tag(task.target)) for task in self.mixture.tasks]
            tags = np.array(names, np.int32)[tasks]
        return replace(part, task=tasks, mixture=self.mixture, tags=tags)


def _fits(task: Task, source: str, target: str, domain: str) -> bool:
    """Whether an utterance is of a task; a language missing in the table matches any."""
    languages = source in ("", task.source) and target in ("", task.target)
    return languages and task.domain in ("", domain)


class _Training:
    """Keeps what can be trained on, and counts what is left out.

    Args:
        audio_options: How files are read.

    Attributes:
        kept: The utterances that are trained on.
    """

    def __init__(self, audio_options: AudioOptions) -> None:
        self.kept: list[Utterance] = []
        self._ear = AudioReader(audio_options)
        self._frames = 0
        self._faults: defaultdict[str, list[str]] = defaultdict(list)

    def keep(self, utterances: Iterable[Utterance]) -> Iterator[NDArray[np.float16]]:
        """The frames of those that are kept."""
        for each in utterances:
            try:
                if not each.text:
                    raise ValueError("it has no text")
                found = self._ear.load_features(each.audio, FEWEST_FRAMES, silence=False)
            except MissingPackageError:  # no fault of the file
                raise
            except ValueError as reason:
                self._faults[_name_fault(str(reason))].append(f"{each.where}: {reason}")
                continue
            self.kept.append(each)
            self._frames += len(found)
            yield found

    def counts(self) -> str:
        """A line of how many were kept and left out, with the place of the first of each kind."""
        minutes = self._frames * FRAME_SECONDS / 60
        line = f"{len(self.kept):,} training utterances, {minutes:,.1f} min of speech"
        left = sum(map(len, self._faults.values()))
        if not left:
            return line
        kinds = (f"{len(each):,} {kind} ({each[0]})" for kind, each in self._faults.items())
        return f"{line}; {left:,} left out: {', '.join(kinds)}"


FAULTS = {
    "no text": "without text",
    "silent": "silent",
    "more than max_seconds": "too long",
    "less than": "too short",
    "sampling rate": "of an unfit sampling rate",
}
"""Kinds of utterances that are left out, by their fault."""


def _name_fault(reason: str) -> str:
    return next((kind for said, kind in FAULTS.items() if said in reason), "unreadable")


def _gather(
    name: str, choose: _Chooser, parts: Mapping[str, Iterable[Utterance]]
) -> dict[str, list[Utterance]]:
    """Reads the tables of all parts; one that lacks something is refused before a file is heard."""
    texts = {part: [*utterances] for part, utterances in parts.items()}
    if not texts["train"]:
        raise ValueError(f"{name} has nothing to train on: {choose.say_labels()}")
    for part, utterances in texts.items():
        choose.check(name, part, utterances)
    if choose.mixture is None:
        _refuse_translations(name, chain(*texts.values()))
    return texts


def _refuse_translations(name: str, utterances: Iterable[Utterance]) -> None:
    """Refuses texts in several languages of one that is spoken, where no task says which."""
    written = defaultdict[str, set[str]](set)
    for each in utterances:
        if each.source and each.target:
            written[each.source].add(each.target)
    for source, targets in written.items():
        if len(targets) > 1:
            raise ValueError(
                f"{name} has texts in {', '.join(sorted(targets))} of what is said in {source}: "
                "choose by tasks"
            )


def _hear_held_out(
    texts: Mapping[str, Sequence[Utterance]], audio_options: AudioOptions
) -> dict[str, Frames]:
    """The frames of valid and test, of which nothing is left out; heads of files are read first."""
    for part in HELD_OUT:
        for each in texts[part]:
            with _nothing_left_out(each):
                check_head(each.audio, audio_options)
    return {part: _hear_all(texts[part], audio_options) for part in HELD_OUT}


def _hear_all(utterances: Sequence[Utterance], audio_options: AudioOptions) -> Frames:
    ear = AudioReader(audio_options)
    heard = (_hear_one(each, ear) for each in utterances)
    return pack(heard, audio_options.filterbank.bins, audio_options.folder)


def _hear_one(each: Utterance, ear: AudioReader) -> NDArray[np.float16]:
    with _nothing_left_out(each):
        return ear.load_features(each.audio)


@contextmanager
def _nothing_left_out(each: Utterance) -> Iterator[None]:
    """Names the utterance of valid or test that cannot be used."""
    try:
        yield
    except MissingPackageError:
        raise
    except ValueError as reason:
        raise ValueError(f"{each.where}: {reason}; nothing of valid and test is left out") from None


def _known_lengths(
    utterances: Sequence[Utterance], frames: Frames, types: int, lowercase: bool
) -> NDArray[np.int64]:
    """Tokens of both sides before anything is learned; those of subwords are not known then."""
    positions = subsampled_length(frames.lengths)
    if types:
        return np.stack([positions, np.zeros_like(positions)])
    lines = [each.text for each in utterances]
    return np.stack([positions, Characters.count(lines, lowercase).encode_all(lines).lengths])


def _learn(
    texts: Sequence[Utterance], types: int, lowercase: bool, languages: Sequence[str]
) -> Vocabulary:
    """The vocabulary of what is written, with a tag for each of several languages."""
    lines = (each.text for each in texts)
    found = Subwords.train(lines, types, lowercase) if types else Characters.count(lines, lowercase)
    return Tagged(found, [*map(name_tag, languages)]) if languages else found


def _encode(
    texts: Sequence[Utterance], frames: Frames, target: Vocabulary, source: Positions
) -> Part:
    lines = [each.text for each in texts]
    return Part(target.encode_all(lines), source.rows(frames), lines, frames=frames)
