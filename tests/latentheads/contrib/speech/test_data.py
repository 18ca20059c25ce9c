"""Options of speech: names, ranges, and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from latentheads.contrib.speech.data import Speech
from latentheads.data import Tasks
from tests.latentheads.contrib.speech.sounds import write_speech


def test_its_name_is_that_of_the_folder_and_of_what_is_done_with_it() -> None:
    assert Speech("a/voices/").name == "voices recognition"
    assert Speech("a/voices", task="translation").name == "voices speech-translation"
    assert Speech("voices", tasks=Tasks("de,fr")).name == "voices de,fr"


def test_its_options_say_how_audio_is_read() -> None:
    options = Speech("voices", bins=7, top_frequency=3800, max_seconds=2.0).audio_options
    assert (options.filterbank.bins, options.filterbank.high_freq) == (7, 3800)
    assert options.max_seconds == 2.0


def test_the_first_utterances_are_those_of_each_task(tmp_path: Path) -> None:
    folder = write_speech(tmp_path, src_lang="de", tgt_lang="de")
    small: dict[str, Any] = {"vocab_size": 0, "bins": 7, "top_frequency": 3800}
    for tasks in (None, Tasks("de"), Tasks("de", sizes=(2,))):
        first = 2 if tasks is None or not tasks.sizes else 0
        corpus = Speech(str(folder), tasks=tasks, max_train_samples=first, **small).load()
        assert (len(corpus.train), len(corpus.test)) == (2, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folder": ""}, "^folder must name a folder$"),
        ({"max_seconds": -1.0}, "^max_seconds must be at least 0, got -1$"),
        ({"bins": 2}, "^bins must be at least 3, got 2$"),
        ({"vocab_size": -1}, "^vocab_size must be at least 0, got -1$"),
        ({"tasks": Tasks("de-en")}, "task 'de-en' translates, and speech is written in its own"),
        ({"task": "translation", "tasks": Tasks("en")}, "task 'en' must name both languages"),
        ({"tasks": Tasks("de", distinguish_by="speaker")}, "distinguished by speaker need one"),
    ],
)
def test_what_there_is_not_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Speech(**{"folder": "voices", **options})
