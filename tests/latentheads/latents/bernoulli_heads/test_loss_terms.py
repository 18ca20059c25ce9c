"""Objectives: values and gradients, against the exact bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro
import pytest
import torch
from pyro import poutine
from torch import Tensor

import latentheads as lh
from latentheads.guides import GUIDES
from latentheads.latents.bernoulli_heads import passes
from latentheads.latents.bernoulli_heads.loss_terms import (
    _baseline,
    _samples,
    subset_loss_terms,
)
from latentheads.latents.bernoulli_heads.subsets import all_subsets, joint_table
from latentheads.latents.sampled import importance_bound, wake_objective
from latentheads.layers import linear_log_prob
from tests.latentheads.latents.bernoulli_heads.models import (
    attach,
    build,
    gates_of,
    language_model,
    log_likelihood_by_hand,
)
from tests.tiny import ADAPTIVE, jiggle, small_batch

OBJECTIVES = ("bound", "marginal", "sampled", "iwae", "rws", "relaxed")


def gradients(modules: tuple[Any, ...], value: Tensor) -> dict[str, Tensor]:
    for module in modules:
        module.zero_grad()
    value.backward()
    return {
        f"{index}.{name}": p.grad.clone()
        for index, module in enumerate(modules)
        for name, p in module.named_parameters()
        if p.grad is not None
    }


def loss(model: Any, guide: Any, objective: str, **options: Any) -> Tensor:
    with pyro.validation_enabled(False):
        elbo = lh.Head_ELBO(analytic=True, objective=objective, **options)
        return elbo.differentiable_loss(model, guide, small_batch())


def test_the_bound_is_the_sum_of_its_terms() -> None:
    model = build()
    guide = attach(model)
    terms = lh.terms(model, guide, small_batch())
    torch.testing.assert_close(-loss(model, guide, "bound"), terms.elbo.sum())
    exact = terms.enumeration.log_evidence.sum()
    torch.testing.assert_close(-loss(model, guide, "marginal"), exact)


def test_marginal_trains_the_model_by_log_p_and_the_guide_by_its_bound() -> None:
    model = build()
    guide, batch = attach(model), small_batch()
    of_marginal = gradients((model, guide), -loss(model, guide, "marginal"))
    of_bound = gradients((model, guide), -loss(model, guide, "bound"))
    evidence = model.token_distribution(batch).log_evidence(batch.scored).sum()
    of_evidence = gradients((model,), evidence)
    for name, gradient in of_marginal.items():
        expected = of_evidence if name.startswith("0.") else of_bound
        torch.testing.assert_close(gradient, expected[name])
    assert any(name.startswith("1.") and g.any() for name, g in of_marginal.items())


def test_a_posterior_that_is_the_prior_adds_no_gradient_to_log_p() -> None:
    model, batch = build(), small_batch()
    of_marginal = gradients((model,), -loss(model, GUIDES["tied"](model), "marginal"))
    evidence = model.token_distribution(batch).log_evidence(batch.scored).sum()
    for name, gradient in gradients((model,), evidence).items():
        torch.testing.assert_close(of_marginal[name], gradient)


@pytest.mark.parametrize("gibibytes", [4.0, 1e-4])
@pytest.mark.parametrize("kind", ["linear", "adaptive"])
def test_the_gradient_of_the_bound_is_made_beside_its_value(
    kind: str, gibibytes: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one pass of the output layer, and to rounding that of a pass which expects nothing."""
    options = {"gibibytes": gibibytes}
    model = build(options=options) if kind == "linear" else language_model("", **ADAPTIVE)
    guide, rows = attach(model), []
    of_unknown = gradients((model, guide), loss_that_expects(None, model, guide, monkeypatch))
    make = linear_log_prob.Slices
    monkeypatch.setattr(linear_log_prob, "Slices", lambda x, w: rows.append(len(x)) or make(x, w))
    of_expected = gradients((model, guide), loss(model, guide, "bound"))
    assert len(rows) == (1 if kind == "linear" else 3)
    assert of_unknown.keys() == of_expected.keys()
    for name, gradient in of_expected.items():
        torch.testing.assert_close(gradient, of_unknown[name], rtol=1e-12, atol=1e-12)


def loss_that_expects(
    gradient: None, model: Any, guide: Any, monkeypatch: pytest.MonkeyPatch
) -> Tensor:
    with monkeypatch.context() as patches:
        patches.setattr(passes, "_of_tokens", lambda *_: gradient)
        return loss(model, guide, "bound")


def with_gates(model: Any, guide: Any, gates: Tensor) -> Any:
    """The traces of a pass in which every sentence has these gates."""
    values = {"decoder.1.cross.active": gates.expand(3, 3)}
    trace = poutine.Trace()
    for name, value in values.items():
        trace.add_node(name, type="sample", value=value, is_observed=False, infer={})
    poutine.replay(guide, trace=trace)(small_batch())
    return guide.get_traces()


