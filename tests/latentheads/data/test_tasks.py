"""Options of several tasks in one corpus."""

from __future__ import annotations

from typing import Any

import pytest

from latentheads.data import Pairs, Tasks


def test_names_are_a_text_or_a_list() -> None:
    assert Tasks("de, fr").names == Tasks(("de", "fr")).names == ("de", "fr")


def test_a_kept_corpus_depends_on_its_tasks_and_not_on_how_they_are_mixed() -> None:
    tasks = Tasks("ann:de", distinguish_by="domain")
    mixed = Tasks("ann:de", distinguish_by="domain", temperature=5, one_task=True)
    of_speakers = Tasks("ann:de", distinguish_by="speaker")
    for is_speech in (False, True):
        assert mixed.key(is_speech) == tasks.key(is_speech) != Tasks("bob:de").key(is_speech)
        assert (of_speakers.key(is_speech) == tasks.key(is_speech)) == (not is_speech)


def test_the_mixture_has_the_source_where_a_task_names_none() -> None:
    tasks = Tasks("de,fr-de", temperature=5, one_task=True)
    mixture = tasks.mixture("en")
    assert mixture.names == ("en-de", "fr-de")
    assert (mixture.temperature, mixture.one_task) == (5.0, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ""}, "^names must hold at least one task, as de or en-de$"),
        ({"names": ()}, "^names must hold at least one task, as de or en-de$"),
        ({"sizes": (9,)}, "^sizes must be one for each of the 2 tasks, got 1$"),
        ({"sizes": (9, 0)}, "^sizes.1 must be at least 1, got 0$"),
        ({"temperature": 0}, "^temperature must be above 0, got 0$"),
        ({"temperature": float("nan")}, "^temperature must be a finite number, got nan$"),
    ],
)
def test_values_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tasks(**{"names": "de,fr", **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"references": "refs"}, "^references is of one direction of translation: drop it, or"),
        ({"max_source": 5}, "^max_source is of one direction of translation: drop it, or tasks$"),
        ({"tasks": Tasks("de", distinguish_by="domain")}, "distinguished by domain need one each"),
        ({"tasks": Tasks("ann:de", distinguish_by="speaker")}, "speaker is of speech: text has"),
        ({"tasks": Tasks("en")}, "^source and target of task 'en' must differ, got 'en' twice$"),
        ({"tasks": Tasks("de,,fr")}, "^a task is TARGET or SOURCE-TARGET, with or without DOMAIN:"),
    ],
)
def test_what_does_not_go_with_pairs_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pairs("own", source="en", **{"tasks": Tasks("de"), **options})
