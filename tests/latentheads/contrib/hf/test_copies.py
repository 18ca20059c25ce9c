"""Copy heads above a frozen language model: exact, and the network speaks with them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import latentheads as lh
from latentheads.contrib.heads import alignment_distributions
from latentheads.guides import Exact, MeanField
from tests.latentheads.contrib.hf.networks import IDS, REAL, modernbert, network, refuse
from tests.tiny import jiggle

AGAIN = IDS % 2 + 5
"""Texts of two words, each of which stands in them more than once."""


def build(name: str = "gpt2", **options: Any) -> tuple[Any, Any]:
    network_ = network(name).double().requires_grad_(False)
    model = lh.latent(network_, latents=[lh.latents.CopyOptions(**options)]).eval()
    jiggle(model.latents["copy"], 0.5)
    return model, model.batch({"input_ids": AGAIN, "attention_mask": REAL})


def evidence(model: Any, batch: Any) -> Tensor:
    return model.token_distribution(batch).exact_inference(batch.scored).log_evidence


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@torch.no_grad()
def test_a_token_is_generated_or_copied_from_each_earlier_one(name: str) -> None:
    model, batch = build(name)
    heads, slip = model.latents["copy"], 0.01
    with model._aligned_decoder.recording():
        model.run(batch)
        states = model._aligned_decoder._states
    generated = (states @ model.network.lm_head.weight.mT).softmax(-1)
    for row, ids in enumerate(AGAIN):
        total = torch.zeros((), dtype=torch.float64)
        for place in range(1, int(REAL[row].sum())):
            state, earlier = states[row, place - 1], states[row, : place - 1]
            keys = heads.key(heads.norm(torch.cat([heads.generate[None], earlier])))
            scores = keys @ heads.query(state) / heads.head_width**0.5
            scores[0] += heads.bias
            prior = scores.softmax(-1)
            by_network = generated[row, place - 1, ids[place]]
            same = ids[1:place] == ids[place]
            copied = (1 - slip) * same + slip * by_network
            total += (prior[0] * by_network + (prior[1:] * copied).sum()).log()
        torch.testing.assert_close(evidence(model, batch)[row], total)


@pytest.mark.parametrize("options", [{}, {"prior": "chain"}, {"heads": 2}, {"lexicon": True}])
@torch.no_grad()
def test_the_network_itself_speaks_with_copies(options: dict[str, Any]) -> None:
    model, _ = build(**options)
    batch = model.batch({"input_ids": AGAIN[:1]})
    log_probs = model.network(input_ids=AGAIN[:1], use_cache=False).logits
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(1, 5).double())
    words = log_probs[:, :-1].gather(-1, AGAIN[:1, 1:, None]).sum()
    torch.testing.assert_close(evidence(model, batch)[0], words)
    refuse(lambda: model.network.generate(AGAIN[:1], max_new_tokens=2), "use_cache=False")
    embedded = model.network.get_input_embeddings()(AGAIN[:1])
    refuse(lambda: model.network(inputs_embeds=embedded, use_cache=False), "give the network input")


@torch.no_grad()
def test_copies_are_of_a_network_that_names_its_output_layer_a_decoder() -> None:
    made = jiggle(modernbert("ModernBertDecoder", "ForCausalLM"), 0.3).double().eval()
    model = lh.latent(made, latents=[lh.latents.CopyOptions()]).eval()
    jiggle(model.latents["copy"], 0.5)
    log_probs = made(input_ids=AGAIN[:1], use_cache=False).logits
    words = log_probs[:, :-1].gather(-1, AGAIN[:1, 1:, None]).sum()
    torch.testing.assert_close(evidence(model, model.batch({"input_ids": AGAIN[:1]}))[0], words)


def test_guides_have_exact_gaps_and_positions_a_posterior() -> None:
    model, batch = build()
    terms = lh.terms(model, Exact(model), batch)
    torch.testing.assert_close(terms.elbo, evidence(model, batch).detach())
    assert lh.evaluate(model, MeanField(model).eval(), [batch]).gap > 0
    exact = alignment_distributions(model, Exact(model), batch).posterior
    total = exact.sum(-1)[:, 0][REAL[:, 1:].bool()]
    torch.testing.assert_close(total, torch.ones_like(total))
