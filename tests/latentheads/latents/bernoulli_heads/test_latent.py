"""The latent in a model: what it refuses, decoding, other losses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyro
import pytest
import torch
from pyro.infer import Trace_ELBO, TraceEnum_ELBO, config_enumerate
from torch import Tensor

import latentheads as lh
from latentheads.decoding.beam_search import beam_search
from latentheads.latents.bernoulli_heads.options import BernoulliHeadsOptions
from latentheads.latents.gates.options import GateOptions
from latentheads.latents.options import ModelShape, make_latents
from latentheads.models import Translation
from latentheads.pruning import all_heads, remove_heads
from tests.latentheads.latents.bernoulli_heads.models import (
    BLOCKS,
    attach,
    build,
    gates_of,
    language_model,
)
from tests.tiny import SOURCE_TYPES, TARGET_TYPES, latents, sizes, small_batch


def test_sites_are_sampled_for_every_sentence() -> None:
    model, batch = build(), small_batch()
    sites = latents(model, batch)
    assert sites[:2] == ["decoder.0.self.active", "decoder.1.cross.active"]
    gates = pyro.poutine.trace(model).get_trace(batch).nodes["decoder.1.cross.active"]["value"]
    assert gates.shape == (3, 3)
    assert set(gates.unique().tolist()) <= {0.0, 1.0}


def test_noise_of_logits_is_refused() -> None:
    latents = [lh.latents.LogitsOptions(), BernoulliHeadsOptions()]
    with pytest.raises(ValueError, match="attention logits must have prior delta"):
        Translation(SOURCE_TYPES, TARGET_TYPES, sizes(), latents)
    model = Translation(SOURCE_TYPES, TARGET_TYPES, sizes(), latents[:1])
    shape = ModelShape(3, (), blocks=tuple(module.block for module in model.head_blocks))
    model.add_latents(make_latents(latents[1:], shape, before_blocks=False))
    with pytest.raises(ValueError, match="attention logits must have prior delta"):
        model(small_batch())


@pytest.mark.parametrize("other", [GateOptions(), lh.latents.AlignmentOptions()])
def test_other_latents_of_its_role_are_excluded(other: Any) -> None:
    for pair in ([other, BernoulliHeadsOptions()], [BernoulliHeadsOptions(), other]):
        with pytest.raises(ValueError, match="exclude each other"):
            Translation(SOURCE_TYPES, TARGET_TYPES, sizes(), latents=pair)


def test_heads_with_gates_cannot_be_removed_and_others_can() -> None:
    model, batch = build("decoder.1.cross"), small_batch()
    remove_heads(model, {"encoder.0.self": [0, 2]})
    assert lh.terms(model, attach(model), batch).elbo.isfinite().all()
    kept = all_heads(model) | {"decoder.1.cross": [1]}
    with pytest.raises(
        ValueError, match=r"'decoder.1.cross' has latents bernoulli-heads of its heads: none can"
    ):
        remove_heads(model, kept)


def test_smoothing_is_of_training_alone() -> None:
    model, batch = build(label_smoothing=0.1), small_batch()
    exact = model.token_distribution(batch).log_evidence(batch.scored)
    smoothed = model.train().token_distribution(batch).log_evidence(batch.scored)
    assert (smoothed - exact).abs().min() > 1e-3


def test_pyro_trains_it_by_a_sampled_bound() -> None:
    model, batch = build("decoder.1.cross").train(), small_batch()
    guide = attach(model)
    with pyro.validation_enabled(False):
        Trace_ELBO().loss_and_grads(model, guide, batch)
    assert guide.latent_posteriors["decoder.1.cross.active"].logits.weight.grad.any()


@torch.no_grad()
def test_the_posteriors_of_a_pass_are_those_of_the_batch_they_are_asked_for() -> None:
    model, batch = build("decoder.1.cross"), small_batch()
    other = replace(batch, target=batch.target.flip(0))
    latent: Any = model.latents["bernoulli-heads"]
    guide = latent.make_posterior(model, "mean-field", "target")
    guide.logits.weight.normal_()
    for posterior_of in (latent.exact_posterior, guide.posterior_of):

        def log_probs(*batches: Any, posterior_of: Any = posterior_of) -> list[Tensor]:
            site = pyro.poutine.trace(model).get_trace(batch).nodes["decoder.1.cross.active"]
            gates = torch.ones_like(site["value"])
            return [posterior_of(site["fn"], of).log_prob(gates) for of in batches]

        own, second = log_probs(batch, other)
        torch.testing.assert_close([second], log_probs(other))
        assert not torch.allclose(own, second)


@pytest.mark.filterwarnings("ignore:Found vars in model but not guide")
@pytest.mark.parametrize("prior", ["independent", "autoregressive", "cascaded"])
def test_pyro_enumerates_the_gates_of_sentences_of_different_lengths(prior: str) -> None:
    model, batch = build(prior=prior), small_batch()
    exact = model.token_distribution(batch).log_evidence(batch.scored).sum()
    elbo = TraceEnum_ELBO(max_plate_nesting=1)
    loss = elbo.differentiable_loss(config_enumerate(model), lambda batch: None, batch)
    torch.testing.assert_close(-loss, exact)


def test_samples_of_the_target_are_given_the_sampled_gates() -> None:
    model, batch = build(), small_batch()
    with torch.no_grad():
        tokens = model(batch, observe=False)
    assert tokens.shape == batch.target.shape


def log_p(model: Any, source: list[int], tokens: tuple[int, ...]) -> float:
    batch = lh.data.Batch.of([list(tokens)], [source])
    with torch.no_grad():
        return float(model.token_distribution(batch).log_evidence(batch.scored))


def test_beams_are_scored_by_the_sum_over_subsets() -> None:
    model, sources = build(BLOCKS), [[4, 5, 6, 2], [7, 2]]
    batch = lh.data.Batch.of([[2], [2]], sources)
    with torch.no_grad():
        computed_hypotheses = beam_search(model, batch, 3, max_new_tokens=4)
    for source, hypotheses in zip(sources, computed_hypotheses, strict=True):
        assert len(hypotheses) == 3
        for hypothesis in hypotheses:
            if hypothesis.tokens[-1:] == [2] or len(hypothesis.tokens) < 4:
                tokens = (
                    (*hypothesis.tokens,) if hypothesis.tokens[-1] == 2 else (*hypothesis.tokens, 2)
                )
                assert hypothesis.log_prob == pytest.approx(log_p(model, source, tokens), abs=1e-9)


def test_a_language_model_continues_texts_that_end_at_different_times() -> None:
    model = language_model()
    batch = lh.data.Batch(torch.tensor([[5, 6, 7, 2], [8, 9, 2, 0], [9, 10, 11, 2]]))
    with torch.no_grad():
        state = model.begin(batch)
        first = model.step(batch.decoder_input[:, :2], state)
        state.select(torch.tensor([2, 0]))
        later = model.step(batch.decoder_input[[2, 0], 2:], state)
        whole = model.token_distribution(batch).log_evidence(batch.scored)
    rows = torch.cat([first[[2, 0]], later], 1)
    log_probs = rows.gather(-1, batch.target[[2, 0], :, None])[..., 0].sum(-1)
    torch.testing.assert_close(log_probs, whole[[2, 0]])
    torch.testing.assert_close(rows.logsumexp(-1), torch.zeros(2, 4).double())
    assert gates_of(model).heads == [3]


@pytest.mark.parametrize(("block", "rows"), [("decoder.1.cross", 3), ("encoder.1.self", 3 * 8)])
def test_the_encoder_runs_once_for_all_subsets_that_it_has_no_part_in(
    block: str, rows: int
) -> None:
    model, batch = build(block), small_batch()
    sizes: list[int] = []
    model.encoder.register_forward_hook(lambda _, __, states: sizes.append(len(states)))
    assert len(model.begin(batch).memory) == 3 * 8
    assert sizes == [rows]
