"""Pairs through the real `datasets` library, from local files in every layout."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import datasets
import pytest
from pyarrow import Table, parquet

from latentheads.corpora import hub
from latentheads.corpora.hub import HUB, PROSE, HubCorpus, load_lines, load_pairs

PAIRS = [("ja", "yes"), ("nein\u2028 ", "no")]
STREAMING = pytest.mark.parametrize("streaming", [False, True])
SPLITS = ("train", "validation", "test")


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    """A JSON file with a translation in every row."""
    rows = [{"translation": {"de": left, "en": right}} for left, right in PAIRS]
    return write(tmp_path / "nested.json", rows)


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """A JSON file with a column for each language."""
    return write(tmp_path / "flat.json", [{"en": right, "de": left} for left, right in PAIRS])


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))


def load(
    file: Path, part: str = "train", languages: tuple[str, str] = ("de", "en"), **reference: Any
) -> list[tuple[str, str]]:
    """The pairs of a corpus of which the table knows where its one file is, and more."""
    corpus = replace(HubCorpus("json", files=str(file)), **reference)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(HUB, "mine", corpus)
        return list(load_pairs("mine", part, *languages))


def refused(*arguments: Any, **options: Any) -> str:
    with pytest.raises(ValueError) as caught:
        load(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@STREAMING
def test_both_layouts_are_read(nested: Path, flat: Path, streaming: bool) -> None:
    assert load(nested, streaming=streaming) == PAIRS
    assert load(flat, streaming=streaming, column="") == PAIRS
    assert load(flat, "valid", streaming=streaming, column="") == PAIRS


def test_the_languages_give_the_direction(nested: Path) -> None:
    assert load(nested, languages=("en", "de")) == [(right, left) for left, right in PAIRS]


@pytest.mark.parametrize("name", ["iwslt14", "iwslt17"])
@STREAMING
def test_the_hubs_own_parquet_copy_is_read_by_its_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, streaming: bool
) -> None:
    for split in SPLITS:
        folder = tmp_path / "copy" / str(HUB[name].config) / split
        folder.mkdir(parents=True)
        row = {"de": f"ein {split}", "en": f"a {split}"}
        parquet.write_table(Table.from_pylist([{"translation": row}]), folder / "0000.parquet")
    copy = replace(HUB[name], path=str(tmp_path / "copy"), streaming=streaming)
    monkeypatch.setitem(HUB, name, copy)
    assert list(load_pairs(name, "valid", "de", "en")) == [("ein validation", "a validation")]


def test_a_folder_may_lack_a_split(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for split in ("train", "test"):
        write(folder / f"{split}.jsonl", [{"de": split, "en": "x"}])
    assert list(load_pairs("multi30k", "test", "de", "en", folder)) == [("test", "x")]
    refusal = refused(folder, "valid", path=str(folder), files=None, column="")
    assert refusal.startswith(f"cannot read split 'validation' of {folder}: Unknown split")
    assert not refusal.endswith("None")  # the error has no cause


def test_sentences_are_joined_and_references_stand_between_tabs(tmp_path: Path) -> None:
    rows = [{"source": ["One.", "Two."], "target": ["a\tb ", "c"]}, {"source": "d", "target": "e"}]
    file = write(tmp_path / "lists.json", rows)
    options = {"languages": ("source", "target"), "column": ""}
    assert load(file, **options, several=True) == [("One. Two.", "a b\tc"), ("d", "e")]
    assert "source and target must be text" in refused(file, **options)


@pytest.mark.parametrize(
    ("read", "asked"),
    [
        (partial(load_pairs, "iwslt14", "valid", "de", "en"), (HUB["iwslt14"], "validation")),
        (partial(load_lines, "wikitext-103", "valid"), (PROSE["wikitext-103"], "validation")),
    ],
)
def test_rows_come_while_they_are_read(
    read: Callable[[], Any], asked: tuple[HubCorpus, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, numbers = [], []

    def rows(*given: Any) -> Iterator[dict[str, Any]]:
        opened.append(given[:2])
        for number in range(99):
            numbers.append(number)
            yield {"translation": {"de": str(number), "en": ""}, "text": str(number)}

    monkeypatch.setattr(hub, "_load", rows)
    monkeypatch.setattr(hub, "CHUNK", 4)
    texts = ["".join(row) for row in islice(read(), 5)]
    assert (texts, len(numbers)) == (["0", "1", "2", "3", "4"], 8)
    assert opened == [asked]


def test_loading_is_silent_and_leaves_no_trace(
    nested: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    level = logging.getLogger("datasets").level
    datasets.enable_progress_bars()
    load(nested)
    assert capfd.readouterr() == ("", "")
    assert not datasets.are_progress_bars_disabled()
    assert logging.getLogger("datasets").level == level


def test_an_unreachable_hub_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    for name, read in (
        ("wmt/wmt14", partial(load_pairs, "wmt14", "train", "de", "en")),
        ("squad", partial(load_pairs, "mine", "train", "de", "en", "squad")),
        ("Salesforce/wikitext", lambda: list(load_lines("wikitext-103", "train"))),
    ):
        message = rf"^cannot reach {name} on the hub: .*; give the path of a local copy$"
        with pytest.raises(ValueError, match=message):
            read()


def test_a_program_in_the_place_of_a_corpus_is_not_run(tmp_path: Path) -> None:
    folder, canary = tmp_path / "corpus", tmp_path / "canary"
    folder.mkdir()
    (folder / "corpus.py").write_text(f"open({str(canary)!r}, 'w')")
    for path in (folder, folder / "corpus.py"):
        refusal = refused(folder, path=str(path), files=None)
        assert refusal.startswith(f"cannot read split 'train' of {path}: ")
    assert not canary.exists()


def test_remote_code_is_refused_by_name(nested: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loading = mock.Mock(wraps=datasets.load_dataset)
    monkeypatch.setattr(datasets, "load_dataset", loading)
    assert load(nested) == PAIRS
    assert loading.call_args.kwargs["trust_remote_code"] is False


@STREAMING
def test_a_missing_column_is_refused_with_those_there_are(
    nested: Path, flat: Path, streaming: bool
) -> None:
    options = {"streaming": streaming}
    assert refused(nested, languages=("de", "fr"), **options) == "json has no 'fr'; it has de, en"
    expected = "json has no 'de'; it has translation"
    assert refused(nested, column="", **options) == expected
    refusal = refused(flat, **options)
    assert refusal.startswith("json has no column 'translation' with a sentence for each language;")
    assert refusal.endswith("it has en, de")


@pytest.mark.parametrize(
    ("rows", "several"),
    [
        ([{"de": "ja", "en": "yes"}, {"de": None, "en": "no"}], False),
        ([{"de": "ja", "en": "yes"}, {"de": ["ja"], "en": ["yes", None]}], True),
    ],
)
def test_a_cell_without_text_is_named_by_its_row(
    tmp_path: Path, rows: list[dict[str, Any]], several: bool
) -> None:
    path = write(tmp_path / "a.json", rows[several:])
    message = f"json, row {len(rows[several:])}: de and en must be text"
    assert refused(path, column="", several=several) == message


@STREAMING
@pytest.mark.parametrize("second", [None, {"de": "ja"}, {"de": None, "en": "no"}])
def test_a_row_may_not_lack_what_the_first_has(
    second: dict[str, str] | None, streaming: bool, tmp_path: Path
) -> None:
    rows = [{"translation": {"de": "ja", "en": "yes"}}, {"translation": second}]
    path = write(tmp_path / "a.json", rows)
    assert refused(path, streaming=streaming) == "json, row 2: de and en must be text"


def test_files_of_ones_own_are_read_in_either_layout(
    nested: Path, flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(nested.parent))
    for number, file in enumerate((nested, flat)):
        index = file.parent / str(number)
        index.mkdir()
        file.rename(index / "train.json")
        for path in (index, f"~/{number}"):
            assert list(load_pairs("mine", "train", "de", "en", path)) == PAIRS
    monkeypatch.chdir(nested.parent)
    Path("0").rename("json")  # as a loader is called
    assert list(load_pairs("mine", "train", "de", "en", "json")) == PAIRS


@STREAMING
def test_a_missing_or_broken_file_is_refused(tmp_path: Path, streaming: bool) -> None:
    options = {"streaming": streaming}
    assert "cannot read split 'train' of json: " in refused(tmp_path / "gone.json", **options)
    broken = tmp_path / "broken.json"
    broken.write_text('{"translation": {"de": \n', encoding="utf-8")
    assert "cannot read split 'train' of json: " in refused(broken, **options)


def test_a_corpus_without_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("de,en\n", encoding="utf-8")
    options = {"path": "csv", "column": ""}
    refusal = refused(tmp_path / "a.csv", streaming=True, **options)
    assert refusal == "split 'train' of csv has no row"
    refusal = refused(tmp_path / "a.csv", **options)
    assert refusal.startswith("cannot read split 'train' of csv: ")


# Running text

LINES = ["", " = A title = \n", "two  words \u2028 \n", "no end", "a\r\n", "x\ny\n"]


def write_lines(folder: Path, layout: str, column: str = "text") -> Path:
    """A local copy of a repository; what is in it says which part it is of."""
    folder.mkdir()
    for split in SPLITS:
        rows = [{column: line} for line in [split, *LINES]]
        if layout == "jsonl":
            write(folder / f"{split}.jsonl", rows)
        else:
            parquet.write_table(Table.from_pylist(rows), folder / f"{split}.parquet")
    return folder


@pytest.mark.parametrize("layout", ["jsonl", "parquet"])
@pytest.mark.parametrize("name", ["mine", "wikitext-2"])
def test_lines_are_those_of_the_rows(tmp_path: Path, layout: str, name: str) -> None:
    folder = write_lines(tmp_path / "text", layout)
    expected = ["", " = A title = ", "two  words \u2028 ", "no end", "a", "x\ny"]
    for part, split in zip(("train", "valid", "test"), SPLITS, strict=True):
        assert list(load_lines(name, part, folder)) == [split, *expected]
        assert list(load_lines(name, part, str(folder))) == [split, *expected]


def test_a_configuration_chooses_among_a_repositorys_texts(tmp_path: Path) -> None:
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "README.md").write_text(
        "---\nconfigs:\n"
        "- config_name: one\n  data_files: one.jsonl\n"
        "- config_name: two\n  data_files: two.jsonl\n---\n"
    )
    for name in ("one", "two"):
        write(folder / f"{name}.jsonl", [{"text": name}])
    assert list(load_lines("mine", "train", folder, "two")) == ["two"]
    assert list(load_lines("mine", "train", folder, "one")) == ["one"]


def unread(*arguments: Any) -> str:
    with pytest.raises(ValueError) as caught:
        list(load_lines(*arguments))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_no_running_text_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = write_lines(tmp_path / "text", "jsonl", column="sentence")
    expected = f"{folder}, row 1: no text in a column 'text'; it is {{'sentence': 'train'}}"
    assert unread("mine", "train", folder) == expected
    for split in SPLITS[:2]:
        write(folder / f"{split}.jsonl", [{"text": "a"}, {"text": None}])
    (folder / "test.jsonl").unlink()
    expected = f"{folder}, row 2: no text in a column 'text'; it is {{'text': None}}"
    assert unread("mine", "train", folder) == expected
    assert unread("mine", "test", folder).startswith(f"cannot read split 'test' of {folder}: ")
    assert unread("mine", "train", tmp_path / "gone").startswith("cannot read split 'train' of ")
