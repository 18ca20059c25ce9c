"""Runs on running text: blocks, windows, perplexities, and what a mistake costs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crossing import in_turn
from tests.experiments.programs import results_of, status_of
from tests.latentheads.corpora.folders import write_text
from tests.latentheads.data.loading import load_text
from tests.latentheads.runs.trained import BRIEF, SMALL


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return write_text(tmp_path / "novel")


@in_turn(unit=["word", "subword"], recipe=["transformer", "cascaded"])
def test_a_text_in_blocks_runs_from_end_to_end(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], unit: str, recipe: str
) -> None:
    from latentheads.experiments import run

    out, cut = tmp_path / "run", ["--data.block=7", "--data.context=3"]
    units = ["--data.unit=subword", "--data.vocab_size=300"] if unit == "subword" else []
    words = ["--data", str(texts), *cut, *SMALL, *BRIEF, *units, "--recipe", recipe]
    assert run.main([*words, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    corpus = load_text(texts, unit=unit)[0]
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

    words = ["--data", str(texts), *SMALL, *BRIEF]
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

    cut = ["--data.block=7", "--data.context=3"]
    words = ["--data", str(texts), *cut, *SMALL, "--train.tokens=64", "--samples=2"]
    words += ["--recipe=cascaded"]
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

    words = ["--data", str(texts), "--data.block=7", *SMALL, *BRIEF]
    words += ["--recipe=transformer", "--out", str(tmp_path / "run")]
    assert run.main(words) == 0
    (tmp_path / "run" / "results.json").unlink()
    with (texts / "train.txt").open("a", encoding="utf-8") as file:
        file.write("and so on\n")
    assert status_of(run.main, *words) == 2


def nothing(folder: Path) -> None:
    pass


def write(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


RARE = "--recipe coda --network.cutoffs [9,19]"
MISTAKES: list[tuple[Callable[[Path], object], str, str]] = [
    (lambda at: (at / "valid.txt").unlink(), "", "novel has no valid.txt or valid.txt.gz or val."),
    (write("valid.txt", b"one\n\xff\n"), "", "valid.txt, line 2: byte 0xff is no UTF-8"),
    (write("test.txt", b""), "", "test.txt is empty"),
    (write("test.txt", b" \n\n"), "", "novel has no word in test"),
    (
        nothing,
        "--data grammar --data.sentences 9 --network.share all",
        "share all needs one joint vocabulary",
    ),
    (nothing, "--data.block 5 --data.context 5", "context must lie in 0 ... 4, a block less one,"),
    (nothing, "--data.unit letter", "--data.unit must be one of word, subword; got 'letter'"),
    (
        nothing,
        f"{RARE} --data.unit subword --data.vocab_size 300",
        "network.cutoffs need words in the order of frequency: use unit word",
    ),
    (nothing, f"{RARE} --label_smoothing 0.1", "label_smoothing needs a full softmax: drop it, or"),
    (nothing, "--recipe coda --network.cutoffs [9,999]", "cutoffs must rise between 0 and the"),
]


@pytest.mark.parametrize(("act", "words", "message"), MISTAKES)
def test_a_mistake_costs_one_line_and_writes_nothing(
    texts: Path,
    act: Callable[[Path], object],
    words: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from latentheads.experiments import run

    monkeypatch.chdir(texts.parent)
    act(texts)
    given = ["--data", "novel", *SMALL, *BRIEF, "--out", "run", *words.split()]
    assert status_of(run.main, *given) == 2
    error = capsys.readouterr().err
    assert error.startswith("run.py: error: ")
    assert message in error
    assert error.count("\n") == 1
    assert sorted(os.listdir()) == ["novel"]
