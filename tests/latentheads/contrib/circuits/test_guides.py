"""Guides of a subset of heads: their bound is below log Z by the KL divergence, exactly."""

from __future__ import annotations

from typing import Any

import pyro
import pytest
import torch
from pyro import poutine
from torch import Tensor

from latentheads.contrib.circuits import (
    CircuitGuide,
    CircuitModel,
    LogisticChain,
    exact_bound,
    fit_guide,
)
from latentheads.contrib.circuits.guides import SITE, STRUCTURES, _score_function
from latentheads.latents.bernoulli_heads.prior import dependence_mask
from latentheads.latents.bernoulli_heads.subsets import (
    all_subsets,
    logistic_chain,
    nearest_product,
    subset_index,
)

HEADS = (2, 3)
every_structure = pytest.mark.parametrize("structure", STRUCTURES)


def make_density(seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    return 1.5 * torch.randn(2 ** sum(HEADS), dtype=torch.float64)


def make_guide(structure: str) -> CircuitGuide:
    torch.manual_seed(1)
    guide = CircuitGuide(HEADS, structure)
    for parameter in guide.parameters():
        torch.nn.init.normal_(parameter)
    return guide


@every_structure
def test_the_chain_is_that_of_the_tables(structure: str) -> None:
    chain = make_guide(structure).distribution()
    subsets = all_subsets(5, chain.logits)
    table = logistic_chain(chain.logits, chain.weight)
    torch.testing.assert_close(chain.log_prob(subsets), table.log_probs)
    samples = chain.sample(torch.Size([4000]))
    torch.testing.assert_close(samples.mean(0), table.log_probs.exp() @ subsets, rtol=0, atol=0.035)
    dependent = dependence_mask(HEADS, structure)
    assert bool(dependent.any()) == (structure != "mean-field")
    assert (chain.weight != 0).equal(dependent)


def test_a_bound_needs_the_log_density_of_every_subset() -> None:
    guide, short = make_guide("mean-field"), make_density()[:1]
    for bound in (exact_bound, fit_guide):
        with pytest.raises(
            ValueError, match=r"^log_density must be as many as subsets, 32, got 1$"
        ):
            bound(guide, short)
    density: Any = torch.sum  # a function, as fit_guide takes it
    with pytest.raises(ValueError, match=r"^log_density must be of all subsets: posterior\.log_"):
        exact_bound(guide, density)


@every_structure
def test_the_gap_is_the_divergence(structure: str) -> None:
    log_density, guide = make_density(), make_guide(structure)
    before = exact_bound(guide, log_density)
    fit_guide(guide, log_density, steps=150, learning_rate=0.2)
    after = exact_bound(guide, log_density)
    for bound in (before, after):
        assert bound.gap == pytest.approx(bound.divergence, abs=1e-10)
        assert bound.gap > 0
        assert bound.log_evidence == pytest.approx(float(log_density.logsumexp(0)))
    assert after.gap < 0.6 * before.gap


@pytest.mark.parametrize("logit", [5.0, 19.0, 20.1, 30.0])
def test_a_guide_that_is_the_posterior_has_no_divergence(logit: float) -> None:
    guide = CircuitGuide(HEADS, logit=logit)
    log_density = logistic_chain(guide.logits, guide.weight).log_probs.detach()
    assert 0 <= exact_bound(guide, log_density).divergence < 1e-12


def test_structure_closes_what_mean_field_leaves() -> None:
    """A density of a cascaded guide's own form: a chain over the heads of the lower layer."""
    truth = make_guide("cascaded")
    log_density = truth.distribution().log_prob(all_subsets(5, truth.logits)).detach() + 3
    gaps = {}
    for structure in STRUCTURES:
        guide = CircuitGuide(HEADS, structure)
        fit_guide(guide, log_density, steps=250, learning_rate=0.2)
        gaps[structure] = exact_bound(guide, log_density).gap
    assert gaps["cascaded"] < 1e-4
    assert gaps["mean-field"] > 0.01
    best = nearest_product(log_density.log_softmax(0), 5, rounds=50)
    optimum = CircuitGuide(HEADS)
    optimum.logits.data.copy_(best)
    assert gaps["mean-field"] == pytest.approx(exact_bound(optimum, log_density).gap, abs=1e-3)


def test_the_estimated_gradient_is_that_of_the_exact_bound() -> None:
    torch.manual_seed(0)
    log_density, guide = make_density(), make_guide("cascaded")
    bound = exact_bound(guide, log_density)
    loss, estimates = torch.zeros((), dtype=torch.float64), []
    for _ in range(100):
        part, estimate = _score_function(guide, lambda gates: log_density[subset_index(gates)], 200)
        loss, estimates = loss + part / 100, [*estimates, float(estimate)]
    assert sum(estimates) / 100 == pytest.approx(bound.elbo, abs=0.1)
    gradient = torch.autograd.grad(loss, guide.logits)[0]
    log_q = guide.distribution().log_prob(all_subsets(5, log_density))
    exact = -(log_q.exp() * (log_density - log_q)).sum()
    expected = torch.autograd.grad(exact, guide.logits)[0]
    torch.testing.assert_close(gradient, expected, rtol=0, atol=0.05)
    assert expected.abs().max() > 0.2
    before = exact_bound(guide, log_density).elbo
    fit_guide(guide, lambda gates: log_density[subset_index(gates)], steps=60)
    assert exact_bound(guide, log_density).elbo > before + 0.3


@every_structure
def test_the_traces_of_pyro_have_the_weight_of_a_subset(structure: str) -> None:
    log_density, guide = make_density(), make_guide(structure)
    model = CircuitModel(lambda gates: log_density[subset_index(gates)], sum(HEADS))
    pyro.set_rng_seed(0)
    pyro.clear_param_store()
    with torch.no_grad():
        guide_trace = poutine.trace(guide).get_trace()
    model_trace = poutine.trace(poutine.replay(model, guide_trace)).get_trace()
    gates = guide_trace.nodes[SITE]["value"]
    log_q = guide.distribution().log_prob(gates).detach()
    assert float(guide_trace.log_prob_sum().detach()) == pytest.approx(float(log_q))
    assert float(model_trace.log_prob_sum()) == pytest.approx(
        float(log_density[subset_index(gates)])
    )
    pyro.clear_param_store()


def test_a_guide_may_begin_near_all_heads() -> None:
    needed = torch.zeros(2 ** sum(HEADS), dtype=torch.float64)
    needed[-1] = 300.0  # all heads are needed, as without a penalty
    gaps = []
    for logit in (0.0, 4.0):
        guide = CircuitGuide(HEADS, logit=logit)
        fit_guide(guide, needed, steps=1)
        gaps.append(exact_bound(guide, needed).gap)
    assert gaps[1] < 0.2 * gaps[0]


def test_there_is_one_subset_and_a_known_structure() -> None:
    with pytest.raises(ValueError, match=r"^structure must be one of mean-field, autoregressive"):
        CircuitGuide(HEADS, "exact")
    with pytest.raises(ValueError, match=r"^the subset of heads is one for all prompts"):
        LogisticChain(torch.zeros(2), torch.zeros(2, 2)).expand(torch.Size([3]))
