"""Gates of the heads of somebody else's network: all subsets, summed exactly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import latentheads as lh
from latentheads.contrib.heads import gradient_importance
from latentheads.guides import GUIDES
from latentheads.inference.evaluation import plug_in_log_likelihood
from latentheads.latents.bernoulli_heads.subsets import all_subsets
from tests.latentheads.contrib.hf.networks import inputs_of, labels_of, network, refuse

BOTH = "encoder.1.self,decoder.0.cross"
BLOCKS = {
    "gpt2": "",
    "whisper": "",
    "bart": BOTH,
    "bert": "encoder.0.self",
    "swin": "encoder.0.self",
}
"""Blocks with gates of some networks; none: the top one of the decoder."""
RATE = 0.7


def build(name: str, **options: Any) -> tuple[Any, Any]:
    made = network(name)
    latents = [lh.latents.BernoulliHeadsOptions(BLOCKS[name], rate=RATE, **options)]
    model = lh.latent(made, latents=latents).eval()
    return model, model.batch(inputs_of(made), labels_of(name))


def log_likelihood_without(model: Any, batch: Any, gates: Tensor) -> Tensor:
    """Log p(y | x, b) of a network whose output weights of inactive heads are zero."""
    names = model.latents["bernoulli-heads"].fixed_blocks
    modules = [module for module in model.head_blocks if module.block.name in names]
    parts = gates.split([module.num_active_heads for module in modules])
    kept = [module.output_weight.clone() for module in modules]
    for module, part in zip(modules, parts, strict=True):
        module.output_weight.mul_(part.repeat_interleave(module.size))
    log_prob = model.likelihood(model.states(batch, {}), batch).log_prob(batch.scored)
    for module, weight in zip(modules, kept, strict=True):
        module.output_weight.copy_(weight)
    return log_prob


@pytest.mark.parametrize("name", BLOCKS)
@torch.no_grad()
def test_evidence_and_posterior_are_those_of_every_subset(name: str) -> None:
    model, batch = build(name)
    heads = sum(model.latents["bernoulli-heads"].heads)
    subsets = all_subsets(heads, torch.zeros(()))
    prior = (subsets * RATE + (1 - subsets) * (1 - RATE)).log().sum(-1)
    rows = [log_likelihood_without(model, batch, gates) for gates in subsets]
    joint = torch.stack(rows, -1) + prior
    bound = lh.terms(model, GUIDES["exact"](model), batch)
    assert bound.enumeration is not None
    torch.testing.assert_close(bound.enumeration.log_evidence, joint.logsumexp(-1))
    torch.testing.assert_close(bound.enumeration.log_posterior, joint.log_softmax(-1))
    torch.testing.assert_close(bound.elbo, joint.logsumexp(-1))
    assert joint.std(-1).min() > 1e-3


@pytest.mark.parametrize("name", ["gpt2", "whisper", "bart", "bert"])
@pytest.mark.parametrize("structure", ["mean-field", "autoregressive", "cascaded"])
def test_guides_depend_on_the_texts_that_there_are(name: str, structure: str) -> None:
    model, batch = build(name)
    guide: Any = GUIDES[structure](model, condition_on="target")
    sides = {"bart": {"source", "target"}, "bert": {"source"}}.get(name, {"target"})
    (posterior,) = set(guide.latent_posteriors.values())
    assert set(posterior.encoders) == sides
    bound = lh.terms(model, guide, batch)
    assert bound.enumeration is not None
    assert (bound.elbo < bound.enumeration.log_evidence).all()


def test_guides_need_the_tokens_of_a_source() -> None:
    model, _ = build("bart")
    inputs = inputs_of(model.network)
    embedded = model.network.get_input_embeddings()(inputs.pop("input_ids"))
    batch = model.batch({**inputs, "inputs_embeds": embedded}, labels_of("bart"))
    refuse(lambda: lh.terms(model, GUIDES["mean-field"](model), batch), "give its tokens")


@pytest.mark.parametrize("objective", ["sampled", "iwae", "relaxed"])
def test_sampled_objectives_run_each_sample_with_gates_of_each_sentence(objective: str) -> None:
    model, batch = build("gpt2")
    guide: Any = GUIDES["mean-field"](model)
    loss = lh.Head_ELBO(num_particles=24, analytic=True, objective=objective)
    model.latents["bernoulli-heads"].temperature = 0.05
    exact = lh.terms(model, guide, batch)
    assert exact.enumeration is not None
    evidence = float(exact.enumeration.log_evidence.sum())
    elbo = float(exact.elbo.sum())
    estimate = -float(loss.differentiable_loss(model, guide, batch).detach())
    assert estimate == pytest.approx(evidence if objective == "iwae" else elbo, abs=0.3)


def test_a_network_without_a_decoder_must_name_blocks() -> None:
    options = lh.latents.BernoulliHeadsOptions()
    refuse(lambda: lh.latent(network("bert"), latents=[options]), "must name a block")


def test_noise_beside_gates_is_refused() -> None:
    made = network("gpt2")
    latents = [lh.latents.BernoulliHeadsOptions()]
    refuse(lambda: lh.latent(made, prior="independent", latents=latents), "prior delta")
    assert lh.latent(made, latents=latents).latents  # the network is as it was


@pytest.mark.parametrize("name", ["gpt2", "swin"])
def test_importance_is_the_derivative_of_the_sum_over_subsets(name: str) -> None:
    model, batch = build(name)
    step = 1e-5
    for name, values in gradient_importance(model, [batch], normalise=False).items():
        (module,) = (module for module in model.head_blocks if module.block.name == name)
        for head, value in enumerate(values.tolist()):
            columns = module.output_weight[:, head * module.size : (head + 1) * module.size]
            kept, losses = columns.detach().clone(), []
            for factor in (1 + step, 1 - step):
                columns.data.copy_(factor * kept)
                losses.append(-plug_in_log_likelihood(model, batch).detach())
            columns.data.copy_(kept)
            expected = ((losses[0] - losses[1]) / (2 * step)).abs().mean()
            assert value == pytest.approx(float(expected), rel=1e-4, abs=1e-8)
            assert value > 0