def test_the_baseline_has_every_gate_at_its_prior_mean() -> None:
    model = build(prior="autoregressive")
    traces = with_gates(model, attach(model), torch.ones(3).double())
    log_prior = joint_table(gates_of(model).prior())
    means = (log_prior.exp()[:, None] * all_subsets(6, log_prior)).sum(0)
    expected = log_likelihood_by_hand(model, small_batch(), tuple(means.tolist()))
    torch.testing.assert_close(_baseline(traces[0]).squeeze(-1), expected)


def test_the_score_function_is_unbiased() -> None:
    model = build("decoder.1.cross", "autoregressive")
    guide, batch = attach(model, "autoregressive"), small_batch()
    of_bound = gradients((model, guide), -loss(model, guide, "bound"))
    total: dict[str, Tensor] = {}
    for gates in all_subsets(3, torch.zeros(0).double()):
        traces = with_gates(model, guide, gates)
        log_likelihood, kl, has_kl = subset_loss_terms(*traces, "sampled", 1)
        assert has_kl
        site = traces[1].nodes["decoder.1.cross.active"]
        weight = site["fn"].log_prob(site["value"]).exp().detach()
        objective = (weight * (log_likelihood - sum(kl.values()))).sum()
        for name, gradient in gradients((model, guide), objective).items():
            total[name] = total.get(name, torch.zeros_like(gradient)) + gradient
    assert batch.target.shape[0] == 3
    for name, gradient in of_bound.items():
        torch.testing.assert_close(total[name], gradient)


def test_the_relaxed_gradient_is_that_of_the_bound_at_a_low_temperature() -> None:
    """Its error is that of 2,560 samples: E |error|^2 is the sum of squared standard errors."""
    torch.manual_seed(0)
    model = build("decoder.1.cross", "autoregressive")
    guide = jiggle(GUIDES["autoregressive"](model).double(), 0.1).eval()
    particles = {"num_particles": 256, "vectorize_particles": True, "max_plate_nesting": 1}

    def gradient(objective: str, **options: Any) -> Tensor:
        value = loss(model, guide, objective, **options)
        return torch.cat([g.flatten() for g in gradients((model, guide), value).values()])

    exact, ratios = gradient("bound"), {}
    for temperature in (0.1, 1.0):
        gates_of(model).temperature = temperature
        rows = [gradient("relaxed", **particles) for _ in range(10)]
        samples = torch.stack(rows)
        error, standard_error = samples.mean(0) - exact, samples.std(0) / len(rows) ** 0.5
        ratios[temperature] = error.norm() / standard_error.norm()
        assert standard_error.norm() < 0.1 * exact.norm()
    assert ratios[0.1] < 2
    assert ratios[1.0] > 5  # of which the bias is most


def test_samples_carry_their_log_probabilities() -> None:
    torch.manual_seed(0)
    model = build()
    guide, batch = attach(model), small_batch()
    guide(batch)
    traces = guide.get_traces()
    samples = _samples(*traces, 5)
    weights = samples.log_weights
    assert weights.shape == (5, 3, 1)
    enumeration = lh.terms(model, guide, batch).enumeration
    possible = (enumeration.log_joint - enumeration.log_q).detach()
    for sample in weights[..., 0].detach():
        distance = (possible - sample[:, None]).abs().amin(-1)
        assert (distance < 1e-9).all()


@pytest.mark.parametrize(
    ("objective", "bound"), [("iwae", importance_bound), ("rws", wake_objective)]
)
def test_weighted_samples_have_the_bound_of_their_objective(objective: str, bound: Any) -> None:
    model = build()
    guide = attach(model)

    def gradient(make: Callable[..., Tensor]) -> dict[str, Tensor]:
        guide(small_batch())
        torch.manual_seed(1)
        return gradients((model, guide), make(*guide.get_traces()).sum())

    expected = gradient(lambda *traces: bound(_samples(*traces, 5)))
    actual = gradient(lambda *traces: subset_loss_terms(*traces, objective, 5)[0])
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_trains_model_prior_and_guide(objective: str) -> None:
    torch.manual_seed(0)
    model = build().train()
    guide = attach(model).train()
    gradient = gradients((model, guide), loss(model, guide, objective, num_samples=3))
    for part in ("0.bernoulli_heads.prior.weight", "0.decoder.layers.1.cross.attention.in_weight"):
        assert gradient[part].any()
    assert all(gradient[f"1.{name}"].any() for name, _ in guide.named_parameters())
    assert all(g.isfinite().all() for g in gradient.values())


def test_particles_have_their_own_gates() -> None:
    torch.manual_seed(0)
    model = build()
    guide = attach(model)
    options = {"num_particles": 4, "vectorize_particles": True, "max_plate_nesting": 1}
    torch.testing.assert_close(loss(model, guide, "bound", **options), loss(model, guide, "bound"))
    assert loss(model, guide, "sampled", **options).isfinite()
