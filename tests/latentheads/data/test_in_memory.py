"""What is known of a corpus that was put together in Python."""

from __future__ import annotations

import pytest

from latentheads.data import InMemory, Tasks


def test_no_options_make_it_again() -> None:
    with pytest.raises(ValueError, match=r"^the corpus was put together in Python: give corpus$"):
        InMemory().load()


def test_its_task_says_what_its_source_is() -> None:
    kinds = ("translation", "language-model", "recognition", "speech-translation")
    actual = [InMemory(task=task) for task in kinds]
    assert [data.is_language_model for data in actual] == [False, True, False, False]
    assert [data.is_speech for data in actual] == [False, False, True, True]
    assert [data.is_recognition for data in actual] == [False, False, True, False]


def test_recognised_speech_has_the_language_of_its_target() -> None:
    heard = InMemory(task="recognition", tasks=Tasks("de,fr"))
    assert heard.mixture is not None
    assert heard.mixture.names == ("de", "fr")
    with pytest.raises(ValueError, match="task 'de' must name both languages"):
        _ = InMemory(tasks=Tasks("de,fr")).mixture
