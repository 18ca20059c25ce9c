"""The language model: a causal stack, exact at the limits where it can be checked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pyro import poutine

from latentheads.batch import Batch
from latentheads.decoding.beam_search import beam_search
from latentheads.handlers import PlugIn
from latentheads.inference.bound import terms
from latentheads.inference.evaluation import plug_in_log_likelihood
from latentheads.latents.gates.hard_gates import Gating
from latentheads.latents.gates.options import GateOptions
from latentheads.latents.selection.options import SelectionOptions
from latentheads.models import LanguageModel, Network
from latentheads.models.network import AdaptiveOptions
from tests.tiny import attach, build, latents, sizes


def test_sites_and_blocks(batch: Batch) -> None:
    model = build("language-model")
    assert latents(model, batch) == [f"decoder.{layer}.self.logits" for layer in range(2)]
    assert [block.attention_type for block in model.blocks] == ["decoder-self"] * 2


def test_it_runs_without_a_source(batch: Batch) -> None:
    trace = poutine.trace(build("language-model")).get_trace(Batch(batch.target))
    assert trace.log_prob_sum().isfinite()


@pytest.mark.parametrize("share", ["none", "decoder"])
def test_output_table_is_shared_as_asked(share: str) -> None:
    model = LanguageModel(13, sizes(share=share), latents=())
    assert (model.output.table is model.embedding.table) == (share == "decoder")


def test_a_chain_it_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match=r"attention type must be one of decoder-self"):
        build("language-model", blocks="encoder-self")


def test_default_network_norms_before_each_step() -> None:
    model = LanguageModel(13, latents=())
    assert isinstance(model.decoder.norm, torch.nn.LayerNorm)


def test_probabilities_of_all_short_sentences_sum_to_one() -> None:
    model = build("language-model", prior="delta").eval()
    every = torch.cartesian_prod(torch.arange(13), torch.arange(13))
    every = every[(every != 0).all(1)]
    distribution = poutine.trace(model).get_trace(Batch(every)).nodes["target"]["fn"]
    probabilities = distribution.logits.softmax(-1)
    total = distribution.log_prob(every).exp().sum()
    lost_first = probabilities[0, 0, 0]
    first = [int((every[:, 0] == token).nonzero()[0]) for token in range(1, 13)]
    lost_second = sum(probabilities[r, 0, every[r, 0]] * probabilities[r, 1, 0] for r in first)
    assert torch.allclose(total + lost_first + lost_second, torch.ones(()))


def test_an_adaptive_softmax_changes_no_seam(batch: Batch) -> None:
    bands = AdaptiveOptions((7, 10), div_value=2, dropout=0.3)
    model = build("language-model", width=6, adaptive=bands).eval()
    assert model.output.dropout_rate == 0.3
    guide = attach("cascaded", model)
    bound_terms = terms(model, guide, batch)
    with PlugIn():
        states = model.states(batch)
    logits = model.predict(states)
    assert torch.allclose(logits.exp().sum(-1), torch.ones(logits.shape[:-1]))
    chosen = logits.gather(-1, batch.target[..., None]).squeeze(-1) * batch.target_valid
    assert torch.allclose(plug_in_log_likelihood(model, batch), chosen.sum(-1))
    assert torch.isfinite(bound_terms.elbo).all()
    assert all(best.tokens for (best,) in beam_search(model, batch, num_beams=1))
    with pytest.raises(ValueError, match=r"^adaptive ties .*: share none is impossible$"):
        Network(adaptive=bands, share="none")
    with pytest.raises(ValueError, match=r"^adaptive, .* is for a language model$"):
        build(adaptive=bands)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (
            {"speech": {"channels": 4}},
            "speech is for a model with an encoder",
        ),
        (
            {"decoder_layers": 3},
            "decoder_layers is for a model with an encoder",
        ),
        (
            {"mixers": "ngram", "attention_dropout": 0.1},
            "attention_dropout is for attention: all mixers are ngram",
        ),
    ],
)
def test_options_of_what_it_has_not_are_refused(network: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        build("language-model", **network)


@pytest.mark.parametrize("options", [GateOptions, SelectionOptions])
def test_latents_of_heads_that_it_does_not_have_are_refused(options: Any) -> None:
    with pytest.raises(ValueError, match=r"blocks decoder-cross: this network has no such heads"):
        LanguageModel(7, Network(width=6, heads=3), [options(blocks="decoder-cross")])
    with pytest.raises(ValueError, match=r"^gates.blocks: .* no such heads, it has decoder-self$"):
        LanguageModel(7, Network(width=6, heads=3), [Gating(3, ("encoder-self",))])
