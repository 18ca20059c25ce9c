"""Files of sound for a run: one that is lost is named."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

import latentheads as lh
from latentheads.corpora.data import Data
from latentheads.corpora.from_options import make_corpus
from latentheads.errors import UnfinishedError
from latentheads.guides import Cascaded
from latentheads.models import Translation
from latentheads.runs import hearing
from latentheads.runs.run import Run
from latentheads.runs.settings import Settings
from tests.latentheads.corpora.speech.sounds import make_noise, write_sound, write_speech


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of speech that has learned nothing."""
    folder = write_speech(tmp_path_factory.mktemp("speech"))
    data = Data(str(folder), task="recognition", types=0, bins=7, top_frequency=3800)
    corpus = make_corpus(data)
    model = Translation.of(corpus, width=8, heads=2, layers=1, channels=4).double().eval()
    guide = Cascaded(model).double().eval()
    return Run(folder, Settings(data=data), corpus.target, corpus.source, model, guide, 7)


def test_a_file_that_is_lost_is_named(run: Run, tmp_path: Path) -> None:
    good = run.path / "sound" / "test-0.wav"
    silent = write_sound(tmp_path / "silent.wav", np.zeros(800, np.float32))
    with pytest.raises(UnfinishedError, match=rf"^{silent}: it is silent$"):
        run.transcribe([good, silent])
    with mock.patch.object(hearing, "hear_for_run", side_effect=MemoryError):
        hearing.hear_files(run, [silent, good], lose=(lost := mock.Mock()))
    assert lost.call_args_list == [mock.call(place, "out of memory") for place in (0, 1)]
    heard = hearing.hear_files(run, [silent, good], lose=mock.Mock())
    for work in (
        partial(hearing.transcribe_heard, run, heard, run.settings.decoding),
        partial(hearing.time_words, run, heard, ["", "two"]),
    ):
        small = mock.Mock(side_effect=MemoryError)
        with (
            mock.patch.object(run.model, "forward", small),
            mock.patch.object(run.model, "begin", small),
            mock.patch.object(hearing, "alignment_laws", small),
            pytest.raises(UnfinishedError, match=rf"^{good}: out of memory"),
        ):
            work()


def test_a_word_is_heard_where_the_first_of_its_tokens_points(run: Run) -> None:
    tokens = run.target.encode("one to")
    law = one_hot(torch.tensor([5, 3, 4, 0, 9, 6, 1]), 11).double()
    found = hearing._time_sentence(run, tokens, law)
    assert [word.word for word in found] == ["one", "to"]
    assert [word.seconds for word in found] == pytest.approx([0.12, 0.24])


def test_a_sampling_rate_that_is_too_low_for_the_run_is_told_what_it_needs(
    run: Run, tmp_path: Path
) -> None:
    low = write_sound(tmp_path / "low.wav", make_noise(0.3), 4000)
    said = "its sampling rate is 4,000 Hz: the run hears up to 3,800 Hz and needs at least 7,600 "
    for read in (lambda: run.transcribe([low]), lambda: lh.plot.sound(run, low)):
        with pytest.raises(UnfinishedError, match=rf"^{low}: {said}samples a second$"):
            read()
