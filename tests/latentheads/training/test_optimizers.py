"""Muon is PyTorch's own, for the matrices that it is meant for."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import latentheads as lh
from latentheads.contrib.speech.ctc import CTC
from latentheads.training.optimizers import NAG, Muon, Optimizers, hidden_matrices, orthogonalise
from latentheads.training.options import Optimizer, Training, make_training
from tests.latentheads.latents.alignments.models import SHAPES, aligned
from tests.tiny import attach, build, jiggle

SIZES = [(5, 7), (7, 5), (5, 7), (3, 3), (7, 5), (5, 7)]


def matrices() -> list[nn.Parameter]:
    return [nn.Parameter(torch.randn(size)) for size in SIZES]


def take_steps(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter]) -> None:
    generator = torch.Generator().manual_seed(3)
    for step in range(4):
        for index, parameter in enumerate(parameters):
            gradient = torch.randn(parameter.shape, generator=generator)
            parameter.grad = None if (step, index) == (1, 2) else gradient
        optimizer.step()


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_a_step_is_pytorchs_own(decay: float) -> None:
    """But for rounding: both orthogonalise in bfloat16, and products of a batch round otherwise."""
    mine, own = matrices(), matrices()
    for a, b in zip(mine, own, strict=True):
        b.data.copy_(a.data)
    how: dict[str, Any] = {"lr": 0.1, "weight_decay": decay}
    take_steps(Muon(mine, **how), mine)
    before = copy.deepcopy(own)
    take_steps(torch.optim.Muon(own, **how, adjust_lr_fn="match_rms_adamw"), own)
    for a, b, start in zip(mine, own, before, strict=True):
        moved = (b - start).norm()
        assert (a - b).norm() < 0.02 * moved
        assert moved > 0.1


def test_all_singular_values_become_about_one() -> None:
    given = torch.randn(4, 11, 7) * torch.tensor([1e-3, 1.0, 1e3, 1.0])[:, None, None]
    settings = torch.optim.Muon([torch.zeros(2, 2)]).defaults
    orthogonal = orthogonalise(given, settings["ns_coefficients"], settings["ns_steps"], 1e-7)
    assert orthogonal.shape == given.shape
    values = torch.linalg.svdvals(orthogonal.double())
    assert ((values > 0.5) & (values < 1.3)).all()
    left, _, right = torch.linalg.svd(given, full_matrices=False)
    cosine = (
        (orthogonal * (left @ right)).sum((1, 2)) / orthogonal.double().norm(dim=(1, 2)) / 7**0.5
    )
    assert (cosine > 0.97).all()
    assert orthogonalise(torch.zeros(1, 3, 2), (1.0, 1.0, 1.0), 2, 1e-7).eq(0).all()


def names_of(module: nn.Module) -> set[str]:
    chosen = {id(matrix) for matrix in hidden_matrices(module)}
    return {name for name, parameter in module.named_parameters() if id(parameter) in chosen}


@pytest.mark.parametrize("kind", ["translation", "language-model", "adaptive"])
def test_matrices_of_layers_are_chosen_and_no_table(kind: str) -> None:
    model = build(kind)
    names = names_of(lh.Head_ELBO()(model, attach("cholesky", model)))
    assert all(name.endswith("weight") for name in names)
    assert not any("embedding" in name or "output" in name or "norm" in name for name in names)
    parts = {name.split(".")[-2] for name in names}
    assert parts >= {"attention", "out", "inner", "outer"}
    assert {name for name in names if name.startswith("guide.")}
    every = dict(lh.Head_ELBO()(model, attach("cholesky", model)).named_parameters())
    rest = {name for name, item in every.items() if item.ndim == 2 and name not in names}
    tables = ("table", "output", "log", "below_diagonal", "embedding")
    assert all(any(part in name for part in tables) for name in rest), rest
    model = aligned(SHAPES["two blocks"])
    names = names_of(lh.Head_ELBO()(model, attach("cascaded", model)))
    assert {name.partition(".")[0] for name in names if "alignments" in name} == {"model", "guide"}


@pytest.mark.parametrize("tied", [True, False])
def test_the_tables_of_a_network_of_transformers_are_no_matrices(tied: bool) -> None:
    transformers = pytest.importorskip("transformers")
    sizes: dict[str, Any] = {"n_embd": 6, "n_layer": 1, "n_head": 3, "vocab_size": 11}
    config = transformers.GPT2Config(**sizes, n_positions=7, tie_word_embeddings=tied)
    names = names_of(transformers.GPT2LMHeadModel(config))
    parts = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    assert names == {f"transformer.h.0.{part}.weight" for part in parts}


def test_the_output_layer_of_ctc_is_no_hidden_matrix() -> None:
    ctc = CTC(width=3, vocab_size=7, weight=0.3)
    assert names_of(nn.Sequential(nn.Linear(3, 3), ctc)) == {"0.weight"}


def make_optimizers(module: nn.Module, training: Training) -> Optimizers:
    return Optimizers(training.optimizer.make(module, training.learning_rate))


@pytest.mark.parametrize("name", Optimizer.choices())
def test_every_parameter_has_one_optimizer(name: str) -> None:
    model = build()
    objective = lh.Head_ELBO()(model, attach("cascaded", model))
    plan = make_training({"optimizer": name, "learning_rate": 0.01})
    groups = make_optimizers(objective, plan).param_groups
    parameters = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(parameters) == sorted(id(p) for p in objective.parameters())
    assert {group["lr"] for group in groups} == {0.01}


@pytest.mark.parametrize("name", Optimizer.choices())
def test_without_a_gradient_weights_shrink_by_the_decay_alone(name: str) -> None:
    module = jiggle(nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5)), 0.3)
    plan = {"optimizer": {"class": name, "weight_decay": 0.3}, "learning_rate": 0.01}
    optimizers = make_optimizers(module, make_training(plan))
    start = [parameter.detach().clone() for parameter in module.parameters()]
    for _ in range(7):
        for parameter in module.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizers.step()
    for parameter, before in zip(module.parameters(), start, strict=True):
        torch.testing.assert_close(parameter.data, before * (1 - 0.01 * 0.3) ** 7)


def test_momentum_of_nag_is_of_gradients_alone() -> None:
    """One gradient and then none: its momentum falls, the decay is that of each weight."""
    start, gradient = torch.randn(2, 5)
    parameter, rate, momentum, decay = nn.Parameter(start.clone()), 0.1, 0.9, 0.3
    nag = NAG([parameter], rate, momentum, decay)
    expected, velocity = start, torch.zeros(5)
    for step in range(11):
        parameter.grad = gradient.clone() if step == 0 else torch.zeros(5)
        nag.step()
        velocity = momentum * velocity + parameter.grad
        update = parameter.grad + momentum * velocity
        expected = (1 - rate * decay) * expected - rate * update
    torch.testing.assert_close(parameter.data, expected)
    keep = 1 - rate * decay
    powers = sum(keep ** (10 - step) * momentum ** (step + 1) for step in range(11))
    closed = keep**11 * start - rate * (keep**10 + powers) * gradient
    torch.testing.assert_close(parameter.data, closed)


def test_without_decay_nag_is_pytorchs_own() -> None:
    mine, own = matrices(), matrices()
    for a, b in zip(mine, own, strict=True):
        b.data.copy_(a.data)
    take_steps(NAG(mine, 0.1, 0.9, 0.0), mine)
    take_steps(torch.optim.SGD(own, 0.1, 0.9, nesterov=True), own)
    for a, b in zip(mine, own, strict=True):
        torch.testing.assert_close(a.data, b.data)


def test_each_name_makes_the_optimizer_of_that_name() -> None:
    model, classes = build(), {}
    for name in ("adamw", "nag", "muon"):
        optimizers = make_optimizers(model, make_training({"optimizer": name}))
        classes[name] = [type(optimizer) for optimizer in optimizers]
    adamw = torch.optim.AdamW
    assert classes == {"adamw": [adamw], "nag": [NAG], "muon": [Muon, adamw]}


def test_muon_makes_only_the_optimizers_that_have_parameters() -> None:
    plan = make_training({"optimizer": "muon"})
    matrix, gains = nn.Linear(2, 3, bias=False), nn.LayerNorm(3)
    assert [type(optimizer) for optimizer in make_optimizers(matrix, plan)] == [Muon]
    assert [type(optimizer) for optimizer in make_optimizers(gains, plan)] == [torch.optim.AdamW]


@pytest.mark.parametrize("unscaled", [True, False])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_scaled_gradient_is_divided_and_one_that_is_not_finite_moves_nothing(
    value: float, unscaled: bool
) -> None:
    mine, own = matrices(), matrices()
    for a, b in zip(mine, own, strict=True):
        b.data.copy_(a.data)
    scaled, plain = (Muon(item, lr=0.1, weight_decay=0.1) for item in (mine, own))
    take_steps(scaled, mine)
    take_steps(plain, own)
    before = [item.clone() for item in (*mine, *by_order(scaled))]
    for a, b in zip(mine, own, strict=True):
        b.grad = torch.ones_like(b) if not value else None
        a.grad = torch.ones_like(a) * (1 if unscaled else 8)
        if value:
            a.grad[0, 0] = torch.inf
    tell: Any = scaled
    tell.found_inf, tell.grad_scale = torch.tensor(value), None if unscaled else torch.tensor(8.0)
    scaled.step()
    plain.step()
    after = [*mine, *by_order(scaled)]
    wanted = before if value else [*own, *by_order(plain)]
    for a, b in zip(after, wanted, strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-12)


def by_order(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [state["momentum_buffer"] for state in optimizer.state.values()]


@pytest.mark.parametrize("name", Optimizer.choices())
@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_a_gradient_that_is_not_finite_keeps_every_optimizer_from_moving(
    bad: float, name: str
) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)).float()
    plan = {"optimizer": {"class": name, "weight_decay": 0.3}, "learning_rate": 0.1}
    optimizers: Any = make_optimizers(module, make_training(plan))
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for step in range(3):
        scaler.scale(module(torch.ones(3, dtype=torch.float32)).square().sum()).backward()
        before = [parameter.detach().clone() for parameter in module.parameters()]
        if step == 1:
            module[0].weight.grad[0, 0] = bad
        scaler.unscale_(optimizers)
        parameters = list(module.parameters())
        norm = nn.utils.get_total_norm([parameter.grad for parameter in parameters])
        nn.utils.clip_grads_with_norm_(parameters, 1.0, norm)
        scaler.step(optimizers)
        scaler.update()
        optimizers.zero_grad()
        moved = [not torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True)]
        assert any(moved) if step != 1 else not any(moved)
        assert all(parameter.isfinite().all() for parameter in module.parameters())
        states = [state for optimizer in optimizers for state in optimizer.state.values()]
        assert all(value.isfinite().all() for state in states for value in state.values())
    assert isinstance(optimizers, Optimizers)
    assert not any(hasattr(optimizer, "found_inf") for optimizer in optimizers)
