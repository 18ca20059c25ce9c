"""What all data classes share: options, a log, a cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import latentheads as lh
from latentheads.corpora import Corpus
from latentheads.corpora.part import Log
from latentheads.data import Data, Grammar, GrammarText, Pairs, Tasks, WordUnit
from latentheads.data.base import DATA, Cached
from latentheads.options import OptionError, from_dict, options_class, to_dict
from tests.latentheads.corpora.folders import write_all
from tests.latentheads.data.loading import load

CHANGED: dict[str, dict[str, Any]] = {
    "grammar": {"held_out": 9, "tasks": Tasks("news:velu", (7,), distinguish_by="domain")},
    "grammar-text": {"held_out": 3},
    "pairs": {"folder": "texts", "source": "cs", "target": "fr", "max_ratio": 1.5},
    "running-text": {"folder": "texts", "block_size": 8, "context": 3, "unit": "subword"},
    "speech": {"folder": "speech", "bins": 7, "tasks": Tasks("ann:de", distinguish_by="speaker")},
    "hub": {"corpus": "mine", "path": "mine/copy", "tokenised": True},
    "hub-text": {"corpus": "wikitext-103", "unit": WordUnit(min_count=3)},
    "python-docs": {"lowercase": True},
    "in-memory": {"task": "language-model"},
}


def test_every_data_class_of_the_table_has_options_here() -> None:
    assert set(CHANGED) == set(Data.choices()), "write options of each data class into CHANGED"


@options_class(kw_only=True)
class Listed(Data):
    name = "listed"

    def _make(self, log: Log | None, keep: bool) -> Corpus:
        return Corpus.from_pairs([("a", "b")], [("b", "a")], [("a", "a")], name=self.name)


def test_a_line_of_the_table_may_be_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATA, "mine", Listed)
    assert from_dict(Data, {"class": "mine"}) == Listed()
    assert to_dict(Listed()) == {"class": "mine"}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("no_such_corpus:Mine", "No module named 'no_such_corpus'"),
        ("latentheads.data.base:NoCorpus", "AttributeError: "),
        ("latentheads.options:Choice", "must be a subclass of latentheads.data.base.Data"),
        ("latentheads.data.base:Cached", "is abstract: it must define "),
        (3, "must be a subclass of "),
    ],
)
def test_a_line_without_a_corpus_is_left_out(
    line: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DATA, "mine", line)
    named = rf"^DATA\['mine'\] = {line!r} is left out: .*{why}"
    with pytest.warns(UserWarning, match=named):
        assert set(Data.choices()) == set(CHANGED)


@pytest.mark.parametrize("name", CHANGED)
def test_options_come_back_from_their_plain_values(name: str) -> None:
    data = Data.choices()[name](**CHANGED[name])
    assert to_dict(data)["class"] == name
    assert from_dict(Data, to_dict(data)) == data


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class": "pairs"}, r"^data.folder must name a folder$"),
        ({"class": "paris", "folder": "x"}, r"^data must be one of grammar, .*; got 'paris'$"),
        (
            {"class": "grammar", "folder": "x"},
            r"^data.folder is not an option of grammar, but of pai",
        ),
        (
            {"class": "grammar", "language": "latin"},
            r"^data.language must be one of velu, .* got 'latin'",
        ),
        (
            {"class": "grammar", "language": "velu", "tasks": "velu,tamir"},
            r"^data.language is of one direction of translation: drop it, or tasks$",
        ),
        (
            {"class": "grammar", "sentences": 9, "tasks": {"names": "velu", "sizes": [7]}},
            r"^data.sentences is the same for all tasks: drop it, or tasks.sizes$",
        ),
        (
            {"class": "pairs", "folder": "x", "target": "fr", "tasks": "en"},
            r"^data.target is of one direction of translation: drop it, or tasks$",
        ),
        *(
            (
                {
                    **{"class": kind, "folder": "x", "max_train_samples": 9},
                    "tasks": {"names": "en-de", "sizes": [7]},
                },
                r"^data.max_train_samples is the same for all tasks: drop it, or tasks.sizes$",
            )
            for kind in ("pairs", "speech")
        ),
        ({"class": "pairs", "folder": "x", "max_line": "all"}, r"^data.max_line must be a whole"),
    ],
)
def test_a_mistake_is_named_by_its_option(options: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        from_dict(Data, options, path="data")


def test_a_corpus_is_that_of_its_options_and_remembers_them() -> None:
    corpus = lh.data.Grammar(language="tamir", sentences=31, held_out=5).load()
    assert corpus.data == Grammar(language="tamir", sentences=31, held_out=5)
    assert isinstance(corpus.data, Data)
    again = corpus.data.load()
    assert again.test.references == corpus.test.references
    assert again.target.to_json() == corpus.target.to_json()


def test_held_out_sentences_that_stand_in_training_are_logged() -> None:
    corpus, logged = load(GrammarText(sentences=600, held_out=300))
    valid, test = corpus.overlap
    assert min(valid, test) > 0
    assert logged == [
        f"{valid} of 300 sentences of valid and {test} of 300 of test stand in training too"
    ]
    assert load(Grammar(sentences=100, held_out=20))[1] == []


def key_of(data: Cached) -> str:
    return data._key()


def test_how_tasks_are_mixed_is_no_part_of_what_is_kept(tmp_path: Path) -> None:
    folder = str(write_all(tmp_path))
    alone = Pairs(folder, source="en", target="de")
    several = Pairs(folder, source="en", tasks=Tasks("de,fr"))
    mixed = Pairs(folder, source="en", tasks=Tasks("de,fr", temperature=5, one_task=True))
    smaller = Pairs(folder, source="en", tasks=Tasks("de,fr", sizes=(3, 4)))
    assert key_of(several) == key_of(mixed)
    assert len({key_of(item) for item in (alone, several, smaller)}) == 3


@options_class(kw_only=True)
class OfPairs(Data):
    """Data that makes no corpus of its pairs."""

    name = "of-pairs"

    def _make(self, log: Any, keep: bool) -> Any:
        return [("a", "b")]


def test_data_that_makes_no_corpus_is_named() -> None:
    with pytest.raises(ValueError, match=r"^OfPairs\._make must return a Corpus, .*, got list$"):
        OfPairs().load()
