"""Corpora from a folder of text and from the hub, as the command lines take them."""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentheads.corpora import Corpus
from tests.experiments.programs import ROOT, program

WORDS = [
    *("the", "of", "", "gap", "ça", "naïve", "Straße", "Ω", "—", "ﬁ", "<eos>", "😀"),
    *("👩\u200d👩\u200d👧", "x\u0085y", "a\u2028b", "e\u0301t\xa0et", "\ufeff"),
]
SIZES = {"train": 40, "valid": 6, "test": 7}
LANGUAGES = ["--source", "en", "--target", "de"]
SMALL = ["--width=8", "--feed_forward=8", "--heads=2", "--layers=1", "--types=300"]
BRIEF = ["--steps=3", "--report_every=2", "--tokens=128", "--samples=2"]


def write_corpus(folder: Path, compress: bool = False) -> Path:
    """A folder of raw text as awkward as real text is, the same every time."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    for part, number in SIZES.items():
        for language in ("en", "de"):
            lines = [" ".join(rng.choices(WORDS, k=rng.randint(1, 9))) for _ in range(number)]
            data = "".join(f"{line}\n" for line in lines).encode()
            if compress:
                (folder / f"{part}.{language}.gz").write_bytes(gzip.compress(data))
            else:
                (folder / f"{part}.{language}").write_bytes(data)
    return folder


@pytest.fixture(autouse=True)
def experiments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus")


def corpus_of(**options: Any) -> tuple[Corpus, list[str]]:
    """The corpus, and the lines that were told while it was made."""
    from data import Data, make_corpus

    told: list[str] = []
    given = {"source": "en", "target": "de", "types": 300, **options}
    return make_corpus(Data(**given), tell=told.append), told


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
    words = ["--data", str(folder), *LANGUAGES, *SMALL, *BRIEF, "--out", str(out)]
    done = program("run.py", *words)
    assert done.returncode == 0, done.stderr
    assert "40 of 40 training pairs kept" in done.stdout
    assert "corpus corpus en-de, 40 sentences" in done.stdout
    assert "tok:13a" in done.stdout
    assert (out / "test.references.txt").read_bytes() == (folder / "test.de").read_bytes()
    assert (out / "test.translations.txt").read_bytes().count(b"\n") == SIZES["test"]
    assert list(json.loads((out / "vocabulary.json").read_text("utf-8"))) == ["joint"]
    results = json.loads((out / "results.json").read_text())
    assert results["corpus"] == "corpus en-de"
    assert {"bleu", "bleu_signature", "chrf", "chrf_signature"} <= set(results["test"])
    assert results["test"]["truth"] is None
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
    import run
    from command import read_settings
    from experiment import Run

    packed, out = write_corpus(tmp_path / "packed", compress=True), tmp_path / "run"
    words = ["--data", str(packed), *LANGUAGES, *SMALL, *BRIEF, "--cache", str(tmp_path / "cache")]
    words += ["--joint=false", "--out", str(out)]
    assert run.main(words) == 0
    assert "40 of 40 training pairs kept" in capsys.readouterr().out
    assert list(json.loads((out / "vocabulary.json").read_text("utf-8"))) == ["target", "source"]
    assert (out / "test.references.txt").read_bytes() == (folder / "test.de").read_bytes()
    assert (out / "test.translations.txt").read_bytes().count(b"\n") == SIZES["test"]
    again = Run(read_settings(words, "run.py", "", lambda parser: None)[0])
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
    (spoil("train.de", lambda _: b"\n" * 40), "", "has nothing to train on: 0 of 40 training"),
    (lambda at: (at / "valid.de").unlink(), "", "corpus has no valid.de or valid.de.gz or val.de"),
    (lambda at: (at / "test.en").unlink(), "", "corpus has no test.en or test.en.gz; it has"),
    (nothing, "--target fr", "corpus has no train.fr or train.fr.gz; it has test.de, test.en"),
    (nothing, "--source de", "source and target must differ, got 'de' twice"),
    (nothing, "--data corpsu", "data must be one of grammar, pydoc, multi30k, iwslt14, iwslt17"),
    (nothing, "--data corpus/train.en", "or a folder; got 'corpus/train.en'"),
    (nothing, f"--data {'x' * 300}", "or a folder; got 'xxx"),
    (nothing, "--task language-model", "task language-model takes data grammar or pydoc"),
    (nothing, "--joint false --share all", "share all needs one joint vocabulary"),
    (
        nothing,
        "--data grammar --sentences 9 --held_out 3 --share all",
        "share all needs one joint vocabulary",
    ),
    (nothing, "--data grammar --hub_path corpus", "hub_path needs data to name what it holds"),
    (nothing, "--types 100", "must be at least 260, 4 special tokens and 256 bytes; got 100"),
    (nothing, "--types 0", "types must be at least 1, got 0"),
    (nothing, "--first -1", "first must be at least 0, got -1"),
    (nothing, "--max_ratio 0.5", "max_ratio must be at least 1, or 0 for none; got 0.5"),
    (nothing, "--max_length -1", "max_length must be at least 0 (0: no limit), got -1"),
    (nothing, "--max_length many", "--max_length"),
    (nothing, "--cache corpus/train.en", "cannot write the cache corpus/train.en: File exists"),
]


@pytest.mark.parametrize(("act", "words", "message"), MISTAKES)
def test_a_mistake_costs_one_line_and_writes_nothing(
    folder: Path,
    act: Callable[[Path], object],
    words: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import run

    monkeypatch.chdir(folder.parent)
    act(folder)
    given = ["--data", "corpus", *LANGUAGES, *SMALL, *BRIEF, "--out", "run", *words.split()]
    try:
        status: object = run.main(given)
    except SystemExit as left:
        status = left.code
    error = capsys.readouterr().err
    assert status == 2
    assert error.startswith("run.py: error: ")
    assert message in error
    assert error.count("\n") == 1
    assert sorted(os.listdir()) == ["corpus"]


def test_a_joint_vocabulary_may_share_every_table(folder: Path, tmp_path: Path) -> None:
    from command import read_settings
    from experiment import Run

    words = ["--data", str(folder), *LANGUAGES, *SMALL, "--share=all", "--out", str(tmp_path / "r")]
    model = Run(read_settings(words, "run.py", "", lambda parser: None)[0]).model
    assert model.source_embedding.table is model.target_embedding.table


def test_separate_vocabularies_of_one_size_share_no_table(folder: Path) -> None:
    from command import read_settings
    from loading import make_model

    found, _ = corpus_of(data=str(folder), joint=False, types=265)
    assert found.source is not None
    assert len(found.source) == len(found.target)
    words = ["--data", str(folder), *LANGUAGES, *SMALL, "--share=all"]
    settings, _ = read_settings(words, "run.py", "", lambda parser: None)
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
        "0 too unlike in length"
    ]
    assert found.name == f"{name} en-de"
    assert list(found.test.references) == [row["de"] for row in ROWS[3:5]]
    assert found.source is not None
    assert found.valid.sources is not None
    assert [found.source.decode(ids.tolist()) for ids in found.valid.sources] == [
        row["en"] for row in ROWS[:3]
    ]
    kept, told = corpus_of(**options, first=15)
    assert not told
    assert same(found, kept)
    write(place / "test", ROWS[9:12])
    changed, told = corpus_of(**options, first=15)
    assert told
    assert list(changed.test.references) == [row["de"] for row in ROWS[9:12]]


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
