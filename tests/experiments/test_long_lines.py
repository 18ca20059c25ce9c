"""A line of any length in any file: named by file and line before training, or left out of it."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from latentheads.data import Tasks
from tests.latentheads.corpora.folders import with_references, write_all, write_corpus, write_text
from tests.latentheads.data.loading import Loaded, load_pairs, load_text

LETTERS = "漢字" * 5_000
WORDS = "the gap of " * 40


def put(path: Path, number: int, line: str) -> Path:
    """Puts a line in place of another."""
    lines = path.read_text("utf-8").split("\n")
    lines[number - 1] = line
    path.write_text("\n".join(lines), "utf-8")
    return path


def read(folder: Path, make: Callable[..., Loaded] = load_pairs, **options: Any) -> Any:
    """The number of training sentences, and what was logged."""
    corpus, logged = make(folder, max_line=100, **options)
    return len(corpus.train), logged


def refused(folder: Path, make: Callable[..., Loaded] = load_pairs, **options: Any) -> str:
    with pytest.raises(ValueError, match="more than max_line 100") as error:
        read(folder, make, **options)
    return str(error.value)


def test_a_training_line_is_named_where_it_stands_and_not_where_it_is_kept(tmp_path: Path) -> None:
    """The lines before it that cleaning leaves out count."""
    folder = write_corpus(tmp_path)
    put(folder / "train.de", 3, "")
    put(folder / "train.en", 6, "a " * 5)
    path = put(folder / "train.de", 9, WORDS)
    number, logged = read(folder, max_length=30 * 100)
    assert number == 38
    assert logged[1].startswith("1 of 39 training sentences left out, longer than max_line 100: ")
    assert f"{path}, line 9 has " in logged[1]


def test_letters_without_a_space_are_left_out_before_subwords_are_learned(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path)
    put(folder / "train.en", 7, LETTERS)
    number, logged = read(folder)
    assert number == 39
    assert "1 too long (the first is line 7)" in logged[0]
    assert read(folder, max_train_samples=6)[0] == 6


@pytest.mark.parametrize("line", [LETTERS, WORDS])
@pytest.mark.parametrize("name", ["valid.en", "test.de"])
def test_a_held_out_line_is_refused_by_file_and_line(tmp_path: Path, name: str, line: str) -> None:
    put(write_corpus(tmp_path) / "train.de", 1, "")  # left out, and moves no other line
    path = put(tmp_path / name, 4, line)
    assert refused(tmp_path).startswith(f"{path}, line 4 has ")
    packed = path.with_name(f"{name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert refused(tmp_path).startswith(f"{packed}, line 4 has ")


def test_a_source_that_is_cut_may_be_long(tmp_path: Path) -> None:
    put(write_corpus(tmp_path) / "test.en", 4, WORDS)
    assert read(tmp_path, max_source=50)[0] == 40


def test_every_reference_is_looked_at(tmp_path: Path) -> None:
    path = put(with_references(tmp_path) / "test.refs", 2, f"gap\t{WORDS}")
    assert refused(tmp_path, references="refs").startswith(f"{path}, line 2 has ")


def test_no_limit_is_asked_of_what_has_none(tmp_path: Path) -> None:
    pairs, text = write_corpus(tmp_path / "pairs"), write_text(tmp_path / "text")
    put(pairs / "test.de", 1, WORDS)
    put(text / "test.txt", 1, WORDS)
    load_pairs(pairs, max_line=0)
    load_text(text, max_line=0)
    load_text(text, block_size=7)


def test_a_line_of_a_running_text_without_blocks_is_named(tmp_path: Path) -> None:
    folder = write_text(tmp_path)
    train = put(folder / "train.txt", 2, WORDS)
    number, logged = read(folder, load_text)
    assert number == 39
    assert logged[1].endswith(f"{train}, line 2 has 121 tokens")
    path = put(folder / "valid.txt", 3, WORDS)
    assert refused(folder, load_text).startswith(f"{path}, line 3 has 121 tokens")


@pytest.mark.parametrize("name", ["valid.de", "test.fr", "bible/en-de/test.en"])
def test_a_held_out_line_of_any_task_is_named(tmp_path: Path, name: str) -> None:
    path = put(write_all(tmp_path) / name, 2, WORDS)
    assert refused(tmp_path, tasks=Tasks("de,fr,bible:de")).startswith(f"{path}, line 2 has ")


def test_a_training_line_of_a_later_task_is_named(tmp_path: Path) -> None:
    folder = write_all(tmp_path)
    put(folder / "train.fr", 1, "")
    path = put(folder / "train.fr", 4, WORDS)
    logged = read(folder, tasks=Tasks("de,fr"), max_length=3000)[1]
    assert f"{path}, line 4 has " in logged[-1]
