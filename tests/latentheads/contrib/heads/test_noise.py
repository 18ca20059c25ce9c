"""Noise that heads bear: what is learned, what one head's noise costs, and what stays."""

from __future__ import annotations

from functools import partial

import pytest
import torch

import latentheads as lh
from latentheads.contrib.heads import NoisyHeads, learn_noise, noise_cost
from latentheads.inference.evaluation import eval_no_grad
from latentheads.models import make_prior
from latentheads.noise import fixed_noise
from tests.latentheads.contrib.hf.networks import NETWORKS, inputs_of, labels_of, network
from tests.tiny import HEADS, KINDS, build, padded, rows, small_batch

PRIOR = 3.0
CHEAP = 1e-4
UPDATES = 23


@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_bought_up_to_the_priors_and_less_of_it_at_a_low_price(kind: str) -> None:
    model, batch = build(kind, options={"scale": PRIOR}).eval(), small_batch()
    free, cheap = (learn_noise(model, [batch] * UPDATES, price) for price in (100.0, CHEAP))
    assert {name: tensor.shape for name, tensor in free.items()} == {
        block.name: (HEADS,) for block in model.blocks
    }
    dear = torch.cat([*free.values()])
    assert torch.allclose(dear, torch.full_like(dear, PRIOR), rtol=0.1)
    assert torch.cat([*cheap.values()]).mean() < 0.7 * PRIOR


def test_a_head_that_nobody_hears_bears_the_most_noise() -> None:
    model, batch = build("language-model", options={"scale": PRIOR}, layers=1), small_batch()
    (module,) = model.latent_blocks
    with torch.no_grad():
        module.output_weight[:, 2:4] = 0  # the head in the middle says nothing
    decoder_0_self = learn_noise(model.eval(), [batch] * UPDATES, kl_weight=0.003)["decoder.0.self"]
    assert decoder_0_self.argmax() == 1
    cost = noise_cost(model, [batch], PRIOR)["decoder.0.self"]
    assert cost[1].abs() < 1e-9
    assert (cost.abs() > 1e-6).tolist() == [True, False, True]


def test_learning_leaves_model_and_stream_of_noise_as_they_were() -> None:
    model, batch = build(dropout=0.5, options={"scale": PRIOR}).train(), small_batch()
    before, stream = model.state_dict(), torch.get_rng_state()
    kept = {name: tensor.clone() for name, tensor in before.items()}
    first, again, other = (learn_noise(model, [batch] * 3, seed=seed) for seed in (0, 0, 1))
    assert all(first[name].equal(again[name]) for name in first)
    with torch.no_grad():
        assert learn_noise(model, [batch] * 3)["encoder.0.self"].equal(first["encoder.0.self"])
    assert not all(first[name].equal(other[name]) for name in first)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(tensor.equal(kept[name]) for name, tensor in before.items())
    assert torch.get_rng_state().equal(stream)


def test_the_cost_of_noise_is_a_difference_of_likelihoods_a_sentence() -> None:
    model, batch = build(options={"scale": 0.7}), small_batch()
    parts = [rows(batch, [0, 2]), padded(rows(batch, [1]), 2, 3)]
    cost = noise_cost(model, parts, 1.3, seed=5)
    guide = NoisyHeads(model).double()

    def measure(*noisy: tuple[str, int]) -> float:
        scales = {name: torch.full_like(scale, 1e-6) for name, scale in guide.scales().items()}
        for name, head in noisy:
            scales[name][head] = 1.3
        guide.set_scales(scales)
        with eval_no_grad(model, guide), fixed_noise(5, torch.device("cpu")):
            return sum(float(lh.terms(model, guide, b).log_likelihood.sum()) for b in parts) / 3

    for index in (("encoder.0.self", 0), ("decoder.1.cross", 2)):
        assert float(cost[index[0]][index[1]]) == pytest.approx(
            measure() - measure(index), abs=1e-6
        )


def test_scales_that_are_taken_are_those_that_are_given_back() -> None:
    guide = NoisyHeads(build())
    scales = {name: torch.rand(HEADS) + 0.1 for name in guide.scales()}
    guide.set_scales(scales)
    for name, scale in guide.scales().items():
        torch.testing.assert_close(scale, scales[name])


@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_learned_of_the_heads_of_any_network_of_transformers(name: str) -> None:
    model = lh.latent(network(name), make_prior("independent", scale=PRIOR))
    batch = model.batch(inputs_of(model.network), labels_of(name))
    noise = learn_noise(model, [batch] * 2, kl_weight=0.1)
    assert {block: len(item) for block, item in noise.items()} == {
        block.name: block.heads for block in model.blocks
    }
    assert all((tensor > 0).all() and tensor.isfinite().all() for tensor in noise.values())


def test_noise_that_is_none_is_refused_and_so_are_no_batches() -> None:
    model, batch = build(), small_batch()
    with pytest.raises(ValueError, match="scale must be at least 1e-06, got -1"):
        noise_cost(model, [batch], -1.0)
    with pytest.raises(ValueError, match="learning_rate must be at least 0, got -1"):
        learn_noise(model, [batch], learning_rate=-1.0)
    for ask in (learn_noise, partial(noise_cost, scale=0.5)):
        with pytest.raises(ValueError, match=r"^batches must be at least one batch, got none$"):
            ask(model, [])


def test_a_model_without_noise_is_refused() -> None:
    with pytest.raises(ValueError, match="no head of this model has noise: give it a prior over"):
        learn_noise(build(prior="delta"), [small_batch()])
