"""The cache gives back the corpus that was made, or makes it again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from latentheads.corpora import Corpus, Part, Rows, batches
from latentheads.corpora.cache import cached
from latentheads.corpora.from_grammar import sample_pairs, sample_text_corpus
from tests.latentheads.corpora.texts import pets, story


def never() -> Corpus:
    raise AssertionError("made although it is kept")


def kept(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def alike(left: Corpus, right: Corpus) -> bool:
    def said(corpus: Corpus) -> list[Any]:
        parts = [corpus.train, corpus.valid, corpus.test]
        rows = [rows for p in parts for rows in (p.targets, p.sources) if rows is not None]
        arrays = [(a.dtype, a.tolist()) for r in rows for a in (r.tokens, r.ends)]
        expected = [
            (
                list(p.references),
                list(p.alternatives),
                repr(p.true_log_probs),
                p.block_size,
                p.words,
            )
            for p in parts
        ]
        sides = [side and side.to_json() for side in (corpus.target, corpus.source)]
        return [corpus.name, arrays, expected, sides]

    return said(left) == said(right)


@pytest.mark.parametrize(
    "maker",
    [
        pets,
        lambda: pets(joint=False, tokenised=True),
        lambda: pets(test=[("Hund", "dog\thound")], multiple_references=True),
        lambda: sample_pairs(sentences=50, held_out=5),
        lambda: sample_text_corpus(sentences=50, held_out=5),
        lambda: story(block_size=3),
        lambda: story(unit="subword", block_size=3),
        story,
    ],
)
def test_a_kept_corpus_is_the_one_that_was_made(
    tmp_path: Path, maker: Callable[[], Corpus]
) -> None:
    made = maker()
    for again in (cached(tmp_path / "c", "k", maker), cached(tmp_path / "c", "k", never)):
        assert alike(made, again)
        assert (again.source is again.target) == (made.source is made.target)


@pytest.mark.parametrize("maker", [pets, lambda: story(block_size=3)])
def test_kept_ids_are_mapped_and_make_batches(tmp_path: Path, maker: Callable[[], Corpus]) -> None:
    cached(tmp_path, "k", maker)
    corpus = cached(tmp_path, "k", never)
    assert isinstance(corpus.train.targets.tokens.base, np.memmap)
    assert type(corpus.train.targets.tokens) is np.ndarray
    assert not corpus.train.targets.tokens.flags.writeable
    both = [next(batches(c.train, 64, seed=1)) for c in (maker(), corpus)]
    assert both[0].target.tolist() == both[1].target.tolist()
    assert both[0].decoder_input.tolist() == both[1].decoder_input.tolist()


def test_keys_do_not_share_a_place(tmp_path: Path) -> None:
    one = cached(tmp_path, "one", pets)
    two = cached(tmp_path, "two", lambda: pets(lowercase=True))
    assert not alike(one, two)
    assert alike(cached(tmp_path, "one", never), one)
    assert len(list(tmp_path.iterdir())) == 2


def shorten(name: str, size: int) -> Callable[[Path], object]:
    return lambda index: (index / name).write_bytes((index / name).read_bytes()[:size])


def spoil(name: str, index: int) -> Callable[[Path], object]:
    """Changes a byte."""

    def change(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[index] = ord("(")
        (folder / name).write_bytes(data)

    return change


def replace_array(name: str, array: np.ndarray) -> Callable[[Path], object]:
    return lambda index: np.save(index / name, array)


def exchange_ends(name: str) -> Callable[[Path], object]:
    """Exchanges the ends of the first two sentences; that of the last is right."""

    def change(folder: Path) -> None:
        ends = np.load(folder / name)
        ends[:2] = ends[1::-1]
        np.save(folder / name, ends)

    return change


def describe(**values: Any) -> Callable[[Path], object]:
    def change(scratch: Path) -> None:
        path = scratch / "corpus.json"
        options = {**json.loads(path.read_text(encoding="utf-8")), **values}
        path.write_text(json.dumps(options), encoding="utf-8")

    return change


ENDS = np.array([1, 2, 2 * 10**6])


@pytest.mark.parametrize(
    "damage",
    [
        shorten("corpus.json", 100),
        shorten("train.target.tokens.npy", 140),
        *(spoil("valid.source.ends.npy", index) for index in (0, 8, 10, 30, 61)),
        lambda index: (index / "test.source.ends.npy").unlink(),
        lambda index: shutil.rmtree(index) or index.write_bytes(b"x"),
        replace_array("test.target.tokens.npy", np.full(3, 10**6, np.int32)),
        replace_array("valid.target.ends.npy", ENDS),
        replace_array("valid.target.ends.npy", ENDS[::-1].copy()),
        exchange_ends("train.target.ends.npy"),
        describe(format=1),
        describe(key="another"),
        describe(target={"kind": "bpe"}),
        describe(block_size={}),
        describe(truth={"train": None, "valid": [0.0] * 99, "test": None}),
    ],
)
def test_a_broken_corpus_is_made_again(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    cached(tmp_path, "k", pets)
    damage(kept(tmp_path))
    maker = mock.Mock(wraps=pets)
    again = cached(tmp_path, "k", maker)
    assert maker.called
    assert alike(again, pets())
    assert alike(cached(tmp_path, "k", never), again)


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", fail)
    with pytest.raises(ValueError) as caught:
        cached(tmp_path, "k", pets)
    assert str(caught.value) == f"cannot write the cache {tmp_path}: No space left on device"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ValueError, match=r"cannot write the cache .*file/c: Not a directory"):
        cached(tmp_path / "file" / "c", "k", never)


def test_what_a_killed_process_left_goes_when_it_is_old(tmp_path: Path) -> None:
    cached(tmp_path, "k", pets)
    index = kept(tmp_path)
    shutil.rmtree(index)
    old, young, other = (
        index.parent / name for name in (f"{index.name}.a", f"{index.name}.b", "c")
    )
    for left in (old, young, other):
        (left / "whole").mkdir(parents=True)
    for left in (old, other):
        os.utime(left, (1e9, 1e9))
    cached(tmp_path, "k", pets)
    assert {path.name for path in tmp_path.iterdir()} == {index.name, young.name, "c"}


def test_another_process_may_be_first(tmp_path: Path) -> None:
    """Its files stay: on a disk that machines share, those that it reads would be gone."""
    stored: list[int] = []

    def late() -> Corpus:
        cached(tmp_path, "k", pets)
        stored.append((kept(tmp_path) / "train.target.tokens.npy").stat().st_ino)
        return pets()

    assert alike(cached(tmp_path, "k", late), pets())
    assert alike(cached(tmp_path, "k", never), pets())
    assert stored == [(kept(tmp_path) / "train.target.tokens.npy").stat().st_ino]


def test_an_empty_side_is_kept_too(tmp_path: Path) -> None:
    corpus = pets()
    empty = Part(Rows.of([]), Rows.of([]))
    corpus = Corpus("e", empty, empty, empty, corpus.processor)
    cached(tmp_path, "k", lambda: corpus)
    assert alike(cached(tmp_path, "k", never), corpus)
