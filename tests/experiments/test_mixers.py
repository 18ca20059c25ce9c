"""Mixers on the command line, and back from a run folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from latentheads.attention.ngram import NGram
from latentheads.models.mixers import SelfAttention
from latentheads.runs.loading import load_run
from latentheads.training.checkpoints import weights
from tests.experiments.programs import SHORT, assert_refused, results_of, succeed
from tests.latentheads.corpora.folders import LANGUAGES, write_corpus
from tests.latentheads.runs.trained import SMALL, train

pytestmark = pytest.mark.usefixtures("as_the_programs_do")

HYBRID = ["--network.mixers=encoder=ngram,local,attention"]
HYBRID += ["--network.mixers=decoder=ngram*2,attention"]
SIZES = ["--network.layers=3", "--network.windows", "encoder=2,3,5", "--network.windows=decoder=3"]


def kinds(stack: Any) -> list[tuple[type, int]]:
    actual = [layer.inner for layer in stack.layers]
    return [(type(one), one.band.window if one.band else 0) for one in actual]


def test_a_hybrid_comes_back_from_its_folder(tmp_path: Path) -> None:
    data, out = write_corpus(tmp_path / "corpus"), tmp_path / "run"
    words = ["--data", str(data), *LANGUAGES, *HYBRID, *SIZES, "--recipe=coda", "--train.steps=2"]
    words += ["--network.ngram_width=decoder=7", "--network.ngram_context=true"]
    run = train(out, *words, "--decode.num_beams=2", "--decode.max_new_tokens=8")
    run.finish()
    config = yaml.safe_load((out / "config.yaml").read_text())
    assert config["network"]["mixers"] == "encoder=ngram,local,attention decoder=ngram*2,attention"
    loaded = load_run(out)
    encoder = [(NGram, 2), (SelfAttention, 3), (SelfAttention, 0)]
    assert kinds(loaded.model.encoder) == encoder
    assert kinds(loaded.model.decoder) == [(NGram, 3), (NGram, 3), (SelfAttention, 0)]
    assert [layer.inner.weight.shape[1] for layer in loaded.model.decoder.layers[:2]] == [7, 7]
    assert loaded.model.encoder.layers[0].inner.context is not None
    mine, theirs = weights(model=loaded.model), weights(model=run.model)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    results = results_of(out)
    assert results["parameters"] == sum(p.numel() for p in loaded.model.parameters())


FEW = ["--data.sentences=40", "--data.held_out=5"]


def test_ngram_heads_are_read_beside_those_that_attend(tmp_path: Path) -> None:
    out, path = tmp_path / "run", tmp_path / "told"
    words = [*FEW, "--network.layers=1", "--network.windows=2", "--network.mixers=encoder=ngram"]
    train(out, *words, "--network.ngram_noise=0.3", "--recipe=mean-field").finish()
    succeed("analyse.py", str(out), "--sentences=4", "--num_samples=1", "--out", str(path))
    (run,) = json.loads((path / "analysis.json").read_text())["runs"]
    assert [block["block"] for block in run["blocks"]] == ["decoder.0.self", "decoder.0.cross"]
    (block,) = run["ngrams"]
    heads = block["heads"]
    assert block["block"] == "encoder.0.self"
    assert run["syntactic"] is None
    assert "no head attends within the source" in (path / "table.md").read_text()
    assert "parsed by" not in (path / "table.md").read_text()
    assert torch.tensor(block["cosine"]).shape == (heads, heads)
    assert len(block["importance"]) == len(block["relevance"]) == heads


LM = "--data=grammar-text"
NGRAM = "--network.mixers=ngram"
MISTAKES = [
    (
        f"{NGRAM} --network.ngram_noise=.3 --latents=logits --logits.blocks=decoder-cross",
        "network.ngram_noise: no ngram layer of this network is latent",
    ),
    (f"{LM} {NGRAM} --recipe=coda", "logits.blocks: no such block has attention: drop logits"),
    (f"{NGRAM} --recipe=transformer+group --network.ngram_heads=1", "must be 2 too, got 1"),
    (f"{LM} {NGRAM} --disagreement=position", "n-gram heads have an output alone"),
    (f"{LM} --latents=gates --gates.blocks=encoder-self", "this network has no such heads"),
    (f"{NGRAM} --network.mixers=local", "give it once for each stack, or once for both"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_what_cannot_be_mixed_or_acts_on_no_head_is_refused_in_one_line(
    words: str, message: str, tmp_path: Path
) -> None:
    few = ["--data.sentences=9", "--data.held_out=3", f"--out={tmp_path / 'run'}"]
    given = [*SMALL, *SHORT, *few, *words.split()]
    assert_refused("run.py", *given, says=message, quiet=False)
