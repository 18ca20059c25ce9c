"""Mixers on the command line, and back from a run folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from latentheads.checkpoints import weights
from models.mixers import LocalAttention, NGram, SelfAttention
from tests.experiments.test_data import BRIEF, LANGUAGES, SMALL, write_corpus
from tests.experiments.test_loading import train

pytestmark = pytest.mark.usefixtures("as_the_programs_do")

HYBRID = ["--mixers", "encoder=ngram,local,attention", "--mixers=decoder=ngram*2,attention"]
SIZES = ["--layers=3", "--windows", "encoder=2,3,5", "--windows=decoder=3"]


def kinds(stack: Any) -> list[tuple[type, int]]:
    found = [layer.inner for layer in stack.layers]
    return [(type(one), one.band.window if hasattr(one, "band") else 0) for one in found]


def test_a_hybrid_comes_back_from_its_folder(tmp_path: Path) -> None:
    from loading import load_run

    data, out = write_corpus(tmp_path / "corpus"), tmp_path / "run"
    words = ["--data", str(data), *LANGUAGES, *HYBRID, *SIZES, "--recipe=coda", "--steps=2"]
    words += ["--ngram_width=decoder=7", "--ngram_context=true", "--beam=2"]
    run = train(out, *words)
    run.finish()
    known = yaml.safe_load((out / "config.yaml").read_text())
    assert known["mixers"] == "encoder=ngram,local,attention decoder=ngram*2,attention"
    loaded = load_run(out)
    encoder = [(NGram, 2), (LocalAttention, 3), (SelfAttention, 0)]
    assert kinds(loaded.model.encoder) == encoder
    assert kinds(loaded.model.decoder) == [(NGram, 3), (NGram, 3), (SelfAttention, 0)]
    assert [layer.inner.weight.shape[1] for layer in loaded.model.decoder.layers[:2]] == [7, 7]
    assert loaded.model.encoder.layers[0].inner.context is not None
    mine, theirs = weights(model=loaded.model), weights(model=run.model)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    results = json.loads((out / "results.json").read_text())
    assert results["parameters"] == sum(p.numel() for p in loaded.model.parameters())


def test_a_language_model_of_ngrams_goes_on_with_a_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import generate

    words = ["--task=language-model", "--sentences=40", "--held_out=5", "--mixers=ngram"]
    train(tmp_path, *words, "--windows=3", "--ngram_heads=1", "--recipe=cascaded").finish()
    monkeypatch.setattr("sys.stdin", None)
    capsys.readouterr()
    assert generate.main([str(tmp_path), "--prompt", "the", "--length=4"]) == 0
    assert capsys.readouterr().out.startswith("the")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--mixers=ngram*7"], "mixers 'ngram*7' is for 7 layers: a stack has 1"),
        (["--mixers", "encoder=cnn"], "unknown mixer 'cnn': choose from attention, local, ngram"),
        (["--mixers=ngram", "--mixers=local"], "say it once for each stack, or once for both"),
        (["--windows=3"], "windows are for local and ngram layers: mixers has none"),
    ],
)
def test_what_cannot_be_mixed_is_refused_in_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from command import read_settings

    with pytest.raises(SystemExit):
        read_settings([*SMALL, *BRIEF, *words], "run.py", "", lambda parser: None)
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
