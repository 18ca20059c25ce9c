"""Which heads a corpus needs, of a network of transformers as it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import latentheads as lh
from tests.latentheads.contrib.hf.networks import IDS, bart, bert, grouped
from tests.tiny import jiggle
from tests.typechecking import unchecked

INPUTS = {
    "input_ids": torch.tensor([[5, 6, 7], [8, 9, 4]]),
    "labels": torch.tensor([[3, 4], [6, -100]]),
}


@pytest.fixture
def network() -> Any:
    return jiggle(bart(), 0.3).double().eval()


@pytest.mark.parametrize("given", ["network", "latent network", "its network"])
def test_a_network_has_the_posterior_of_a_latent_one_without_noise(
    network: Any, given: str
) -> None:
    model = lh.latent(network, "delta")
    expected = lh.head_posterior(model, [model.batch(INPUTS)], "decoder.1.cross", tau=1)
    if given == "network":
        lh.contrib.hf.plain(model)
    implementation = network.config._attn_implementation
    one = model if given == "latent network" else network
    for part in (INPUTS, [INPUTS], iter([INPUTS])):
        posterior = lh.head_posterior(one, part, "decoder.1.cross", quiet=True, tau=1)
        torch.testing.assert_close(posterior.log_likelihoods, expected.log_likelihoods)
    assert posterior.heads == [("decoder.1.cross", 0), ("decoder.1.cross", 1)]
    assert network.config._attn_implementation == implementation


@pytest.mark.parametrize("name", ["Llama", "BitNet"])
@torch.no_grad()
def test_a_head_that_is_off_is_one_that_a_subset_does_not_have(name: str) -> None:
    """BitNet normalises all heads together before they are projected."""
    made = jiggle(grouped(name), 0.3).double().eval()
    posterior = lh.head_posterior(made, {"input_ids": IDS}, "decoder.1.self", quiet=True, tau=1)
    for row, gates in enumerate(posterior.subsets.tolist()):
        with lh.heads(made).off([(1, head) for head, gate in enumerate(gates) if not gate]):
            log_probs = made(input_ids=IDS).logits[:, :-1].log_softmax(-1)
        expected = log_probs.gather(-1, IDS[:, 1:, None]).sum((1, 2))
        torch.testing.assert_close(posterior.log_likelihoods[:, row], expected)


def test_a_network_is_plain_again_after_an_error(network: Any) -> None:
    for part, message in (
        (3, "^batches must be a part of the corpus"),
        ([3], "^inputs must be tensors by name, as a tokenizer gives"),
        ("a text", "^inputs must be tensors by name, as a tokenizer gives"),
    ):
        with pytest.raises(ValueError, match=message):
            unchecked(lh.head_posterior)(network, part, tau=1)
        with pytest.raises(ValueError, match="not latent"):
            lh.contrib.hf.plain(network)


def test_a_network_without_an_output_layer_has_no_likelihood() -> None:
    tokens = {"input_ids": torch.tensor([[3, 4, 5]])}
    with pytest.raises(ValueError, match=r"^BertModel has no likelihood: take a network with an"):
        lh.head_posterior(bert("BertModel"), tokens, quiet=True, tau=1)
