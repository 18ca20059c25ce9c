"""Transcription of audio files by a speech model, with the time of each word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Unpack, overload

from jaxtyping import Float
from torch import Tensor

from latentheads.batch import Batch
from latentheads.checks import check_list, check_seed
from latentheads.contrib.heads.alignments import alignment_distributions
from latentheads.contrib.speech.audio import load_features_for_run
from latentheads.contrib.speech.features import frame_seconds
from latentheads.contrib.speech.frames import pack_frames
from latentheads.contrib.speech.subsampler import FACTOR
from latentheads.contrib.speech.vocabulary import Positions
from latentheads.contrib.speech.waveform import read_header
from latentheads.corpora.part import Part
from latentheads.decoding.options import Decoding, DecodingKwargs
from latentheads.decoding.translate import OnSkip
from latentheads.errors import UnfinishedError, one_line_message
from latentheads.noise import fixed_noise
from latentheads.runs.generation import (
    EncodedInputs,
    TranslationKwargs,
    check_outputs_vary,
    override_decoding,
    sample_repeatedly,
    select_task,
)
from latentheads.runs.run import Run
from latentheads.runs.trained_model import TrainedModel


@dataclass(frozen=True)
class AudioInput(EncodedInputs):
    """Audio files as a part of a corpus, with placeholders for targets."""

    files: Sequence[str | Path]


@dataclass(frozen=True)
class TimedWord:
    """A word and its time.

    Attributes:
        word: The word.
        seconds: The time of the first position that one of its tokens is aligned with.
    """

    word: str
    seconds: float


def check_is_speech(trained: TrainedModel) -> Positions:
    """Checks that a model's input is speech; returns its source."""
    if not isinstance(trained.source, Positions):
        raise ValueError(f"{trained.name} has no speech input: use translate or generate")
    return trained.source


def load_audio_files(
    trained: TrainedModel,
    files: Iterable[str | Path],
    on_skip: OnSkip | None = None,
    task: int | None = None,
) -> AudioInput:
    """Computes the features of audio files.

    Args:
        trained: A speech model.
        files: Wav, FLAC, Ogg, Opus, MP3, ...
        on_skip: Called for a file that cannot be used, such as a silent one, or that does not fit
            into memory; None raises an error.
        task: Index of the files' task, if the model has tasks.

    Raises:
        ValueError: The model's input is text, or files are not a list of names.
        UnfinishedError: A file cannot be used.
    """
    check_list("files", files)
    files = list(files)
    source, on_skip = check_is_speech(trained), on_skip or partial(_raise_on_skipped_file, files)
    longest, features, indices = trained.processor.max_seconds, [], []
    for index, file in enumerate(files):
        try:
            features.append(load_features_for_run(Path(file), source.filterbank, longest))
            indices.append(index)
        except (ValueError, MemoryError) as error:
            on_skip(index, one_line_message(error))
    frames = pack_frames(features, source.filterbank.bins)
    rows = source.rows(frames)
    part = trained.processor.with_task(Part(rows, rows, frames=frames), task)
    return AudioInput(part, indices, len(files), files)


def _raise_on_skipped_file(files: Sequence[str | Path], index: int, reason: str) -> None:
    """Raises an error for a file that would be skipped."""
    raise UnfinishedError(f"{files[index]}: {reason}")


def transcribe_audio(
    trained: TrainedModel, audio: AudioInput, decoding: Decoding, on_skip: OnSkip | None = None
) -> list[str]:
    """Transcribes or translates each file; texts of skipped files are empty.

    Whitespace around a text is stripped, since a character model may generate it.

    Args:
        trained: A speech model.
        audio: The result of :func:`load_audio_files`.
        decoding: Options of the beam search.
        on_skip: Called for a file that does not fit into memory; None raises an error.
    """
    texts = audio.translate(
        trained, decoding, on_skip or partial(_raise_on_skipped_file, audio.files)
    )
    return [line.strip() for line in texts]


