"""Options of the grammar."""

from __future__ import annotations

from typing import Any

import pytest

from latentheads.data import Data, Grammar, GrammarText, Tasks


@pytest.mark.parametrize(
    "data",
    [
        Grammar(language="tamir", sentences=9, held_out=2),
        Grammar(tasks=Tasks("velu,talk:korin", (9, 8)), held_out=2),
        GrammarText(sentences=9, held_out=2),
    ],
)
def test_the_options_say_what_the_corpus_is_called(data: Data) -> None:
    assert data.name == data.load().name


def test_tasks_have_a_size_each_or_that_of_one() -> None:
    for sizes, sentences, expected in (((30, 4), {}, [30, 4]), ((), {"sentences": 9}, [9, 9])):
        tasks = Tasks("velu,talk:korin", sizes)
        corpus = Grammar(tasks=tasks, **sentences, held_out=2).load()
        train = corpus.train
        assert [len(train.indices_of_task(task)) for task in range(2)] == expected
        assert corpus.name == "grammar en-velu,talk:en-korin"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sentences": 0}, "^sentences must be at least 1, got 0$"),
        ({"held_out": 10**7}, "^held_out must be at most 1,000,000, got 10,000,000$"),
        ({"language": "latin"}, "^language must be one of velu, .* got 'latin'"),
        ({"tasks": Tasks("velu,velu")}, "^task en-velu is given twice$"),
    ],
)
def test_what_there_is_not_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Grammar(**options)
