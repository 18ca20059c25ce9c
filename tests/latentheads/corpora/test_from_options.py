"""Corpora from a folder of text and from the hub, as the command lines take them."""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentheads.corpora import Corpus
from tests.crossing import in_turn
from tests.experiments.programs import inside, results_of, status_of
from tests.latentheads.corpora.folders import LANGUAGES, SIZES, write_corpus, write_text
from tests.latentheads.corpora.texts import corpus_of
from tests.latentheads.runs.trained import BRIEF, SMALL


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus")


def same(one: Corpus, other: Corpus) -> bool:
    assert one.source is not None
    assert other.source is not None
    if [one.source.to_json(), one.target.to_json()] != [
        v.to_json() for v in (other.source, other.target)
    ]:
        return False
    for name in SIZES:
        mine, theirs = getattr(one, name), getattr(other, name)
        pairs = [(mine.targets, theirs.targets), (mine.sources, theirs.sources)]
        equal = [
            np.array_equal(a.tokens, b.tokens) and np.array_equal(a.ends, b.ends) for a, b in pairs
        ]
        if not all(equal) or list(mine.references) != list(theirs.references):
            return False
    return True


def test_a_folder_of_text_runs_from_end_to_end(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["--data", str(folder), *LANGUAGES, *SMALL, *BRIEF, "--decode.max_tokens=8"]
    done = inside("run.py", *words, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "40 of 40 training pairs kept" in done.stdout
    assert "corpus corpus en-de, from en to de, 40 sentences" in done.stdout
    assert "tok:13a" in done.stdout
    assert (out / "test.references.txt").read_bytes() == (folder / "test.de").read_bytes()
    assert (out / "test.translations.txt").read_bytes().count(b"\n") == SIZES["test"]
    assert list(json.loads((out / "vocabulary.json").read_text("utf-8"))) == ["joint"]
    results = results_of(out)
    assert results["corpus"] == "corpus en-de"
    assert {"bleu", "chrf"} <= set(results["test"])
    assert results["test"].truth is None
    assert results["test"]["tokens"] == corpus_of(data=str(folder))[0].test.tokens


def test_compressed_files_and_a_cache_give_the_same_corpus(folder: Path, tmp_path: Path) -> None:
    packed = write_corpus(tmp_path / "packed", compress=True)
    plain, told = corpus_of(data=str(folder))
    assert len(told) == 1
    options = {"data": str(packed), "cache": str(tmp_path / "cache")}
    first, told = corpus_of(**options)
    assert len(told) == 1
    assert first.name == "packed en-de"
    again, told = corpus_of(**options)
    assert not told
    assert again.source is again.target
    assert same(plain, first)
    assert same(first, again)


def test_a_run_of_compressed_files_goes_on_with_its_cache(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from latentheads.experiments import run
    from latentheads.experiments.cli.options import read_settings, trainer_of

    packed, out = write_corpus(tmp_path / "packed", compress=True), tmp_path / "run"
    words = [
        "--data",
        str(packed),
        *LANGUAGES,
        *SMALL,
        *BRIEF,
        "--data.cache",
        str(tmp_path / "cache"),
    ]
    words += ["--data.joint=false", "--out", str(out)]
    assert run.main(words) == 0
    assert "40 of 40 training pairs kept" in capsys.readouterr().out
    assert list(json.loads((out / "vocabulary.json").read_text("utf-8"))) == ["target", "source"]
    assert (out / "test.references.txt").read_bytes() == (folder / "test.de").read_bytes()
    assert (out / "test.translations.txt").read_bytes().count(b"\n") == SIZES["test"]
    again = trainer_of(*read_settings(words, "run.py", ""))
    assert "training pairs kept" not in capsys.readouterr().out
    assert again.engine.step == 3
    assert again.folder.results is not None


@pytest.mark.parametrize("name", ["train.en", "valid.de", "test.de"])
def test_a_changed_file_or_option_makes_the_cache_anew(
    folder: Path, tmp_path: Path, name: str
) -> None:
    options = {"data": str(folder), "cache": str(tmp_path / "cache")}
    before, _ = corpus_of(**options)
    lines = (folder / name).read_text("utf-8").split("\n")
    (folder / name).write_text("\n".join(["Neues!", *lines[1:]]), "utf-8")
    after, told = corpus_of(**options)
    assert told
    assert not same(before, after)
    assert same(after, corpus_of(data=str(folder))[0])
    lower, told = corpus_of(lowercase=True, **options)
    assert told
    assert lower.target.to_json()["lowercase"]


def test_a_cache_that_cannot_be_written_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match=r"^cannot write the cache .*file: File exists$"):
        corpus_of(data=str(folder), cache=str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_is_known_by_its_name_however_it_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.chdir(folder)
    for written in (".", "../corpus/", "~/corpus", str(folder)):
        assert corpus_of(data=written)[0].name == "corpus en-de"


def test_the_parts_may_have_other_names(folder: Path) -> None:
    for part, other in (("valid", "dev"), ("test", "flickr_2016")):
        for language in ("en", "de"):
            (folder / f"{part}.{language}").rename(folder / f"{other}.{language}")
    found, _ = corpus_of(data=str(folder), test_name="flickr_2016")
    assert [len(found.train), len(found.valid), len(found.test)] == list(SIZES.values())
    with pytest.raises(ValueError, match=r"has no test\.en or test\.en\.gz; it has dev\.de"):
        corpus_of(data=str(folder))


def test_the_first_pairs_and_the_limits_leave_held_out_text_alone(folder: Path) -> None:
    found, told = corpus_of(data=str(folder), first=30, max_length=6, max_ratio=2.0)
    assert told[0].startswith(f"{len(found.train)} of 30 training pairs kept; left out: ")
    assert len(found.train) < 30
    assert [len(found.valid), len(found.test)] == [6, 7]


def test_references_keep_their_case_where_the_model_has_none(folder: Path) -> None:
    found, _ = corpus_of(data=str(folder), lowercase=True)
    lines = (folder / "test.de").read_bytes().decode().removesuffix("\n").split("\n")
    assert list(found.test.references) == lines
    assert any(line != line.lower() for line in lines)


def spoil(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return act


def cut(data: bytes) -> bytes:
    return data[: data.rstrip(b"\n").rindex(b"\n") + 1]


def break_line(data: bytes) -> bytes:
    lines = data.split(b"\n")
    lines[4] += b"\xff"
    return b"\n".join(lines)


def nothing(folder: Path) -> None:
    pass


MISTAKES: list[tuple[Callable[[Path], object], str, str]] = [
    (spoil("train.de", cut), "", "train.en has 40 lines and corpus/train.de 39: line n of one"),
    (spoil("test.en", cut), "", "test.en has 6 lines and corpus/test.de 7: line n of one must"),
    (spoil("valid.en", break_line), "", "corpus/valid.en, line 5: byte 0xff is no UTF-8"),
    (spoil("train.de", lambda _: b""), "", "corpus/train.de is empty: one sentence a line"),
    (spoil("test.de", lambda _: b"\n" * 7), "", "corpus en-de has no word in the targets of test"),
    (spoil("train.de", lambda _: b"\n" * 40), "", "has nothing to train on: 0 of 40 training"),
    (lambda at: (at / "valid.de").unlink(), "", "corpus has no valid.de or valid.de.gz or val.de"),
    (lambda at: (at / "test.en").unlink(), "", "corpus has no test.en or test.en.gz; it has"),
    (nothing, "--data.target fr", "corpus has no train.fr or train.fr.gz; it has test.de, test.en"),
    (nothing, "--data.source de", "source and target must differ, got 'de' twice"),
    (
        nothing,
        "--data corpsu",
        "data must be one of grammar, pydoc, multi30k, iwslt14, iwslt17, wmt14, gigaword, "
        "cnn_dailymail, scitldr, wikitext-2, "
        "wikitext-103, or a folder; got 'corpsu'",
    ),
    (nothing, "--data corpus/train.en", "or a folder; got 'corpus/train.en'"),
    (nothing, "--data ./corpsu", "data must be a folder that there is, got './corpsu'"),
    (nothing, f"--data {'x' * 300}", "or a folder; got 'xxx"),
    (nothing, "--data.joint false --network.share all", "share all needs one joint vocabulary"),
    (
        nothing,
        "--data.vocab_size 100",
        "must be at least 260, 4 special tokens and 256 bytes; got 100",
    ),
    (
        nothing,
        "--data.vocab_size 1000000000",
        "types must be at most 16,777,216, got 1,000,000,000",
    ),
    (nothing, "--data.vocab_size 0", "types must be at least 1, got 0"),
    (nothing, "--data.max_train_samples -1", "first must be at least 0, got -1"),
    (nothing, "--data.max_ratio 0.5", "max_ratio must be at least 1, or 0 for none; got 0.5"),
    (nothing, "--data.max_source -1", "max_source must be at least 0, got -1"),
    (nothing, "--data.max_length -1", "max_length must be at least 0 (0: no limit), got -1"),
    (nothing, "--data.max_length many", "--data.max_length"),
    (
        nothing,
        "--data.cache corpus/train.en",
        "cannot write the cache corpus/train.en: File exists",
    ),
]


TEXT = "--task language-model"
MADE = "--data grammar --data.sentences 9 --data.held_out 3"
TEXT_MISTAKES: list[tuple[Callable[[Path], object], str, str]] = [
    (nothing, TEXT, "corpus has no train.txt or train.txt.gz; it has test.de, test.en, train.de"),
    (
        lambda at: (write_text(at) / "valid.txt").unlink(),
        TEXT,
        "corpus has no valid.txt or valid.txt.gz or val.txt",
    ),
    (lambda at: spoil("valid.txt", break_line)(write_text(at)), TEXT, "valid.txt, line 5: byte 0x"),
    (lambda at: spoil("test.txt", lambda _: b"")(write_text(at)), TEXT, "test.txt is empty"),
    (
        lambda at: spoil("test.txt", lambda _: b" \n\n")(write_text(at)),
        TEXT,
        "corpus has no word in test",
    ),
    (
        lambda at: (shutil.rmtree(at), write_text(at)),
        "",
        "corpus has no text in de or en, but running text in .txt: for a language model take task",
    ),
    (nothing, f"{MADE} --network.share all", "share all needs one joint vocabulary"),
    (nothing, f"{TEXT} --data.block -1", "block must be at least 0, got -1"),
    (
        nothing,
        f"{TEXT} --data.block 5 --data.context 5",
        "context must lie in 0 ... 4, a block less one, got 5",
    ),
    (
        nothing,
        f"{TEXT} --data.block 5 --data.context -1",
        "context must lie in 0 ... 4, a block less one, got -1",
    ),
    (nothing, f"{TEXT} --data.context -1", "context must be 0, got -1"),
    (nothing, f"{TEXT} --data.min_count 0", "minimum must be at least 1, got 0"),
    (
        nothing,
        f"{TEXT} --data.unit letter",
        "--data.unit: choose from 'word', 'subword'; got letter",
    ),
    (
        nothing,
        f"--data multi30k {TEXT}",
        "corpus must be one of wikitext-2, wikitext-103, or a path given; got 'multi30k'",
    ),
    (
        write_text,
        f"{TEXT} --recipe coda --data.unit subword --data.vocab_size 300 --network.cutoffs [9,19]",
        "cutoffs need types in the order of their frequency: use unit word",
    ),
    (
        write_text,
        f"{TEXT} --recipe coda --network.cutoffs [5,9] --label_smoothing 0.1",
        "label_smoothing needs a full softmax: drop it, or the cutoffs",
    ),
    (
        write_text,
        f"{TEXT} --recipe coda --network.cutoffs [9,999]",
        "cutoffs must rise between 0 and the",
    ),
]


@pytest.mark.parametrize(
    ("sides", "act", "words", "message"),
    [*((LANGUAGES, *mistake) for mistake in MISTAKES), *(([], *m) for m in TEXT_MISTAKES)],
)
def test_a_mistake_costs_one_line_and_writes_nothing(
    folder: Path,
    sides: list[str],
    act: Callable[[Path], object],
    words: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from latentheads.experiments import run

    monkeypatch.chdir(folder.parent)
    act(folder)
    given = ["--data", "corpus", *sides, *SMALL, *BRIEF, "--out", "run", *words.split()]
    status = status_of(run.main, *given)
    error = capsys.readouterr().err
    assert status == 2
    assert error.startswith("run.py: error: ")
    assert message in error
    assert error.count("\n") == 1
    assert sorted(os.listdir()) == ["corpus"]


def test_a_joint_vocabulary_may_share_every_table(folder: Path, tmp_path: Path) -> None:
    from latentheads.experiments.cli.options import read_settings, trainer_of

    words = [
        "--data",
        str(folder),
        *LANGUAGES,
        *SMALL,
        "--network.share=all",
        "--out",
        str(tmp_path / "r"),
    ]
    model = trainer_of(*read_settings(words, "run.py", "")).model
    assert model.source_embedding.table is model.target_embedding.table


def test_separate_vocabularies_of_one_size_share_no_table(folder: Path) -> None:
    from latentheads.experiments.cli.options import read_settings
    from latentheads.runs.build import make_model

    found, _ = corpus_of(data=str(folder), joint=False, types=265)
    assert found.source is not None
    assert len(found.source) == len(found.target)
    words = ["--data", str(folder), *LANGUAGES, *SMALL, "--network.share=all"]
    settings, _ = read_settings(words, "run.py", "")
    with pytest.raises(ValueError, match="share all needs one joint vocabulary"):
        make_model(settings, found.target, found.source)


ROWS = [{"en": f"a  word {n} 😀", "de": f"ein  Wort {n}\u0085 ß"} for n in range(20)]


def write_jsonl(path: Path, rows: list[dict[str, str]]) -> None:
    lines = [json.dumps({"translation": row}, ensure_ascii=False) for row in rows]
    path.with_suffix(".jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")


def write_parquet(path: Path, rows: list[dict[str, str]]) -> None:
    from pyarrow import Table, parquet

    parquet.write_table(Table.from_pylist(rows), path.with_suffix(".parquet"))


def write_csv(path: Path, rows: list[dict[str, str]]) -> None:
    with path.with_suffix(".csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["en", "de"])
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def hub_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "datasets"))


@pytest.mark.usefixtures("hub_cache")
@pytest.mark.parametrize(
    ("name", "write"), [("mine", write_jsonl), ("multi30k", write_parquet), ("multi30k", write_csv)]
)
def test_local_files_of_the_hub_are_a_corpus_and_kept_until_they_change(
    name: str, write: Callable[[Path, list[dict[str, str]]], None], tmp_path: Path
) -> None:
    place = tmp_path / "hub"
    place.mkdir()
    for split, rows in (("train", ROWS), ("validation", ROWS[:3]), ("test", ROWS[3:5])):
        write(place / split, rows)
    options = {"data": name, "hub_path": str(place), "cache": str(tmp_path / "cache")}
    found, told = corpus_of(**options, first=15)
    assert told == [
        "15 of 15 training pairs kept; left out: 0 empty on a side, 0 too long, "
        "0 too unlike in length",
        "3 of 3 sentences of valid and 2 of 2 of test stand in training too",
    ]
    assert found.name == f"{name} en-de"
    assert list(found.test.references) == [row["de"] for row in ROWS[3:5]]
    assert found.source is not None
    assert found.valid.sources is not None
    assert [found.source.decode(ids.tolist()) for ids in found.valid.sources] == [
        row["en"] for row in ROWS[:3]
    ]
    kept, said = corpus_of(**options, first=15)
    assert said == told[1:]
    assert same(found, kept)
    write(place / "test", ROWS[9:12])
    changed, said = corpus_of(**options, first=15)
    assert said[0] == told[0]
    assert list(changed.test.references) == [row["de"] for row in ROWS[9:12]]


@pytest.mark.usefixtures("hub_cache")
@pytest.mark.parametrize("inside", ["", "cache"])
def test_a_cache_may_lie_beside_local_files_of_the_hub(inside: str, tmp_path: Path) -> None:
    place = tmp_path / "hub"
    place.mkdir()
    for split in ("train", "validation", "test"):
        write_jsonl(place / split, ROWS)
    options = {"data": "mine", "hub_path": str(place), "cache": str(place / inside)}
    found, told = corpus_of(**options)
    kept, said = corpus_of(**options)
    assert len(told) == len(said) + 1, "it is read once"
    assert same(found, kept)
    write_jsonl(place / "test", ROWS[:3])
    assert len(corpus_of(**options)[0].test) == 3


@pytest.mark.usefixtures("hub_cache")
def test_of_a_list_of_targets_training_has_the_first(tmp_path: Path) -> None:
    rows = [{"en": [row["en"]], "de": [row["de"], "gap"]} for row in ROWS]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    place = tmp_path / "hub"
    place.mkdir()
    for split in ("train", "validation", "test"):
        (place / f"{split}.jsonl").write_text(lines, "utf-8")
    found, _ = corpus_of(data="scitldr", hub_path=str(place))
    first = [" ".join(row["de"].split()) for row in ROWS]
    assert list(found.test.alternatives) == [[one, "gap"] for one in first]
    assert [found.target.decode(ids.tolist()) for ids in found.train.targets] == first


@pytest.mark.usefixtures("hub_cache")
def test_what_the_hub_lacks_is_named(tmp_path: Path) -> None:
    place = tmp_path / "hub"
    place.mkdir()
    for split in ("train", "validation"):
        write_jsonl(place / split, ROWS)
    options = {"data": "mine", "hub_path": str(place)}
    with pytest.raises(ValueError, match="hub has no 'fr'; it has en, de"):
        corpus_of(**options, target="fr")
    with pytest.raises(ValueError, match="cannot read split 'test' of "):
        corpus_of(**options)
    shutil.rmtree(place)
    with pytest.raises(ValueError, match="cannot read split 'train' of "):
        corpus_of(**options)


# Running text for a language model


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return write_text(tmp_path / "novel")


def text_of(**options: Any) -> tuple[Corpus, list[str]]:
    return corpus_of(task="language-model", **options)


def same_text(one: Corpus, other: Corpus) -> bool:
    def said(corpus: Corpus) -> list[Any]:
        parts = [corpus.train, corpus.valid, corpus.test]
        arrays = [a.tolist() for p in parts for a in (p.targets.tokens, p.targets.ends)]
        return [corpus.target.to_json(), arrays, [(p.block, p.words) for p in parts]]

    return said(one) == said(other)


def words_in(path: Path) -> int:
    return sum(len(line.split()) + 1 for line in path.read_text("utf-8").split("\n")[:-1])


@pytest.mark.parametrize("block", [0, 7])
def test_a_folder_of_text_is_a_corpus_for_a_language_model(texts: Path, block: int) -> None:
    found, told = text_of(data=str(texts), block=block)
    assert found.name == "novel"
    assert found.source is None
    assert len(told) == (1 if block else 2)
    assert f" tokens, vocabulary size {len(found.target)}, " in told[0]
    for name in SIZES:
        part = getattr(found, name)
        assert part.tokens == part.words == words_in(texts / f"{name}.txt")
        assert len(part) == (-(-part.tokens // block) if block else SIZES[name])


def test_options_reach_the_text(texts: Path) -> None:
    (texts / "valid.txt").rename(texts / "dev.txt")
    (texts / "test.txt").rename(texts / "unseen.txt")
    options = {"data": str(texts), "test_name": "unseen"}
    plain, _ = text_of(**options)
    rare, _ = text_of(**options, minimum=9)
    assert len(rare.target) < len(plain.target)
    lower, _ = text_of(**options, lowercase=True)
    assert "straße" in lower.target.words
    first, _ = text_of(**options, first=3)
    assert (len(first.train), len(first.valid), len(first.test)) == (3, 6, 7)
    subwords, _ = text_of(**options, unit="subword", types=280)
    assert len(subwords.target) == 280
    assert [p.words for p in (subwords.train, subwords.test)] == [
        p.words for p in (plain.train, plain.test)
    ]
    pair, _ = text_of(**options, source="en", target="en")
    assert same_text(pair, plain)


@pytest.mark.parametrize("unit", ["word", "subword"])
def test_a_kept_text_is_used_again_until_it_changes(texts: Path, tmp_path: Path, unit: str) -> None:
    packed = write_text(tmp_path / "packed" / "novel", compress=True)
    cache = {"cache": str(tmp_path / "cache")}
    options = {"block": 7, "unit": unit}
    plain, _ = text_of(data=str(texts), **options)
    first, told = text_of(data=str(packed), **options, **cache)
    assert told
    assert same_text(plain, first)
    again, told = text_of(data=str(packed), **options, **cache)
    assert not told
    assert same_text(first, again)
    assert isinstance(again.train.targets.tokens.base, np.memmap)
    asked, told = text_of(data=str(packed), **options, **cache, context=3)
    assert not told, "the context is of the evaluation alone"
    assert same_text(first, asked)
    other, told = text_of(data=str(packed), **{**options, "block": 5}, **cache)
    assert told
    assert not same_text(first, other)
    for name in ("train", "valid", "test"):
        path = packed / f"{name}.txt.gz"
        path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + b"new words\n"))
        changed, told = text_of(data=str(packed), **options, **cache)
        assert told
        assert getattr(changed, name).words == getattr(first, name).words + 3


def test_pydoc_may_be_kept_too(tmp_path: Path) -> None:
    options = {"data": "pydoc", "minimum": 3, "block": 64, "cache": str(tmp_path)}
    first, told = corpus_of(**options)
    assert told
    again, told = corpus_of(**options)
    assert not told
    assert same_text(first, again)
    assert first.name == "pydoc"
    assert first.train.tokens > 20_000
    assert len(first.target) > 500


@pytest.mark.usefixtures("hub_cache")
@pytest.mark.parametrize("name", ["mine", "wikitext-2"])
def test_local_files_of_the_hub_are_a_text_and_kept_until_they_change(
    name: str, tmp_path: Path
) -> None:
    place = tmp_path / "hub"
    place.mkdir()

    def write(split: str, *lines: str) -> None:
        rows = (json.dumps({"text": line}) for line in lines)
        (place / f"{split}.jsonl").write_text("".join(f"{row}\n" for row in rows), "utf-8")

    write("train", " = One = \n", "", "a b c\n")
    write("validation", "a b\n")
    write("test", "c\n")
    options = {"data": name, "hub_path": str(place), "block": 4, "cache": str(tmp_path / "cache")}
    found, told = text_of(**options)
    assert told
    assert found.name == name
    assert [p.words for p in (found.train, found.valid, found.test)] == [9, 3, 2]
    assert found.train.targets.lengths.tolist() == [4, 4, 1]
    assert not text_of(**options)[1]
    write("test", "c b a\n")
    changed, told = text_of(**options)
    assert told
    assert changed.test.words == 4


@in_turn(unit=["word", "subword"], recipe=["transformer", "cascaded"])
def test_a_text_in_blocks_runs_from_end_to_end(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], unit: str, recipe: str
) -> None:
    from latentheads.experiments import run

    out, cut = tmp_path / "run", ["--task=language-model", "--data.block=7", "--data.context=3"]
    units = ["--data.unit=subword", "--data.vocab_size=300"] if unit == "subword" else []
    words = ["--data", str(texts), *cut, *SMALL, *BRIEF, *units, "--recipe", recipe]
    assert run.main([*words, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    corpus = text_of(data=str(texts), unit=unit)[0]
    blocks = -(-corpus.train.tokens // 7)
    assert f"corpus novel, {blocks} blocks" in printed
    results = results_of(out)
    assert "bleu" not in results["test"]
    modes = ["blocks of 7", "windows of 7, 3 before each token"]
    found = results["perplexity"]
    assert [(one["mode"], one["part"]) for one in found] == [
        (mode, part) for mode in modes for part in ("valid", "test")
    ]
    for one in found:
        assert f"by {one['mode']}" in printed
        part = getattr(corpus, one["part"])
        assert (one["tokens"], one["iwae_k"]) == (part.tokens, 2)
        assert set(one["token"]) == set(one["word"]) == {"elbo", "iwae", "plug_in"}
        for name, value in one["token"].items():
            nats = part.tokens * math.log(value)
            assert one["word"][name] == pytest.approx(math.exp(nats / part.words))
            if one["mode"] == modes[0]:
                report = results[one["part"]]
                assert value == pytest.approx(math.exp(-report[name]), rel=1e-12)
        if recipe == "transformer":
            assert one["token"]["plug_in"] == one["token"]["elbo"]
        else:
            assert one["token"]["plug_in"] != one["token"]["elbo"]
        assert (one["word"] == one["token"]) == (unit == "word")
    assert found[0]["token"] != found[2]["token"]
    for title in ("perplexity, plug-in", "perplexity from the bound"):
        assert printed.count(title) == (2 if unit == "word" else 4)
    assert printed.count("perplexity from IWAE_2, by word") == (0 if unit == "word" else 2)


def test_a_text_of_lines_has_a_perplexity_by_sentences(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from latentheads.experiments import run

    words = ["--data", str(texts), "--task=language-model", *SMALL, *BRIEF]
    assert run.main([*words, "--recipe=coda", "--out", str(tmp_path / "run")]) == 0
    assert "corpus novel, 40 sentences" in capsys.readouterr().out
    found = results_of(tmp_path / "run")["perplexity"]
    assert [(one["mode"], one["part"]) for one in found] == [
        ("sentences", "valid"),
        ("sentences", "test"),
    ]
    assert run.main([*words, "--recipe=coda", "--out", str(tmp_path / "run")]) == 0
    again = capsys.readouterr().out
    assert "is finished; --overwrite trains it anew" in again
    assert "  by sentences" in again


def test_a_run_of_blocks_with_an_adaptive_softmax_goes_on_where_it_was_stopped(
    texts: Path, tmp_path: Path
) -> None:
    import torch

    from latentheads.experiments import run
    from latentheads.training import checkpoints

    cut = ["--task=language-model", "--data.block=7", "--data.context=3"]
    words = [
        "--data",
        str(texts),
        *cut,
        *SMALL,
        "--train.tokens=64",
        "--samples=2",
        "--recipe=cascaded",
    ]
    words += ["--network.cutoffs=[6,11]", "--network.adaptive_factor=2", "--network.dropout=0.2"]
    words += ["--train.report_every=5", "--data.cache", str(tmp_path / "cache")]
    whole, halted = tmp_path / "whole", tmp_path / "halted"
    assert run.main([*words, "--train.steps=9", "--out", str(whole)]) == 0

    from latentheads.runs.trainer import Trainer

    watch, seen = Trainer._checkpoint, []

    def stop(self: Trainer) -> None:
        watch(self)
        seen.append(self.engine.step)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_checkpoint", stop)
        assert status_of(run.main, *words, "--train.steps=9", "--out", str(halted)) == 130
    assert seen == [5]
    assert run.main([*words, "--train.steps=9", "--out", str(halted)]) == 0
    one, two = (
        checkpoints.load(o / "checkpoints" / "last.safetensors")[0] for o in (whole, halted)
    )
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert results_of(whole)["perplexity"] == results_of(halted)["perplexity"]


def test_a_run_of_another_text_is_not_gone_on_with(texts: Path, tmp_path: Path) -> None:
    from latentheads.experiments import run

    words = ["--data", str(texts), "--task=language-model", "--data.block=7", *SMALL, *BRIEF]
    words += ["--recipe=transformer", "--out", str(tmp_path / "run")]
    assert run.main(words) == 0
    (tmp_path / "run" / "results.json").unlink()
    with (texts / "train.txt").open("a", encoding="utf-8") as file:
        file.write("and so on\n")
    assert status_of(run.main, *words) == 2
