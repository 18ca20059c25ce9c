"""Tasks: how they are named, distinguished, and how often each comes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from latentheads.corpora import Mixture, Task


def tasks(text: str) -> tuple[Task, ...]:
    return tuple(Task.parse(word, "en") for word in text.split(","))


@pytest.mark.parametrize(
    ("text", "task", "name"),
    [
        ("de", Task("en", "de"), "en-de"),
        ("fr-de", Task("fr", "de"), "fr-de"),
        ("bible:de", Task("en", "de", "bible"), "bible:en-de"),
        ("a:b:fr-en", Task("fr", "en", "a:b"), "a:b:fr-en"),
    ],
)
def test_a_task_is_read_with_and_without_source_and_domain(
    text: str, task: Task, name: str
) -> None:
    assert Task.parse(text, "en") == Task.parse(name, "xx") == task
    assert task.name == name


@pytest.mark.parametrize("text", ["", "de-", "-de", "a-b-c", ":de", "bible:"])
def test_what_is_no_task_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"SOURCE-TARGET, .* got '{text}'$"):
        Task.parse(text, "en")


@pytest.mark.parametrize("text", ["en", "de-de", "bible:en"])
def test_a_language_is_not_translated_into_itself(text: str) -> None:
    with pytest.raises(ValueError, match=f"source and target of task '{text}' must differ"):
        Task.parse(text, "en")


def test_mixtures_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^task en-de is given twice$"):
        Mixture(tasks("de,fr,en-de"))
    with pytest.raises(
        ValueError, match=r"^tasks distinguished by domain need one each; en-fr has"
    ):
        Mixture(tasks("bible:de,fr"), "domain")


def test_languages_or_domains_are_distinguished() -> None:
    given = tasks("bible:de-en,help:fr-en,bible:en-de,help:de-en")
    by_language, by_domain = Mixture(given), Mixture(given, "domain")
    assert (by_language.sources, by_language.targets) == (("de", "fr", "en"), ("en", "de"))
    assert by_domain.sources == by_domain.targets == ("bible", "help")
    task_ids = by_language.task_ids(np.array([0, 1, 2, 3], np.int32))
    assert task_ids["source_task"].tolist() == [0, 1, 2, 0]
    assert task_ids["target_task"].tolist() == [0, 0, 1, 0]
    task_ids = by_domain.task_ids(np.array([3, 2, 1, 0], np.int32))
    assert task_ids["source_task"].tolist() == task_ids["target_task"].tolist() == [1, 0, 1, 0]


def test_a_batch_is_of_one_task_where_each_side_has_one() -> None:
    mixture = Mixture(tasks("bible:de,help:de,bible:fr"))
    assert mixture.task_ids(np.array([0, 1, 0], np.int32))["one_task"]
    assert not mixture.task_ids(np.array([0, 2], np.int32))["one_task"]


def test_tags_stand_where_there_are_several_target_languages() -> None:
    assert Mixture(tasks("de-en,fr-en,bible:fr-en")).tags == ()
    assert Mixture(tasks("de,fr,bible:de,de-en")).tags == ("de", "fr", "en")


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5, 5.0, 100.0, math.inf])
def test_shares_follow_the_temperature(temperature: float) -> None:
    sizes = [29_000, 1_014, 7, 163_924]
    counts = Mixture(tasks("de,fr,cs,it"), temperature=temperature).epoch_counts(sizes)
    assert sum(counts) == sum(sizes)
    weights = [float(size) ** (1 / temperature) for size in sizes]
    for count, weight in zip(counts, weights, strict=True):
        assert abs(count - sum(sizes) * weight / sum(weights)) < 1
    if temperature == 1:
        assert counts == sizes
    if temperature == math.inf:
        assert max(counts) - min(counts) <= 1


def test_the_share_by_hand() -> None:
    """The square roots of 100, 25 and 4 are 10, 5 and 2, of which 17 makes 129 parts."""
    mixture = Mixture(tasks("de,fr,cs"), temperature=2)
    assert mixture.epoch_counts([100, 25, 4]) == [76, 38, 15]
    assert mixture.epoch_counts([100, 0, 4]) == [87, 0, 17]


def test_a_task_is_found_by_any_of_its_names() -> None:
    mixture = Mixture(tasks("de,bible:fr"))
    assert [mixture.index_of(text, "en") for text in ("de", "en-de", "bible:en-fr")] == [0, 0, 1]
    with pytest.raises(ValueError, match=r"^task must be one of en-de, bible:en-fr; got 'en-fr'$"):
        mixture.index_of("fr", "en")