def transcribe_files(
    trained: TrainedModel,
    files: Iterable[str | Path],
    decoding: Decoding,
    num_return_sequences: int | None = None,
    *,
    direction: str | None = None,
    seed: int = 0,
) -> list[str] | list[list[str]]:
    """Transcribes or translates audio files.

    Args:
        trained: A speech model.
        files: Wav, FLAC, Ogg, Opus, MP3, ...
        decoding: Options of the beam search.
        num_return_sequences: Number of transcripts of each, every one with newly sampled heads;
            None: one, not in a list.
        direction: The task of a model with several tasks, as de, de-en or ann:en.
        seed: Seed of sampling.

    Returns:
        A transcript of each file, or a list of several.

    Raises:
        ValueError: The model's input is text, or it has nothing to sample for several.
        UnfinishedError: A file cannot be used, or is too long for the model or for memory.
    """
    check_seed(seed)
    check_is_speech(trained)
    if num_return_sequences is not None:
        check_outputs_vary(trained, decoding)
    audio = load_audio_files(trained, files, task=select_task(trained, direction))
    generate = partial(transcribe_audio, trained, audio, decoding)
    with fixed_noise(seed, trained.model.device):
        if num_return_sequences is None:
            return generate()
        return sample_repeatedly(generate, num_return_sequences)


@overload
def transcribe(
    run: Run,
    files: Iterable[str | Path],
    *,
    num_return_sequences: None = None,
    **options: Unpack[TranslationKwargs],
) -> list[str]: ...


@overload
def transcribe(
    run: Run,
    files: Iterable[str | Path],
    *,
    num_return_sequences: int,
    **options: Unpack[TranslationKwargs],
) -> list[list[str]]: ...


def transcribe(
    run: Run,
    files: Iterable[str | Path],
    *,
    num_return_sequences: int | None = None,
    direction: str | None = None,
    seed: int = 0,
    **decoding: Unpack[DecodingKwargs],
) -> list[str] | list[list[str]]:
    """Transcribes or translates audio files, as the test part of a run was.

    Args:
        run: A run of speech.
        files: Wav, FLAC, Ogg, Opus, MP3, ...
        num_return_sequences: Number of transcripts of each, every one with newly sampled heads;
            None: one, not in a list.
        direction: The task of a model with several tasks, as de, de-en or ann:en.
        seed: Seed of sampling.
        **decoding: Options of :class:`~latentheads.inference.Decoding` in the place of the run's,
            as ``num_beams=5``.

    Returns:
        A transcript of each file, or a list of several.
    """
    options = override_decoding(run, run.settings.decode, decoding, num_return_sequences)
    return transcribe_files(
        run, files, options, num_return_sequences, direction=direction, seed=seed
    )


def time_words(
    trained: TrainedModel, audio: AudioInput, texts: Sequence[str], on_skip: OnSkip | None = None
) -> list[list[TimedWord]]:
    """Computes the time of each word from the exact posterior of the alignments."""
    on_skip = on_skip or partial(_raise_on_skipped_file, audio.files)
    targets = trained.target.encode_all(texts[index] for index in audio.indices)
    with_targets = replace(audio, part=replace(audio.part, targets=targets))
    no_words: list[tuple[str, int]] = []
    timed = with_targets.map_batches(partial(_time_batch, trained), no_words, on_skip)
    return [_to_seconds(*pair) for pair in zip(audio.files, timed, strict=True)]


def _to_seconds(file: str | Path, words: Sequence[tuple[str, int]]) -> list[TimedWord]:
    if not words:  # a file that was skipped may have no header
        return []
    seconds = frame_seconds(read_header(file)[1])
    return [TimedWord(text, frame * seconds) for text, frame in words]


def _time_batch(trained: TrainedModel, batch: Batch) -> list[list[tuple[str, int]]]:
    posteriors = alignment_distributions(trained.model, trained.guide, batch).posterior
    return [
        _time_sentence(trained, batch.target[index].tolist(), posterior.mean(0))
        for index, posterior in enumerate(posteriors)
    ]


def _time_sentence(
    trained: TrainedModel, tokens: list[int], posterior: Float[Tensor, "target key"]
) -> list[tuple[str, int]]:
    """The words of a sentence with the first frame that one of their tokens is aligned with."""
    words, starts = trained.target.decode(tokens).split(), dict[int, int]()
    positions = posterior.argmax(-1).tolist()
    for token, word in enumerate(trained.target.word_ids(tokens)):
        if word is not None:
            starts[word] = min(positions[token], starts.get(word, positions[token]))
    return [(text, starts[index] * FACTOR) for index, text in enumerate(words) if index in starts]
