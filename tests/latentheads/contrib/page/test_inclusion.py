"""The inclusion probabilities of a page: each block's heads, sentence by sentence."""

from __future__ import annotations

from pathlib import Path

import torch

from latentheads.contrib.page.inclusion import gather_inclusion, has_gates
from latentheads.corpora.batches import collate
from latentheads.inference.bound import terms
from tests.latentheads.contrib.page.runs import make_run, small_corpus


def test_probabilities_are_split_by_block_and_sentence(tmp_path: Path) -> None:
    corpus = small_corpus()
    run = make_run(tmp_path / "run", corpus, "delta", "two bernoulli blocks")
    batch = collate(corpus.test, range(3))
    enumeration = terms(run.model, run.guide, batch).enumeration
    run.model.train()
    before = torch.get_rng_state()
    gathered = gather_inclusion(run, batch)
    assert torch.equal(torch.get_rng_state(), before)
    assert run.model.training
    assert has_gates(run)
    assert [set(blocks) for blocks in gathered] == [{"decoder.0.self", "decoder.1.cross"}] * 3
    for name, values in enumeration.inclusion().items():  # type: ignore[union-attr]
        for sentence, blocks in enumerate(gathered):
            rows = blocks["decoder.0.self"][name] + blocks["decoder.1.cross"][name]
            torch.testing.assert_close(
                torch.tensor(rows).double(), values[sentence], rtol=1e-6, atol=1e-6
            )
    assert torch.tensor(gathered[0]["decoder.0.self"]["prior"]).sub(0.8).abs().max() > 0.01


def test_a_run_without_gates_has_none(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", small_corpus())
    assert not has_gates(run)
    assert gather_inclusion(run, collate(run.corpus.test, range(3))) == [{}, {}, {}]
