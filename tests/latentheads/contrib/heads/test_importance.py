"""Importance by gradient against the derivative of a loss whose heads are really scaled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pyro import poutine
from torch import Tensor

from latentheads.batch import Batch
from latentheads.contrib.heads import gradient_importance, record_heads
from latentheads.inference.evaluation import plug_in_log_likelihood
from tests.latentheads.latents.bernoulli_heads import models as bernoulli
from tests.tiny import HEADS, KINDS, attach, attentions_of, build, small_batch


@torch.no_grad()
def scaled_loss(model: Any, name: str, head: int, factor: float, batch: Batch) -> Tensor:
    """The loss of every sentence with what a head writes scaled."""
    (module,) = (attention for attention in attentions_of(model) if attention.block.name == name)
    weight = module.attention.out.weight
    kept, size = weight.clone(), weight.shape[1] // HEADS
    weight[:, head * size : (head + 1) * size] *= factor
    loss = -plug_in_log_likelihood(model, batch)
    weight.copy_(kept)
    return loss


def assert_derivatives(model: Any, importances: dict[str, Tensor], batch: Batch) -> None:
    """Every importance is the difference quotient of the loss by a scale of its head."""
    step = 1e-5
    for name, values in importances.items():
        for head in range(HEADS):
            up, down = (scaled_loss(model, name, head, 1 + s, batch) for s in (step, -step))
            expected = ((up - down) / (2 * step)).abs().mean()
            assert float(values[head]) == pytest.approx(float(expected), rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_it_is_the_derivative_by_a_mask_on_the_head(kind: str, norm: str) -> None:
    model, batch = build(kind, "cascaded", norm=norm).eval(), small_batch()
    importances = gradient_importance(model, [batch], normalise=False)
    assert set(importances) == {block.name for block in model.blocks}
    assert_derivatives(model, importances, batch)


@pytest.mark.parametrize("gibibytes", [4.0, 1e-9])
def test_of_bernoulli_heads_it_is_the_derivative_of_the_sum_over_subsets(gibibytes: float) -> None:
    options = {"gibibytes": gibibytes}  # the smaller number: a slice for every subset
    model = bernoulli.build("decoder.0.cross", "autoregressive", options=options)
    batch = small_batch()
    importance = gradient_importance(model, [batch], normalise=False)
    assert set(importance) == {module.block.name for module in model.head_blocks}
    assert_derivatives(model, importance, batch)
    assert all((values > 0).all() for values in importance.values())


def test_a_head_counts_where_the_guide_samples_it_active() -> None:
    model, batch = bernoulli.build("decoder.0.cross", "autoregressive"), small_batch()
    guide = bernoulli.attach(model, "exact")
    ((_, heads),) = record_heads(model, [batch], guide, 3)
    active = heads["decoder.0.cross"].active
    assert active.any(0).any()
    assert not active.all()
    for name, values in gradient_importance(model, [batch], guide, 3, normalise=False).items():
        assert values.isnan().equal(~heads[name].active.any(0))
        assert (values.nan_to_num(1.0) > 0).all()
    for values in gradient_importance(model, [batch], guide, 3).values():
        assert float(values.nan_to_num().norm()) == pytest.approx(1)


def test_the_importance_of_heads_that_the_loss_does_not_depend_on_is_zero() -> None:
    model, batch = build().eval(), small_batch()
    (module,) = (
        attention for attention in attentions_of(model) if attention.block.name == "decoder.1.cross"
    )
    module.register_forward_hook(lambda _, __, output: (output[0].detach(), *output[1:]))
    importances = gradient_importance(model, [batch])
    assert not importances["decoder.1.cross"].any()
    assert (importances["encoder.0.self"] > 0).all()


def test_the_paper_divides_by_the_norm_over_a_block() -> None:
    model, batch = build().eval(), small_batch()
    raw = gradient_importance(model, [batch], normalise=False)
    for name, values in gradient_importance(model, [batch]).items():
        assert float(values.norm()) == pytest.approx(1)
        assert torch.allclose(values * raw[name].norm(), raw[name])


def test_it_leaves_a_model_as_it_was_and_takes_a_guide() -> None:
    model, batch = build(dropout=0.5).train().requires_grad_(False), small_batch()
    plain = gradient_importance(model, [batch])
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    drawn = gradient_importance(model, [batch], attach("mean-field", model), seed=3)
    assert not torch.allclose(drawn["encoder.0.self"], plain["encoder.0.self"])


def test_with_a_guide_it_is_the_derivative_where_the_drawn_logits_stay() -> None:
    model, batch = build().eval(), small_batch()
    guide = attach("mean-field", model)  # it reads a pass of its own, which does not count
    ((_, heads),) = record_heads(model, [batch], guide, 3)
    importances = gradient_importance(model, [batch], guide, 3, normalise=False)
    with poutine.condition(data={b.site(): heads[b.name].logits for b in model.blocks}):
        assert_derivatives(model, importances, batch)


def test_each_batch_has_noise_of_its_own() -> None:
    model, batch = build(), small_batch()
    guide = attach("cascaded", model)
    both, first, second = (
        gradient_importance(model, batches, guide, seed, normalise=False)["decoder.0.self"]
        for batches, seed in (([batch] * 2, 3), ([batch], 3), ([batch], 4))
    )
    assert torch.allclose(both, (first + second) / 2)
    assert not torch.allclose(first, second)
