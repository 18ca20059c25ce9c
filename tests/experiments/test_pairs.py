"""Runs on folders of pairs, and what a mistake in them costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from latentheads.corpora.text import normalise_whitespace, read_lines
from latentheads.experiments.cli.command_line import read_command_line
from latentheads.runs.build import make_model
from latentheads.runs.generation import encode_pairs, raise_on_skip
from latentheads.runs.loading import load_run
from latentheads.runs.trained_model import TrainedModel
from tests.experiments.breaks import assert_data_refused
from tests.experiments.programs import SHORT, assert_refused, inside, results_of, succeed
from tests.latentheads.corpora.folders import LANGUAGES, SIZES, write_corpus
from tests.latentheads.data.loading import load_pairs
from tests.latentheads.runs.trained import SMALL


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus")


def test_a_folder_of_text_runs_from_end_to_end(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["--data", str(folder), *LANGUAGES, *SMALL, *SHORT, "--decode.max_new_tokens=8"]
    printed = succeed("run.py", *words, "--out", str(out)).stdout
    assert "40 of 40 training pairs kept" in printed
    assert "corpus corpus en-de, from en to de, 40 sentences" in printed
    assert "tok:13a" in printed
    lines = map(normalise_whitespace, read_lines(folder / "test.de"))
    assert read_lines(out / "test.references.txt") == list(lines)
    assert (out / "test.translations.txt").read_bytes().count(b"\n") == SIZES["test"]
    assert list(json.loads((out / "vocabulary.json").read_text("utf-8"))) == ["joint"]
    results = results_of(out)
    assert results["corpus"] == "corpus en-de"
    assert {"bleu", "chrf"} <= set(results["test"])
    assert results["test"].truth is None
    assert results["test"]["tokens"] == load_pairs(folder)[0].test.tokens
    check_white_space_of_inputs(load_run(out))
    check_text_of_finished_run(folder, [*words, "--out", str(out)])


def test_a_vocabulary_that_is_too_small_is_named_as_the_option_is(folder: Path) -> None:
    words = ["--data", str(folder), *LANGUAGES, "--data.vocab_size=3", "--out", str(folder / "run")]
    says = "--data.vocab_size must be at least 260, 4 special tokens and 256 bytes; got 3"
    assert_refused("run.py", *words, says=says, quiet=False)


def check_text_of_finished_run(folder: Path, words: list[str]) -> None:
    """The figures of a finished run are not shown for other text without a word."""
    assert "is finished; --overwrite trains it anew" in succeed("run.py", *words).stdout
    text = folder / "test.de"
    text.write_bytes(break_no_line(text.read_bytes()))
    says = "run is of another text: that of test has changed since; choose another out or --over"
    assert_refused("run.py", *words, says=says, quiet=False)
    text.unlink()
    done = inside("run.py", *words)
    assert done.returncode == 0
    assert "BLEU" in done.stdout
    assert "note: whether the text of" in done.stderr
    assert "has changed is not known: " in done.stderr
    assert "has no test.de or test.de.gz" in done.stderr


def break_no_line(data: bytes) -> bytes:
    """Another text of as many lines."""
    return data.replace(b"\n", b" x\n", 1)


def check_white_space_of_inputs(trained: TrainedModel) -> None:
    """What a trained model is given is normalised as its corpus was."""
    given = [(["\tthe  gap "], ["of \tthe"]), (["the gap"], ["of the"])]
    one, other = (encode_pairs(trained, *pair, None, raise_on_skip).part for pair in given)
    assert [row.tolist() for row in one.sources] == [row.tolist() for row in other.sources]
    assert [row.tolist() for row in one.targets] == [row.tolist() for row in other.targets]


def spoil(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return act


def cut(data: bytes) -> bytes:
    return data[: data.rstrip(b"\n").rindex(b"\n") + 1]


MISTAKES: list[tuple[Callable[[Path], object] | None, str, str]] = [
    (
        spoil("train.de", cut),
        "",
        "must be as many as those of corpus/train.de, 39, got 40",
    ),
    (spoil("train.de", lambda _: b""), "", "corpus/train.de is empty: one sentence a line"),
    (lambda at: (at / "test.en").unlink(), "", "corpus has no test.en or test.en.gz; it has"),
    (None, "--data.target fr", "corpus has no train.fr or train.fr.gz; it has test.de, test.en"),
    (
        None,
        "--data corpsu",
        "data must be one of grammar, grammar-text, pairs, running-text, speech, hub, hub-text, "
        "python-docs, multi30k, iwslt14, iwslt17, wmt14, gigaword, cnn_dailymail, "
        "scitldr, wikitext-2, wikitext-103, or a folder; got 'corpsu'",
    ),
]


@pytest.mark.parametrize(("act", "words", "message"), MISTAKES)
def test_a_mistake_costs_one_line_and_writes_nothing(
    folder: Path, act: Callable[[Path], object] | None, words: str, message: str
) -> None:
    assert_data_refused(folder, act, [*LANGUAGES, *SMALL, *words.split()], message)


def test_a_joint_vocabulary_may_share_every_table(folder: Path, settings: Any) -> None:
    corpus, _ = load_pairs(folder)
    made = settings("--data", str(folder), *LANGUAGES, *SMALL, "--network.share=all")
    model = make_model(made, corpus.target, corpus.source)
    assert model.source_embedding.table is model.target_embedding.table


def test_separate_vocabularies_of_one_size_share_no_table(folder: Path, settings: Any) -> None:
    corpus, _ = load_pairs(folder, joint=False, vocab_size=265)
    assert corpus.source is not None
    assert len(corpus.source) == len(corpus.target)
    made = settings("--data", str(folder), *LANGUAGES, *SMALL, "--network.share=all")
    with pytest.raises(ValueError, match="share all needs one joint vocabulary"):
        make_model(made, corpus.target, corpus.source)


@pytest.mark.parametrize("program", ["run.py"])
@pytest.mark.parametrize("words", ["--data {}", "--data pairs --data.folder {}"])
def test_a_folder_of_two_languages_needs_a_direction(
    folder: Path, program: str, words: str, tmp_path: Path
) -> None:
    directions = "--data.source de --data.target en or --data.source en --data.target de"
    says = f"--data {str(folder)!r} has text in de, en: give {directions}\n"
    assert_refused(program, *words.format(folder).split(), says=says)
    (folder / "train.fr.gz").write_bytes(b"")
    says = "has text in de, en, fr: give --data.source and --data.target\n"
    assert_refused(program, *words.format(folder).split(), says=says)
    (tmp_path / "other").mkdir()
    says = "has no train.LANGUAGE of two languages, no train.txt and no train.tsv\n"
    assert_refused(program, *words.format(tmp_path / "other").split(), says=says)


@pytest.mark.parametrize("words", [LANGUAGES, ["--preset=multi30k"], ["--data.source=en"]])
def test_a_direction_may_be_given_by_words_or_a_preset(folder: Path, words: list[str]) -> None:
    data = read_command_line(["--data", str(folder), *words]).options["data"]
    assert data["source"] == "en"
