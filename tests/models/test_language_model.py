"""The language model: a causal stack, exact at the limits where it can be checked."""

from __future__ import annotations

import pytest
import torch
from pyro import poutine

from latentheads import Batch
from models import LanguageModel, make_prior
from tests.tiny import bernoulli_gate, build, latents, sizes


def test_sites_and_blocks(batch: Batch) -> None:
    model = build("language-model", gate=bernoulli_gate())
    names = [
        f"decoder.{layer}.self.{latent}" for layer in range(2) for latent in ("logits", "gate")
    ]
    assert latents(model, batch) == names
    assert [block.chain for block in model.blocks] == ["decoder-self"] * 2


def test_it_runs_without_a_source(batch: Batch) -> None:
    trace = poutine.trace(build("language-model")).get_trace(Batch(batch.target))
    assert trace.log_prob_sum().isfinite()


@pytest.mark.parametrize("share", ["none", "decoder"])
def test_output_table_is_shared_as_asked(share: str) -> None:
    model = LanguageModel(13, make_prior("delta"), sizes(share=share))
    assert (model.output.table is model.embedding.table) == (share == "decoder")


def test_a_chain_it_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown chain 'encoder-self': choose from decoder-self"):
        build("language-model", latent=("encoder-self",))


def test_default_network_norms_before_each_step() -> None:
    model = LanguageModel(13, make_prior("delta"))
    assert isinstance(model.decoder.norm, torch.nn.LayerNorm)


def test_probabilities_of_all_short_sentences_sum_to_one() -> None:
    model = build("language-model", prior="delta").eval()
    every = torch.cartesian_prod(torch.arange(13), torch.arange(13))
    every = every[(every != 0).all(1)]
    law = poutine.trace(model).get_trace(Batch(every)).nodes["target"]["fn"]
    probabilities = law.logits.softmax(-1)
    total = law.log_prob(every).exp().sum()
    lost_first = probabilities[0, 0, 0]
    first = [int((every[:, 0] == token).nonzero()[0]) for token in range(1, 13)]
    lost_second = sum(probabilities[r, 0, every[r, 0]] * probabilities[r, 1, 0] for r in first)
    assert torch.allclose(total + lost_first + lost_second, torch.ones(()))
