"""Runs on running text: blocks, windows, perplexities, and what a mistake costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crossing import in_turn
from tests.experiments.breaks import assert_data_refused, assert_resumes
from tests.experiments.programs import SHORT, results_of, succeed
from tests.latentheads.corpora.folders import write_text
from tests.latentheads.data.loading import load_text
from tests.latentheads.runs.trained import SMALL

CUT = ["--data.block_size=7", "--data.context=3"]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return write_text(tmp_path / "novel")


@in_turn(unit=["word", "subword"], recipe=["transformer", "cascaded"])
def test_a_text_in_blocks_runs_from_end_to_end(
    texts: Path, tmp_path: Path, unit: str, recipe: str
) -> None:
    units = ["--data.unit=subword", "--data.unit.vocab_size=300"] if unit == "subword" else []
    words = ["--data", str(texts), *CUT, *SMALL, *SHORT, *units, "--recipe", recipe]
    printed = succeed("run.py", *words, "--out", str(tmp_path / "run")).stdout
    corpus = load_text(texts, unit=unit)[0]
    blocks = -(-corpus.train.tokens // 7)
    assert f"corpus novel, {blocks} blocks" in printed
    results = results_of(tmp_path / "run")
    assert "bleu" not in results["test"]
    modes = ["blocks of 7", "windows of 7, 3 before each token"]
    perplexity = results["perplexity"]
    wanted = [(mode, part) for mode in modes for part in ("valid", "test")]
    assert [(one["mode"], one["part"]) for one in perplexity] == wanted
    for one in perplexity:
        assert f"by {one['mode']}" in printed
        part = getattr(corpus, one["part"])
        assert (one["tokens"], one["iwae_k"]) == (part.tokens, 2)
        exact = {"exact"} if recipe == "transformer" else set()
        assert set(one["token"]) == set(one["word"]) == {"elbo", "iwae", "plug_in"} | exact
        for name, value in one["token"].items():
            nats = part.tokens * math.log(value)
            assert one["word"][name] == pytest.approx(math.exp(nats / part.words))
            if one["mode"] == modes[0]:
                report = results[one["part"]]
                assert value == pytest.approx(math.exp(-report[name]), rel=1e-12)
        plain = one["token"]["plug_in"] == one["token"]["elbo"]
        assert plain == (recipe == "transformer")
        assert (one["word"] == one["token"]) == (unit == "word")
    assert perplexity[0]["token"] != perplexity[2]["token"]
    has_noise, times = recipe != "transformer", 1 if unit == "word" else 2
    for title in (", plug-in" if has_noise else ", exact", " from the bound"):
        assert printed.count(f"perplexity{title}") == 2 * times
    by_samples = "perplexity from IWAE_2, by word"
    assert printed.count(by_samples) == (2 if has_noise and unit != "word" else 0)


def test_a_text_of_lines_has_a_perplexity_by_sentences(texts: Path, tmp_path: Path) -> None:
    words = ["--data", str(texts), *SMALL, *SHORT, "--recipe=coda", "--out", str(tmp_path / "run")]
    assert "corpus novel, 40 sentences" in succeed("run.py", *words).stdout
    perplexity = results_of(tmp_path / "run")["perplexity"]
    modes = [("sentences", "valid"), ("sentences", "test")]
    assert [(one["mode"], one["part"]) for one in perplexity] == modes
    again = succeed("run.py", *words).stdout
    assert "is finished; --overwrite trains it anew" in again
    assert "  by sentences" in again


def test_a_run_of_blocks_with_an_adaptive_softmax_goes_on_where_it_was_stopped(
    texts: Path, tmp_path: Path
) -> None:
    words = ["--data", str(texts), *CUT, *SMALL, "--train.tokens=64", "--num_samples=2"]
    words += ["--recipe=cascaded", "--train.steps=9", "--train.report_every=5"]
    words += [
        "--network.adaptive=[6,11]",
        "--network.adaptive.div_value=2",
        "--network.dropout=0.2",
    ]
    words += ["--data.cache", str(tmp_path / "cache")]
    whole = assert_resumes(words, tmp_path, 6)
    assert results_of(whole)["perplexity"] == results_of(tmp_path / "halted")["perplexity"]


SUBWORDS = "--data.unit subword --data.unit.vocab_size 300"
RARE = "--recipe coda --network.adaptive [9,19]"
MISTAKES: list[tuple[Callable[[Path], object] | None, str, str]] = [
    (lambda at: (at / "valid.txt").unlink(), "", "novel has no valid.txt or valid.txt.gz or val."),
    (
        None,
        "--data.block_size 5 --data.context 5",
        "context must lie in 0 ... 4, a block less one,",
    ),
    (None, f"{RARE} {SUBWORDS}", "network.adaptive needs words in"),
]


@pytest.mark.parametrize(("act", "words", "message"), MISTAKES)
def test_a_mistake_costs_one_line_and_writes_nothing(
    texts: Path, act: Callable[[Path], object] | None, words: str, message: str
) -> None:
    assert_data_refused(texts, act, [*SMALL, *words.split()], message)


def test_models_of_other_unknown_words_have_no_difference(texts: Path, tmp_path: Path) -> None:
    """Their tokens are as many, but the likelihood of a word that is unknown is another."""
    words = ["--recipes=transformer", "--seeds=0", "--vary=data.unit.min_count=1,9"]
    words += ["--data", str(texts), *CUT, *SMALL, *SHORT, "--out", str(tmp_path / "runs")]
    text = " ".join(succeed("compare.py", *words).stdout.split())
    assert "not comparable with its: transformer data.unit.min_count=9." in text
    assert "less first row" not in text
