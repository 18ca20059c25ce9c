"""A corpus from pairs, and the cache that gives back the same one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentheads.batch import EOS
from latentheads.corpora import Corpus, Part, Rows, Words, batches
from latentheads.corpora.cleaning import PUBLISHED
from latentheads.corpora.corpus import grammar, grammar_sources
from latentheads.corpora.parallel import cached, parallel
from latentheads.corpora.subwords import Subwords

TRAIN = [("Der Hund schläft .", "The dog sleeps ."), ("Ein Hund", "A dog")] * 5
DIRTY = [*TRAIN, ("", "empty"), ("Ja ja ja ja", "Yes")]
VALID = [("Der  Hund", "The DOG "), ("", ""), ("a " * 300, "b")]
TEST = [("Das Haus", "The house")]


def make(**options: Any) -> Corpus:
    return parallel(
        "pets", **{"train": TRAIN, "valid": VALID, "test": TEST, "types": 300, **options}
    )


def text(part: Part, corpus: Corpus) -> list[tuple[str, str]]:
    return [
        (corpus.source.decode(left.tolist()), corpus.target.decode(right.tolist()))
        for left, right in zip(part.sources, part.targets, strict=True)
    ]


def test_every_part_holds_its_pairs() -> None:
    corpus = make()
    assert corpus.name == "pets"
    for part, pairs in ((corpus.train, TRAIN), (corpus.valid, VALID), (corpus.test, TEST)):
        assert text(part, corpus) == pairs
        assert part.truth is None
    assert corpus.train.references == ()
    assert corpus.valid.references == ["The DOG ", "", "b"]
    assert next(batches(corpus.valid, 9999)).target.shape[0] == 3


def test_only_training_is_cleaned_and_the_counts_are_told() -> None:
    told: list[str] = []
    corpus = make(train=DIRTY, cleaning=PUBLISHED, tell=told.append)
    assert text(corpus.train, corpus) == TRAIN
    assert len(corpus.valid) == len(VALID)
    assert told == [
        "10 of 12 training pairs kept; left out: 1 empty on a side, 0 too long, "
        "1 too unlike in length"
    ]


def test_references_keep_their_case() -> None:
    corpus = make(lowercase=True)
    assert corpus.valid.references[0] == "The DOG "
    assert text(corpus.valid, corpus)[0] == ("der  hund", "the dog ")


def test_a_joint_vocabulary_is_one_object_that_knows_both_sides() -> None:
    corpus = make(tokenised=True)
    assert corpus.source is corpus.target
    assert corpus.source.decode(corpus.source.encode("Hund sleeps")) == "Hund sleeps"


def test_separate_vocabularies_know_their_own_side() -> None:
    corpus = make(joint=False, tokenised=True)
    assert corpus.source is not corpus.target
    assert corpus.source.decode(corpus.source.encode("ä")) == "ä"
    assert corpus.target.decode(corpus.target.encode("ä")) == "<unk>"


def test_a_given_vocabulary_is_used_and_nothing_is_learned() -> None:
    source, target = Words(["Hund"]), Subwords.train(["x"], 260)
    corpus = make(vocabulary=(source, target), types=1)
    assert corpus.source is source
    assert corpus.target is target
    assert corpus.train.sources[1].tolist() == [3, 4, EOS]


def test_streams_are_enough() -> None:
    def stream(pairs: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        yield from pairs

    corpus = make(train=stream(TRAIN), valid=stream(VALID), test=stream(TEST))
    assert text(corpus.valid, corpus) == VALID


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": [("", "a")]}, "pets has nothing to train on: 0 of 1 training pairs kept"),
        ({"valid": []}, "pets has no pair in valid"),
        ({"test": iter([])}, "pets has no pair in test"),
        ({"types": 3}, "types must be at least 260"),
    ],
)
def test_what_makes_no_corpus_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**options)


# The cache


def never() -> Corpus:
    raise AssertionError("made although it is kept")


def kept(folder: Path) -> Path:
    (place,) = folder.iterdir()
    return place


def alike(left: Corpus, right: Corpus) -> bool:
    def said(corpus: Corpus) -> list[Any]:
        parts = [corpus.train, corpus.valid, corpus.test]
        rows = [rows for p in parts for rows in (p.targets, p.sources) if rows is not None]
        arrays = [(a.dtype, a.tolist()) for r in rows for a in (r.tokens, r.ends)]
        known = [(list(part.references), part.truth) for part in parts]
        sides = [side and side.to_json() for side in (corpus.target, corpus.source)]
        return [corpus.name, arrays, known, sides]

    return said(left) == said(right)


@pytest.mark.parametrize(
    "maker",
    [
        make,
        lambda: make(joint=False, tokenised=True),
        lambda: grammar(sentences=50, held_out=5),
        lambda: grammar_sources(sentences=50, held_out=5),
    ],
)
def test_a_kept_corpus_is_the_one_that_was_made(
    tmp_path: Path, maker: Callable[[], Corpus]
) -> None:
    made = maker()
    for again in (cached(tmp_path / "c", "k", maker), cached(tmp_path / "c", "k", never)):
        assert alike(made, again)
        assert (again.source is again.target) == (made.source is made.target)


def test_kept_ids_are_mapped_and_make_batches(tmp_path: Path) -> None:
    cached(tmp_path, "k", make)
    corpus = cached(tmp_path, "k", never)
    assert isinstance(corpus.train.targets.tokens.base, np.memmap)
    assert type(corpus.train.targets.tokens) is np.ndarray
    assert not corpus.train.targets.tokens.flags.writeable
    both = [next(batches(c.train, 64, seed=1)) for c in (make(), corpus)]
    assert both[0].target.tolist() == both[1].target.tolist()


def test_keys_do_not_share_a_place(tmp_path: Path) -> None:
    one = cached(tmp_path, "one", make)
    two = cached(tmp_path, "two", lambda: make(lowercase=True))
    assert not alike(one, two)
    assert alike(cached(tmp_path, "one", never), one)
    assert len(list(tmp_path.iterdir())) == 2


def shorten(name: str, size: int) -> Callable[[Path], object]:
    return lambda place: (place / name).write_bytes((place / name).read_bytes()[:size])


def replace_array(name: str, array: np.ndarray) -> Callable[[Path], object]:
    return lambda place: np.save(place / name, array)


def describe(**values: Any) -> Callable[[Path], object]:
    def change(place: Path) -> None:
        path = place / "corpus.json"
        said = {**json.loads(path.read_text(encoding="utf-8")), **values}
        path.write_text(json.dumps(said), encoding="utf-8")

    return change


ENDS = np.array([1, 2, 2 * 10**6])


@pytest.mark.parametrize(
    "damage",
    [
        shorten("corpus.json", 100),
        shorten("corpus.json", 0),
        shorten("train.target.tokens.npy", 140),
        shorten("train.target.tokens.npy", 20),
        shorten("valid.source.ends.npy", 0),
        lambda place: (place / "test.source.ends.npy").unlink(),
        lambda place: shutil.rmtree(place) or place.write_bytes(b"x"),
        replace_array("test.target.tokens.npy", np.full(3, 10**6, np.int32)),
        replace_array("test.target.tokens.npy", np.zeros((3, 1), np.int32)),
        replace_array("test.target.tokens.npy", np.zeros(3)),
        replace_array("valid.target.ends.npy", ENDS),
        replace_array("valid.target.ends.npy", ENDS[::-1].copy()),
        describe(format=0),
        describe(key="another"),
        describe(target={"kind": "bpe"}),
        describe(source={"kind": "words", "words": 3}),
        describe(references={"train": [], "valid": ["x"], "test": ["x"]}),
        describe(truth={}),
        describe(truth=None),
    ],
)
def test_a_broken_corpus_is_made_again(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    cached(tmp_path, "k", make)
    damage(kept(tmp_path))
    again = cached(tmp_path, "k", make)
    assert alike(again, make())
    assert alike(cached(tmp_path, "k", never), again)


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", fail)
    with pytest.raises(ValueError) as caught:
        cached(tmp_path, "k", make)
    assert str(caught.value) == f"cannot write the cache {tmp_path}: No space left on device"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ValueError, match=r"cannot write the cache .*file/c: Not a directory"):
        cached(tmp_path / "file" / "c", "k", never)


def test_another_process_may_be_first(tmp_path: Path) -> None:
    def late() -> Corpus:
        cached(tmp_path, "k", make)
        return make()

    assert alike(cached(tmp_path, "k", late), make())
    assert alike(cached(tmp_path, "k", never), make())
    kept(tmp_path)


def test_an_empty_side_is_kept_too(tmp_path: Path) -> None:
    corpus = make()
    empty = Part(Rows.of([]), Rows.of([]))
    corpus = Corpus("e", empty, empty, empty, corpus.target, corpus.source)
    cached(tmp_path, "k", lambda: corpus)
    assert alike(cached(tmp_path, "k", never), corpus)
