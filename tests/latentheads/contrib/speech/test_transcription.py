"""Files of sound for a run: one that is lost is named."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

import latentheads as lh
from latentheads.contrib.speech import transcribe, transcription
from latentheads.contrib.speech.data import Speech
from latentheads.errors import UnfinishedError
from latentheads.guides import Cascaded, Tied
from latentheads.latents.logits.options import LogitsOptions
from latentheads.models import Translation
from latentheads.runs.run import Run
from latentheads.runs.settings import Settings
from tests.latentheads.contrib.speech.sounds import (
    make_noise,
    write_noise,
    write_sound,
    write_speech,
)
from tests.tiny import jiggle

SIZES: dict[str, Any] = {"width": 8, "heads": 2, "layers": 1, "speech": {"channels": 4}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of speech that has learned nothing."""
    folder = write_speech(tmp_path_factory.mktemp("speech"))
    data = Speech(str(folder), vocab_size=0, bins=7, top_frequency=3800)
    corpus = data.load()
    model = Translation.of(corpus, latents=[LogitsOptions()], **SIZES).double().eval()
    guide = Cascaded(model).double().eval()
    return Run(folder, Settings(data=data), corpus.processor, model, guide, 7)


def test_a_file_that_is_lost_is_named(run: Run, tmp_path: Path) -> None:
    good = run.path / "sound" / "test-0.wav"
    silent = write_sound(tmp_path / "silent.wav", np.zeros(800, np.float32))
    with pytest.raises(UnfinishedError, match=rf"^{silent}: it is silent$"):
        transcribe(run, [good, silent])
    with mock.patch.object(transcription, "load_features_for_run", side_effect=MemoryError):
        transcription.load_audio_files(run, [silent, good], on_skip=(lost := mock.Mock()))
    assert lost.call_args_list == [mock.call(index, "out of memory") for index in (0, 1)]
    heard = transcription.load_audio_files(run, [silent, good], on_skip=mock.Mock())
    for work in (
        partial(transcription.transcribe_audio, run, heard, run.settings.decode),
        partial(transcription.time_words, run, heard, ["", "two"]),
    ):
        small = mock.Mock(side_effect=MemoryError)
        with (
            mock.patch.object(run.model, "forward", small),
            mock.patch.object(run.model, "begin", small),
            mock.patch.object(transcription, "alignment_distributions", small),
            pytest.raises(UnfinishedError, match=rf"^{good}: out of memory"),
        ):
            work()


def test_a_transcript_has_no_blanks_around_it(run: Run) -> None:
    files = [run.path / "sound" / f"test-{index}.wav" for index in range(3)]
    heard = transcription.load_audio_files(run, files)
    texts = ["  ", " one two", "two"]
    with mock.patch.object(transcription.AudioInput, "translate", return_value=texts):
        actual = transcription.transcribe_audio(run, heard, run.settings.decode)
    assert actual == ["", "one two", "two"]


def test_a_number_of_transcripts_is_drawn_of_each_file(run: Run) -> None:
    files = [run.path / "sound" / f"test-{index}.wav" for index in range(3)]
    torch.manual_seed(3)
    model = Translation.of(run.corpus, latents=[LogitsOptions()], **SIZES)
    jiggle(model, 0.5).double().eval()
    drawing = replace(run, model=model, guide=Tied(model))
    once = transcribe(drawing, files)
    assert transcribe(drawing, files, seed=5) == once  # heads stand where they are
    several = transcribe(drawing, files, num_return_sequences=7, seed=5, max_new_tokens=5)
    assert [len(item) for item in several] == [7, 7, 7]
    assert any(len(set(item)) > 1 for item in several)
    assert several == transcribe(drawing, files, num_return_sequences=7, seed=5, max_new_tokens=5)
    assert (
        several[0]
        != transcribe(drawing, files, num_return_sequences=7, seed=6, max_new_tokens=5)[0]
    )
    first = transcribe(drawing, files, seed=5, num_samples=1, max_new_tokens=5)
    assert [item[0] for item in several] == first
    with pytest.raises(
        ValueError,
        match=r"^num_return_sequences has no effect here: it needs num_samples 1 or more",
    ):
        transcribe(drawing, files, num_return_sequences=2, num_samples=0)
    with pytest.raises(ValueError, match="num_return_sequences must be at least 1, got -1"):
        transcribe(drawing, files, num_return_sequences=-1)


def test_a_word_is_heard_where_the_first_of_its_tokens_points(run: Run) -> None:
    tokens = run.target.encode("one to")
    logits = one_hot(torch.tensor([5, 3, 4, 0, 9, 6, 1]), 11).double()
    assert transcription._time_sentence(run, tokens, logits) == [("one", 12), ("to", 24)]


def test_times_are_those_of_the_sampling_rate(run: Run, tmp_path: Path) -> None:
    files = [write_noise(tmp_path / f"{rate}.wav", 1.0, 1, rate) for rate in (16000, 22050)]
    heard = transcription.load_audio_files(run, files)
    with mock.patch.object(transcription, "_time_batch", return_value=[[("one", 12)]] * 2):
        times = transcription.time_words(run, heard, ["one", "one"])
    assert [word.seconds for (word,) in times] == pytest.approx([0.12, 12 * 220 / 22050])


def test_a_sampling_rate_that_is_too_low_for_the_run_is_told_what_it_needs(
    run: Run, tmp_path: Path
) -> None:
    low = write_sound(tmp_path / "low.wav", make_noise(0.3), 4000)
    message = (
        "its sampling rate is 4,000 Hz: the run uses .* and needs at least 7,600 samples a second"
    )
    for read in (lambda: transcribe(run, [low]), lambda: lh.plot.audio(run, low)):
        with pytest.raises(UnfinishedError, match=rf"^{low}: {message}$"):
            read()
