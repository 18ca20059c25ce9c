"""Running text from folders, the hub and Python's own reference."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from latentheads.data import HubText, RunningText, SubwordUnit, WordUnit
from tests.latentheads.corpora.folders import SIZES, write_text
from tests.latentheads.data.loading import load, load_text, same


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return write_text(tmp_path / "novel")


def was_read(logged: list[str]) -> bool:
    return any("vocabulary size" in line for line in logged)


def words_in(path: Path) -> int:
    return sum(len(line.split()) + 1 for line in path.read_text("utf-8").split("\n")[:-1])


@pytest.mark.parametrize("block", [0, 7])
def test_a_folder_of_text_is_a_corpus_for_a_language_model(texts: Path, block: int) -> None:
    corpus, logged = load_text(texts, block_size=block)
    assert corpus.name == "novel"
    assert corpus.source is None
    assert len(logged) == (1 if block else 2)
    assert f" tokens, vocabulary size {len(corpus.target)}, " in logged[0]
    for name in SIZES:
        part = getattr(corpus, name)
        assert part.tokens == part.words == words_in(texts / f"{name}.txt")
        assert len(part) == (-(-part.tokens // block) if block else SIZES[name])


def test_a_block_may_be_longer_than_a_line(texts: Path) -> None:
    for part in ("train", "valid", "test"):
        (texts / f"{part}.txt").write_text("a " * 1500, encoding="utf-8")
    corpus, _ = load_text(texts, block_size=1200)
    assert corpus.train.lengths.tolist() == [1200, 301]


def test_options_reach_the_text(texts: Path) -> None:
    (texts / "valid.txt").rename(texts / "dev.txt")
    (texts / "test.txt").rename(texts / "unseen.txt")
    plain, _ = load_text(texts, test_name="unseen")
    rare, logged = load_text(texts, test_name="unseen", unit=WordUnit(min_count=9), block_size=0)
    assert sum("unknown" in line for line in logged) == 1
    assert len(rare.target) < len(plain.target)
    lower, _ = load_text(texts, test_name="unseen", lowercase=True)
    assert ("Straße" in plain.target.words, "Straße" in lower.target.words) == (True, False)
    assert "straße" in lower.target.words
    first, _ = load_text(texts, test_name="unseen", max_train_samples=3)
    assert (len(first.train), len(first.valid), len(first.test)) == (3, 6, 7)
    subwords, _ = load_text(texts, test_name="unseen", unit=SubwordUnit(vocab_size=280))
    assert len(subwords.target) == 280
    assert [p.words for p in (subwords.train, subwords.test)] == [
        p.words for p in (plain.train, plain.test)
    ]


def test_white_space_is_normalised_unless_it_is_kept(texts: Path) -> None:
    (texts / "test.txt").write_text("\tthe  gap\t of \n\n", "utf-8")
    lines = {"normalise": ["the gap of", ""], "keep": ["\tthe  gap\t of ", ""]}
    for whitespace, expected in lines.items():
        corpus, _ = load_text(texts, unit="subword", whitespace=whitespace)
        assert [corpus.target.decode(row.tolist()) for row in corpus.test.targets] == expected
        assert corpus.test.words == 5
    words, _ = load_text(texts)
    assert [words.target.decode(row.tolist()) for row in words.test.targets] == lines["normalise"]


@pytest.mark.parametrize("unit", ["word", "subword"])
def test_a_kept_text_is_used_again_until_it_changes(texts: Path, tmp_path: Path, unit: str) -> None:
    packed = write_text(tmp_path / "packed" / "novel", compress=True)
    cache = {"cache": str(tmp_path / "cache")}
    options: dict[str, Any] = {"block_size": 7, "unit": unit}
    plain, _ = load_text(texts, **options)
    first, logged = load_text(packed, **options, **cache)
    assert was_read(logged)
    assert same(plain, first)
    again, logged = load_text(packed, **options, **cache)
    assert not was_read(logged)
    assert same(first, again)
    assert isinstance(again.train.targets.tokens.base, np.memmap)
    windows, logged = load_text(packed, **options, **cache, context=3)
    assert not was_read(logged), "the context is of the evaluation alone"
    assert same(first, windows)
    other, logged = load_text(packed, **{**options, "block_size": 5}, **cache)
    assert was_read(logged)
    assert not same(first, other)
    for name in ("train", "valid", "test"):
        path = packed / f"{name}.txt.gz"
        path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + b"new words\n"))
        changed, logged = load_text(packed, **options, **cache)
        assert was_read(logged)
        assert getattr(changed, name).words == getattr(first, name).words + 3


@pytest.mark.parametrize("name", ["mine", "wikitext-2"])
def test_local_files_of_the_hub_are_a_text_and_kept_until_they_change(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "datasets"))

    def write(split: str, *lines: str) -> None:
        rows = "".join(f"{json.dumps({'text': line})}\n" for line in lines)
        (tmp_path / "hub" / f"{split}.jsonl").write_text(rows, "utf-8")

    (tmp_path / "hub").mkdir()
    write("train", " = One = \n", "", "a b c\n")
    write("validation", "a b\n")
    write("test", "c\n")
    data = HubText(name, path=str(tmp_path / "hub"), block_size=4, cache=str(tmp_path / "cache"))
    actual, logged = load(data)
    assert logged
    assert actual.name == name
    assert [p.words for p in (actual.train, actual.valid, actual.test)] == [9, 3, 2]
    assert actual.train.targets.lengths.tolist() == [4, 4, 1]
    assert not load(data)[1]
    write("test", "c b a\n")
    changed, logged = load(data)
    assert logged
    assert changed.test.words == 4
    with pytest.raises(ValueError, match=f"^row 1 of test of {name} has 4 tokens, more than"):
        load(HubText(name, path=str(tmp_path / "hub"), max_line=3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folder": ""}, "^folder must name a folder$"),
        ({"block_size": -1}, "^block_size must be at least 0, got -1$"),
        ({"context": 5}, "^context must be 0, got 5$"),
        ({"block_size": 5, "context": -1}, r"^context must be at least 0, got -1"),
        ({"unit": {"min_count": 0}}, r"^unit.min_count must be at least 1, got 0$"),
        ({"min_count": 2}, r"^min_count is not an option: did you mean unit.min_count\?$"),
        ({"vocab_size": 9}, r"^vocab_size is not an option: did you mean unit.vocab_size\?$"),
        ({"unit": {"vocab_size": 9}}, "^unit.vocab_size is not an option of word, but of subword$"),
        ({"whitespace": "keep"}, "^whitespace keep is for unit subword: words have none$"),
        (
            {"block_size": 5, "max_line": 9},
            "^max_line is for lines, and blocks run across them: drop",
        ),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RunningText(**{"folder": "novel", **options})


@pytest.mark.parametrize("name", ["multi30k", "nowhere"])
def test_a_text_that_the_hub_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^corpus must be one of wikitext-2, .*; got '{name}'$"):
        HubText(name)
