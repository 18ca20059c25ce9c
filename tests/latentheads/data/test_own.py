"""A data class of one's own: named by its path, trained on, and opened where it is trusted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import latentheads as lh
from latentheads.corpora import Corpus
from latentheads.corpora.length_limits import Side
from latentheads.corpora.part import Log
from latentheads.corpora.tasks import Task
from latentheads.corpora.text import PARTS, SentencePair, find_file, iterate_lines
from latentheads.data import Data
from latentheads.data.base import FolderData, name_of_folder
from latentheads.data.pairs import TextPairs
from latentheads.guides import Tied
from latentheads.models import Translation
from latentheads.runs.settings import Settings

PATH = "tests.latentheads.data.test_own:Counting"


@dataclass(frozen=True, kw_only=True)
class Counting(Data):
    """Sentences that count.

    Attributes:
        most: Number of sentences.
    """

    most: int = 30

    @property
    def name(self) -> str:
        """Its title."""
        return "counting"

    def _make(self, log: Log | None, keep: bool) -> Corpus:
        pairs = [(f"one {number}", f"eins {number}") for number in range(self.most)]
        return Corpus.from_pairs(pairs, pairs[:3], pairs[:3], name=self.name, log=log)


@dataclass(frozen=True, kw_only=True)
class Table(FolderData, TextPairs):
    """Pairs of texts from a folder with train.tsv, valid.tsv and test.tsv: two columns."""

    @property
    def _place_name(self) -> str:
        return name_of_folder(self.folder)

    def _file(self, part: str) -> Path:
        return find_file(self.path, part, "tsv", self._stem(part))

    def _read_pairs(self, part: str, task: Task) -> Iterator[SentencePair]:
        for line in iterate_lines(self._file(part)):
            source, _, target = line.partition("\t")
            yield source, target

    def _location(self, part: str, side: Side, task: Task, index: int) -> str:
        return f"{self._file(part)}, line {index + 1}"

    def _files(self) -> Iterable[Path]:
        return map(self._file, PARTS)


def swap(data: Table, part: str, task: Task) -> Iterator[SentencePair]:
    return ((target, source) for source, target in Table._read_pairs(data, part, task))


def test_pairs_of_another_format_need_only_be_read(tmp_path: Path) -> None:
    for part in PARTS:
        (tmp_path / f"{part}.tsv").write_text("Ein Haus\tA house\nZwei\tTwo\n", encoding="utf-8")
    data = Table(folder=str(tmp_path), cache=str(tmp_path / "cache"))
    for _ in range(2):  # read, then from the cache
        corpus = data.load()
        assert corpus.test.references == ["A house", "Two"]
    namesake = type("Table", (Table,), {"__module__": "another", "_read_pairs": swap})
    assert namesake(folder=data.folder, cache=data.cache).load().test.references[1] == "Zwei"
    (tmp_path / "valid.tsv").write_text("eins zwei drei\tone\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"valid\.tsv, line 1"):
        replace(data, max_line=3).load()
    with pytest.raises(ValueError, match=r"^data must be an existing folder, got 'nowhere'"):
        Table(folder="nowhere").load()


def options(path: str) -> dict[str, object]:
    return {"data": {"class": path, "most": 7}}


def test_it_is_trained_on_and_opened_where_it_is_trusted(tmp_path: Path) -> None:
    corpus = Counting(most=7).load()
    model = Translation.of(corpus, latents=(), width=4, layers=1, heads=1, feed_forward=2)
    lh.Trainer(model, Tied(model), corpus, steps=1, out=tmp_path, quiet=True).fit()
    with pytest.raises(ValueError, match=f"'{PATH}' is none of this library's, .*: --trust {PATH}"):
        lh.load_run(tmp_path)
    run = lh.load_run(tmp_path, trusted=PATH)
    assert run.settings.data == Counting(most=7)
    assert len(run.corpus.train) == 7
    assert lh.load_run(tmp_path, corpus=corpus).settings.data == Counting(most=7)


def test_its_options_are_read_and_written() -> None:
    settings = Settings.from_options(options(PATH), PATH)
    assert settings.data == Counting(most=7)
    assert settings.to_options()["data"] == {"class": PATH, "most": 7}


@pytest.mark.parametrize(
    ("path", "trusted", "message"),
    [
        (PATH, "", "data 'tests.latentheads.data.test_own:Counting' is none of this library's"),
        ("os:path", "os:path", "data 'os:path' must be a subclass of latentheads.data.base.Data"),
        ("nowhere:A", "nowhere:A", "data 'nowhere:A' cannot be imported: No module named"),
        (
            "latentheads.data.base:Cached",
            "latentheads.data.base:Cached",
            "data 'latentheads.data.base:Cached' is abstract: it must define _files, _read, name",
        ),
        ("no path:A", "", "data must be one of grammar, "),
    ],
)
def test_others_are_refused_in_one_line(path: str, trusted: str, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        Settings.from_options(options(path), trusted)
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


def test_each_that_is_not_trusted_is_named() -> None:
    given = {**options(PATH), "guide": {"class": "mine:Guide"}}
    with pytest.raises(ValueError, match=r"^guide 'mine:Guide' .*: --trust mine:Guide, or"):
        Settings.from_options(given, PATH)


def test_one_that_no_folder_can_name_is_refused() -> None:
    class Nested(Counting):
        """Is made within a function."""

    with pytest.raises(ValueError, match="is made inside another class or a function"):
        Settings(data=Nested()).to_options()
