"""Pairs of texts from folders and from the hub, with their cache and their mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
from pyarrow import Table, parquet

from latentheads.batch import UNK
from latentheads.corpora.text import normalise_whitespace, read_pairs
from latentheads.data import Hub, Pairs, Tasks
from tests.latentheads.corpora.folders import (
    SIZES,
    with_references,
    write_all,
    write_corpus,
    write_languages,
)
from tests.latentheads.corpora.texts import pairs_of
from tests.latentheads.data.loading import Loaded, load, load_pairs, same


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus")


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def test_compressed_files_and_a_cache_give_the_same_corpus(folder: Path, tmp_path: Path) -> None:
    packed = write_corpus(tmp_path / "packed", compress=True)
    plain, logged = load_pairs(folder)
    assert len(logged) == 1
    cache = str(tmp_path / "cache")
    first, logged = load_pairs(packed, cache=cache)
    assert len(logged) == 1
    assert first.name == "packed en-de"
    again, logged = load_pairs(packed, cache=cache)
    assert not logged
    assert again.source is again.target
    assert same(plain, first)
    assert same(first, again)


def test_a_cache_is_recommended_where_reading_takes_long(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latentheads.data.base.SLOW", 0.0)
    for cache, expected in (("", True), (str(tmp_path / "cache"), False)):
        _, logged = load_pairs(folder, cache=cache)
        assert any("s; with --data.cache FOLDER later" in line for line in logged) == expected


@pytest.mark.parametrize("name", ["train.en", "valid.de", "test.de"])
def test_a_changed_file_or_option_makes_the_cache_anew(
    folder: Path, tmp_path: Path, name: str
) -> None:
    cache = str(tmp_path / "cache")
    before, _ = load_pairs(folder, cache=cache)
    _, *lines = (folder / name).read_text("utf-8").split("\n")
    (folder / name).write_text("\n".join(["Neues!", *lines]), "utf-8")
    after, logged = load_pairs(folder, cache=cache)
    assert logged
    assert not same(before, after)
    assert same(after, load_pairs(folder)[0])
    lower, logged = load_pairs(folder, cache=cache, lowercase=True)
    assert logged
    assert lower.target.to_json()["lowercase"]


def test_a_folder_is_known_by_its_name_however_it_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.chdir(folder)
    for written in (".", "../corpus/", "~/corpus", str(folder)):
        assert load(Pairs(written, source="en", target="de"))[0].name == "corpus en-de"


def test_many_unknown_tokens_of_held_out_targets_are_counted(tmp_path: Path) -> None:
    for part, text in (("train", "a b\nb a\n" * 3), ("valid", "a b\n"), ("test", "a c\nb a\n")):
        for language in ("en", "de"):
            (tmp_path / f"{part}.{language}").write_text(text, "utf-8")
    corpus, logged = load_pairs(tmp_path, tokenised=True)
    share = (corpus.test.targets.tokens == UNK).mean()
    assert 0 < share < 1
    expected = f"{share:.1%} of the target tokens of test are unknown: all scores take them for one"
    assert [line for line in logged if "unknown" in line] == [expected]


def test_the_parts_may_have_other_names(folder: Path) -> None:
    for part, other in (("valid", "dev"), ("test", "flickr_2016")):
        for language in ("en", "de"):
            (folder / f"{part}.{language}").rename(folder / f"{other}.{language}")
    corpus, _ = load_pairs(folder, test_name="flickr_2016")
    assert [len(corpus.train), len(corpus.valid), len(corpus.test)] == list(SIZES.values())
    with pytest.raises(ValueError, match=r"has no test\.en or test\.en\.gz; it has dev\.de"):
        load_pairs(folder)


def test_the_first_pairs_and_the_limits_leave_held_out_text_alone(folder: Path) -> None:
    corpus, logged = load_pairs(folder, max_train_samples=30, max_length=6, max_ratio=2.0)
    assert logged[0].startswith(f"{len(corpus.train)} of 30 training pairs kept; left out: ")
    assert len(corpus.train) < 30
    assert [len(corpus.valid), len(corpus.test)] == [6, 7]


@pytest.mark.parametrize("whitespace", ["normalise", "keep"])
def test_white_space_is_normalised_unless_it_is_kept(folder: Path, whitespace: str) -> None:
    for language, line in (("en", "\tthe \t gap\n"), ("de", " ein  Satz \n")):
        with (folder / f"train.{language}").open("a", encoding="utf-8") as file:
            file.write(line)
    corpus, _ = load_pairs(folder, whitespace=whitespace)
    for name in SIZES:
        pairs = read_pairs(folder, name, "en", "de")
        assert any("  " in line for pair in pairs for line in pair)
        if whitespace == "normalise":
            pairs = [tuple(map(normalise_whitespace, pair)) for pair in pairs]
        assert pairs_of(corpus, getattr(corpus, name)) == pairs
    assert list(corpus.test.references) == [right for _, right in pairs]


def test_references_of_a_line_are_normalised_one_by_one(folder: Path) -> None:
    with_references(folder)
    lines = ["  the\u00a0 gap \t of  the\t\t "] * SIZES["test"]
    (folder / "test.refs").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    normalised, _ = load_pairs(folder, references="refs")
    assert list(normalised.test.alternatives[0]) == ["the\u00a0 gap", "of the"]
    kept, _ = load_pairs(folder, references="refs", whitespace="keep")
    assert list(kept.test.alternatives[0]) == ["  the\u00a0 gap ", " of  the"]


def test_references_keep_their_case_where_the_model_has_none(folder: Path) -> None:
    corpus, _ = load_pairs(folder, lowercase=True, whitespace="keep")
    lines = lines_of(folder / "test.de")
    assert list(corpus.test.references) == lines
    assert any(line != line.lower() for line in lines)


def test_of_a_line_of_training_with_a_tab_all_is_one_target(folder: Path) -> None:
    path = with_references(folder) / "train.de"
    first, *others = path.read_text("utf-8").split("\n")
    path.write_text("\n".join([f"{first}\tof the gap", *others]), "utf-8")
    train = load_pairs(folder, references="refs")[0].train
    plain = load_pairs(folder)[0].train
    assert [row.tolist() for row in train.targets] == [row.tolist() for row in plain.targets]


def test_beside_references_no_other_held_out_target_is_looked_for(tmp_path: Path) -> None:
    folder, cache = with_references(tmp_path / "text"), str(tmp_path / "cache")
    for part in ("valid", "test"):
        (folder / f"{part}.de").unlink()
    plain, _ = load_pairs(folder, references="refs")
    for _ in range(2):
        kept, logged = load_pairs(folder, references="refs", cache=cache)
        assert kept.test.alternatives == plain.test.alternatives
    assert not logged
    (folder / "test.refs").write_bytes((folder / "valid.refs").read_bytes())
    (folder / "test.en").write_bytes((folder / "valid.en").read_bytes())
    changed, _ = load_pairs(folder, references="refs", cache=cache)
    assert changed.test.alternatives == plain.valid.alternatives


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("source", "de", "^target must differ from source, got 'de' twice$"),
        ("vocab_size", 0, "^vocab_size must be at least 1, got 0$"),
        ("vocab_size", 10**9, "^vocab_size must be at most 16,777,216, got 1,000,000,000$"),
        ("vocab_size", 100, "^vocab_size must be at least 260, 4 special tokens and 256 bytes;"),
        ("max_train_samples", -1, "^max_train_samples must be at least 0, got -1$"),
        ("max_source", -1, "^max_source must be at least 0, got -1$"),
        ("max_line", -1, "^max_line must be at least 0, got -1$"),
        ("max_ratio", 0.5, "^max_ratio must be at least 1, or 0 for none; got 0.5$"),
        ("max_length", -1, r"^max_length must be at least 0, got -1$"),
        ("target", "fr", r"corpus has no train\.fr or train\.fr\.gz; it has test\.de, test\.en"),
    ],
)
def test_an_option_out_of_range_is_refused(
    folder: Path, option: str, value: object, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        load_pairs(folder, **{option: value})


# Tasks

TASKS = "de,fr,fr-de,bible:de"


def load_tasks(folder: Path, tasks: Tasks | str, **options: Any) -> Loaded:
    tasks = Tasks(tasks) if isinstance(tasks, str) else tasks
    return load(Pairs(str(folder), source="en", vocab_size=300, tasks=tasks, **options))


@pytest.fixture
def languages(tmp_path: Path) -> Path:
    return write_all(tmp_path / "corpus")


@pytest.mark.parametrize(
    ("tasks", "encoder", "decoder", "tags"),
    [
        ("de,fr", ("en",), ("de", "fr"), True),
        ("de-en,fr-en", ("de", "fr"), ("en",), False),
        ("de-fr,fr-de,de,fr-en", ("de", "fr", "en"), ("fr", "de", "en"), True),
        ("de,bible:de", ("en",), ("de",), False),
    ],
)
def test_directions_of_a_folder_make_one_corpus(
    languages: Path, tasks: str, encoder: tuple[str], decoder: tuple[str], tags: bool
) -> None:
    corpus, logged = load_tasks(languages, tasks)
    number = len(tasks.split(","))
    assert corpus.train.mixture is not None
    assert (corpus.train.mixture.sources, corpus.train.mixture.targets) == (encoder, decoder)
    assert corpus.name == f"corpus {','.join(task.name for task in corpus.tasks)}"
    assert len(corpus.train) == 40 * number
    assert len(logged) == number
    assert corpus.source is corpus.target
    assert hasattr(corpus.source, "tags") == tags
    for part in (corpus.train, corpus.valid, corpus.test):
        for index, source, target in zip(part.task, part.sources, part.targets, strict=True):
            task = corpus.tasks[index]
            assert corpus.source.decode(source.tolist()).split()[0] == task.source
            assert corpus.target.decode(target.tolist()).split()[0] == task.target


def test_a_domain_is_read_from_its_folder_and_may_be_what_tasks_are_distinguished_by(
    languages: Path,
) -> None:
    write_languages(languages / "help", "en de", seed=2)
    corpus, _ = load_tasks(languages, Tasks("bible:de,help:de", distinguish_by="domain"))
    assert corpus.train.mixture is not None
    assert corpus.train.mixture.sources == corpus.train.mixture.targets == ("bible", "help")
    folders = languages / "bible" / "en-de", languages / "help"
    assert list(corpus.test.references) == [
        line for folder in folders for line in lines_of(folder / "test.de")
    ]


def test_the_size_of_a_task_may_be_cut_in_training_alone(languages: Path) -> None:
    corpus, _ = load_tasks(languages, Tasks("de,fr", sizes=(30, 4)))
    assert [len(corpus.train.indices_of_task(task)) for task in range(2)] == [30, 4]
    assert [len(corpus.test.indices_of_task(task)) for task in range(2)] == [7, 7]
    corpus, _ = load_tasks(languages, "de,fr", max_train_samples=9)
    assert [len(corpus.train.indices_of_task(task)) for task in range(2)] == [9, 9]


def test_a_kept_corpus_serves_every_way_to_mix_it_until_a_file_changes(
    languages: Path, tmp_path: Path
) -> None:
    cache = str(tmp_path / "cache")
    plain, logged = load_tasks(languages, TASKS, cache=cache)
    assert len(logged) == 4
    mixed, logged = load_tasks(languages, Tasks(TASKS, temperature=5, one_task=True), cache=cache)
    assert not logged
    assert mixed.train.mixture is not None
    assert (mixed.train.mixture.temperature, mixed.train.mixture.one_task) == (5.0, True)
    assert mixed.tasks == plain.tasks
    assert mixed.train.task.tolist() == plain.train.task.tolist()
    assert same(plain, mixed)
    other, logged = load_tasks(languages, "de,fr", cache=cache)
    assert logged
    assert len(other.tasks) == 2
    for name, line in (("test.de", "und\n"), ("test.en", "\n")):
        with (languages / "bible" / "en-de" / name).open("a", encoding="utf-8") as file:
            file.write(line)
    changed, logged = load_tasks(languages, TASKS, cache=cache)
    assert len(changed.test) == len(plain.test) + 1
    assert f"1 of {len(changed.test)} pairs of test are empty on a side, and are" in logged[-1]


# The hub

ROWS = [{"en": f"a  word {n} 😀", "de": f"ein  Wort {n}\u0085 ß"} for n in range(20)]


def write_jsonl(path: Path, rows: list[dict[str, str]]) -> None:
    lines = [json.dumps({"translation": row}, ensure_ascii=False) for row in rows]
    path.with_suffix(".jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")


def write_parquet(path: Path, rows: list[dict[str, str]]) -> None:
    parquet.write_table(Table.from_pylist(rows), path.with_suffix(".parquet"))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder for local files of the hub, whose library caches beside it."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    (tmp_path / "hub").mkdir()
    return tmp_path / "hub"


def load_hub(name: str, path: Path, **options: Any) -> Loaded:
    given = {"source": "en", "target": "de", "vocab_size": 300, **options}
    return load(Hub(name, path=str(path), **given))


def test_held_out_pairs_with_an_empty_side_are_counted(hub: Path) -> None:
    test = [ROWS[3], {"en": "a", "de": "acht"}, {"en": " ", "de": "acht"}]
    for split, rows in (("train", ROWS), ("validation", ROWS[:3]), ("test", test)):
        write_jsonl(hub / split, rows)
    corpus, logged = load_hub("mine", hub)
    assert logged[-1] == "1 of 3 pairs of test are empty on a side, and are scored like all others"
    assert len(corpus.test) == 3
    both, _ = load(Hub("mine", path=str(hub), source="en", tasks=Tasks("de,de-en")))
    assert [task.name for task in both.tasks] == ["en-de", "de-en"]


@pytest.mark.parametrize(("name", "write"), [("mine", write_jsonl), ("multi30k", write_parquet)])
def test_local_files_of_the_hub_are_a_corpus_and_kept_until_they_change(
    hub: Path, name: str, write: Callable[[Path, list[dict[str, str]]], None], tmp_path: Path
) -> None:
    for split, rows in (("train", ROWS), ("validation", ROWS[:3]), ("test", ROWS[3:5])):
        write(hub / split, rows)
    options = {"cache": str(tmp_path / "cache"), "max_train_samples": 15, "whitespace": "keep"}
    corpus, logged = load_hub(name, hub, **options)
    assert logged == [
        "15 of 15 training pairs kept; left out: 0 empty on a side, 0 too long, "
        "0 too unlike in length",
        "3 of 3 sentences of valid and 2 of 2 of test stand in training too",
    ]
    assert corpus.name == f"{name} en-de"
    assert list(corpus.test.references) == [row["de"] for row in ROWS[3:5]]
    assert corpus.source_texts(corpus.valid) == [row["en"] for row in ROWS[:3]]
    kept, more = load_hub(name, hub, **options)
    assert more == logged[1:]
    assert same(corpus, kept)
    write(hub / "test", ROWS[9:12])
    changed, more = load_hub(name, hub, **options)
    assert more[0] == logged[0]
    assert list(changed.test.references) == [row["de"] for row in ROWS[9:12]]


@pytest.mark.parametrize("inside", ["", "cache"])
def test_a_cache_may_lie_beside_local_files_of_the_hub(
    hub: Path, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(hub.parent))
    for split in ("train", "validation", "test"):
        write_jsonl(hub / split, ROWS)
    cache = str(hub / inside)
    corpus, logged = load_hub("mine", hub, cache=cache)
    kept, more = load_hub("mine", hub, cache=cache)
    assert len(logged) == len(more) + 1, "it is read once"
    assert same(corpus, kept)
    at_home = Path("~", hub.name)
    assert same(load_hub("mine", at_home, cache=cache)[0], corpus)
    write_jsonl(hub / "test", ROWS[:3])
    for path in (hub, at_home):
        assert len(load_hub("mine", path, cache=cache)[0].test) == 3


def test_of_a_list_of_targets_training_has_the_first(hub: Path) -> None:
    rows = [{"en": [row["en"]], "de": [row["de"], "gap"]} for row in ROWS]
    for split in ("train", "validation", "test"):
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        (hub / f"{split}.jsonl").write_text(text, "utf-8")
    corpus, _ = load_hub("scitldr", hub)
    first = [" ".join(row["de"].split()) for row in ROWS]
    assert list(corpus.test.alternatives) == [[one, "gap"] for one in first]
    assert [corpus.target.decode(ids.tolist()) for ids in corpus.train.targets] == first


def test_a_row_with_a_list_of_targets_is_counted_by_the_first(hub: Path) -> None:
    short = {"en": ["a dog"], "de": ["ein Hund", "a b c d"]}
    rows = {"train": [short, {"en": ["abcdefghijklmnopqrstuvwxyz"], "de": ["Hund"]}]}
    for split in ("train", "validation", "test"):
        text = "".join(f"{json.dumps(row)}\n" for row in rows.get(split, [short]))
        (hub / f"{split}.jsonl").write_text(text, "utf-8")
    corpus, logged = load_hub("scitldr", hub, max_length=5, max_line=20)
    assert len(corpus.train) == 1
    assert "longer than max_line 20: row 2 of train of scitldr has " in logged[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"corpus": "grammar"}, "^corpus must be one of multi30k, .*, or another one with a path;"),
        ({"source": "en", "target": "en"}, "^target must differ from source, got 'en' twice$"),
        ({"corpus": "wikitext-2"}, "^corpus must be one of multi30k, .*; got 'wikitext-2'$"),
        ({"tasks": Tasks("fr,a:fr")}, "^a domain of a task is a folder: a corpus of the hub has"),
        (
            {"corpus": "scitldr", "source": "source", "tasks": Tasks("target")},
            "^scitldr has several references of a text: drop tasks$",
        ),
    ],
)
def test_what_the_hub_does_not_have_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Hub(**options)


def test_a_relative_folder_that_is_elsewhere_names_the_current_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(ValueError) as relative:
        load_pairs(Path("corpus"))
    there = tmp_path / "elsewhere"
    expected = f"data must be an existing folder, got 'corpus' in the current folder, {there}"
    assert str(relative.value) == expected
    with pytest.raises(ValueError, match=r"existing folder, got '/.*nowhere'$"):
        load_pairs(tmp_path / "nowhere")
