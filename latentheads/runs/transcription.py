"""Transcripts of files of sound by a run of speech, and the time of each word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from latentheads.analysis.alignments import alignment_distributions
from latentheads.batch import Batch
from latentheads.corpora import Part
from latentheads.corpora.multi_task import tag_of
from latentheads.corpora.speech.audio import load_features_for_run
from latentheads.corpora.speech.features import FRAME_SECONDS
from latentheads.corpora.speech.frames import pack_frames
from latentheads.corpora.speech.vocabulary import Positions
from latentheads.corpora.vocabulary import Tagged
from latentheads.decoding.translate import Decoding, Lose
from latentheads.errors import UnfinishedError, in_a_line
from latentheads.layers.subsampler import FACTOR
from latentheads.runs.generation import Encoded
from latentheads.values import shown

if TYPE_CHECKING:
    from latentheads.runs.run import Run

__all__ = [
    "AudioInput",
    "TimedWord",
    "check_is_speech",
    "load_audio_files",
    "time_words",
    "transcribe_audio",
]


@dataclass(frozen=True)
class AudioInput(Encoded):
    """Files of sound as a part of a corpus, without targets of their own.

    Attributes:
        files: All files.
    """

    files: Sequence[str | Path]


@dataclass(frozen=True)
class TimedWord:
    """A word and when it is heard.

    Attributes:
        word: The word.
        seconds: Where the first position lies that one of its tokens points at.
    """

    word: str
    seconds: float


def check_is_speech(run: Run) -> Positions:
    """The source of a run of speech.

    Raises:
        ValueError: It is a run of text.
    """
    if run.source is None:
        raise ValueError(f"{run.path} is a language model: it hears nothing")
    if not isinstance(run.source, Positions):
        raise ValueError(f"{run.path} reads text: use translate")
    return run.source


def _list_files(given: Any) -> list[str | Path]:
    """The names of files as a list.

    Raises:
        ValueError: It is one file, or no names of files.
    """
    if isinstance(given, str | Path):
        raise ValueError(f"files must be a list of files, got one: [{str(given)!r}]")
    if not isinstance(given, Iterable):
        raise ValueError(f"files must be a list of files, got {shown(given)}")
    found = list(given)
    for each in found:
        if not isinstance(each, str | Path):
            raise ValueError(f"files must be names of files, got {shown(each)}")
    return found


def load_audio_files(
    run: Run, files: Iterable[str | Path], lose: Lose | None = None, task: int | None = None
) -> AudioInput:
    """Computes the frames of files.

    Args:
        run: A run of speech.
        files: Wav, FLAC, Ogg, Opus, MP3, ...
        lose: Called with the place of a file that cannot be used, as a silent one, or one for which
            there is too little memory, and why; None ends the work.
        task: The place of the files' task, where the run has tasks.

    Raises:
        ValueError: The run reads text, or files are no list of names.
        UnfinishedError: A file is lost.
    """
    files = _list_files(files)
    source, lose = check_is_speech(run), lose or partial(_lose_no_file, files)
    longest, found, places = run.settings.data.max_seconds, [], []
    for place, file in enumerate(files):
        try:
            found.append(load_features_for_run(Path(file), source.filterbank, longest))
            places.append(place)
        except (ValueError, MemoryError) as reason:
            lose(place, in_a_line(reason))
    frames = pack_frames(found, source.filterbank.bins)
    rows = source.rows(frames)
    part = Part(rows, rows, frames=frames)
    mixture = run.settings.data.mixture
    if mixture is not None and task is not None:
        part = replace(part, task=np.full(len(rows), task, np.int32), mixture=mixture)
        if isinstance(run.target, Tagged):
            tag = tag_of(run.target, mixture.tasks[task])
            part = replace(part, tags=np.full(len(rows), tag, np.int32))
    return AudioInput(part, places, len(files), files)


def _lose_no_file(files: Sequence[str | Path], place: int, why: str) -> None:
    """Ends the work where a file would be lost."""
    raise UnfinishedError(f"{files[place]}: {why}")


def transcribe_audio(
    run: Run, heard: AudioInput, decoding: Decoding, lose: Lose | None = None
) -> list[str]:
    """Writes what is said in each file, or its translation; an empty text where one is lost.

    Blanks around a text are taken off, as a network of characters may write them.

    Args:
        run: A run of speech.
        heard: What :func:`load_audio_files` gives.
        decoding: How to search.
        lose: Called with the place of a file for which there is too little memory; None ends the
            work.
    """
    written = heard.translate(run, decoding, lose or partial(_lose_no_file, heard.files))
    return [line.strip() for line in written]


def time_words(
    run: Run, heard: AudioInput, texts: Sequence[str], lose: Lose | None = None
) -> list[list[TimedWord]]:
    """Says when each word of each text is heard, by the exact posterior of the alignments.

    Args:
        run: A run of speech with alignments.
        heard: What :func:`load_audio_files` gives.
        texts: What is said in each file.
        lose: As for :func:`transcribe_audio`.
    """
    lose = lose or partial(_lose_no_file, heard.files)
    targets = run.target.encode_all(texts[place] for place in heard.places)
    told = replace(heard, part=replace(heard.part, targets=targets))
    return told.work_through(partial(_time_batch, run), [], lose)


def _time_batch(run: Run, batch: Batch) -> list[list[TimedWord]]:
    laws = alignment_distributions(run.model, run.guide, batch).posterior
    return [
        _time_sentence(run, batch.target[place].tolist(), each.mean(0))
        for place, each in enumerate(laws)
    ]


def _time_sentence(
    run: Run, tokens: list[int], law: Float[Tensor, "target key"]
) -> list[TimedWord]:
    """The words of a sentence, each at the first position that one of its tokens points at."""
    words, starts = run.target.decode(tokens).split(), dict[int, int]()
    positions = law.argmax(-1).tolist()
    for token, word in enumerate(run.target.word_ids(tokens)):
        if word is not None:
            starts[word] = min(positions[token], starts.get(word, positions[token]))
    return [
        TimedWord(text, starts[place] * FACTOR * FRAME_SECONDS)
        for place, text in enumerate(words)
        if place in starts
    ]
