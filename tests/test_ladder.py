"""Number 6 of what must always hold: ELBO <= IWAE_2 <= IWAE_8 <= ... <= log p(y | x), exactly."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor, nn

from latentheads.batch import Batch
from latentheads.guide import ModelGuide
from latentheads.inference.bound import Importance, importance, terms
from tests.tiny import FORMS, attach, bernoulli_gate, build, rows, small_batch

COPIES = 2000


@contextmanager
def in_float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def copies(batch: Batch, number: int) -> Batch:
    return rows(batch, [0] * number)


def conditioned_likelihood(model: Any, batch: Batch, values: dict[str, Tensor]) -> Tensor:
    """log p(y | z) with a value of the latents for each copy of the sentence."""
    trace = poutine.trace(poutine.condition(model, data=values)).get_trace(batch)
    site = trace.nodes["target"]
    likelihood: Tensor = site["fn"].log_prob(site["value"])
    return likelihood.detach()


class Gates(ModelGuide):
    """Proposes every gate from probabilities of its own."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        sites = [block.site("gate") for block in model.blocks]
        heads = model.blocks[0].heads
        self.logits = nn.ParameterDict(
            {site.replace(".", "_"): nn.Parameter(torch.randn(heads)) for site in sites}
        )

    def get_posterior(self, name: str, prior: Any) -> Any:
        if not name.endswith("gate"):
            return prior
        own = dist.Bernoulli(logits=self.logits[name.replace(".", "_")])
        return own.expand(prior.shape()).to_event(1)


class Enumerated:
    """Every setting of all gates of a tiny network with deterministic logits."""

    def __init__(self, kind: str) -> None:
        heads, layers = (2, 1) if kind == "translation" else (2, 2)
        torch.manual_seed(2)
        self.model = build(
            kind, prior="delta", gate=bernoulli_gate(0.6), heads=heads, layers=layers
        ).eval()
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.mul_(1.7)
        self.guide = Gates(self.model)
        self.batch = rows(small_batch(), [0])
        sites = [block.site("gate") for block in self.model.blocks]
        total = heads * len(sites)
        every = torch.tensor(list(itertools.product([0.0, 1.0], repeat=total)))
        self.gates = dict(zip(sites, every.split(heads, 1), strict=True))
        batch = copies(self.batch, len(every))
        self.log_likelihood = conditioned_likelihood(self.model, batch, self.gates)
        self.log_prior = dist.Bernoulli(0.6).log_prob(every).sum(1)
        own = torch.cat([self.guide.logits[site.replace(".", "_")] for site in sites]).detach()
        self.log_q = dist.Bernoulli(logits=own).log_prob(every).sum(1)
        self.exact_kl = torch.distributions.kl_divergence(
            torch.distributions.Bernoulli(logits=own), torch.distributions.Bernoulli(0.6)
        ).sum()

    @cached_property
    def log_weight(self) -> Tensor:
        return self.log_likelihood + self.log_prior - self.log_q

    @property
    def log_evidence(self) -> float:
        return (self.log_likelihood + self.log_prior).logsumexp(0).item()

    def iwae(self, samples: int) -> float:
        """The exact expectation over every combination of K settings."""
        log_q, weight = self.log_q, self.log_weight
        joint, mean = torch.zeros(()), torch.full((), -torch.inf)
        for _ in range(samples):
            joint = joint[..., None] + log_q
            mean = torch.logaddexp(mean[..., None], weight)
        return (joint.exp() * (mean - math.log(samples))).sum().item()


@pytest.fixture(scope="module", params=["translation", "language-model"])
def enumerated(request: pytest.FixtureRequest) -> Enumerated:
    with in_float64():
        return Enumerated(request.param)


def test_exact_bounds_climb_to_the_evidence(enumerated: Enumerated) -> None:
    largest = 3 if len(enumerated.log_q) > 16 else 4
    ladder = [enumerated.iwae(k) for k in range(1, largest + 1)] + [enumerated.log_evidence]
    steps = np.diff(ladder)
    assert (steps > 1e-6).all()


def test_exact_bound_is_evidence_less_the_divergence_to_the_posterior(
    enumerated: Enumerated,
) -> None:
    log_posterior = enumerated.log_likelihood + enumerated.log_prior - enumerated.log_evidence
    q = enumerated.log_q.exp()
    gap = (q * (enumerated.log_q - log_posterior)).sum().item()
    assert enumerated.iwae(1) == pytest.approx(enumerated.log_evidence - gap, abs=1e-10)
    assert gap > 1e-3


def test_sampled_terms_average_to_the_exact_bound(enumerated: Enumerated) -> None:
    bound_terms = terms(enumerated.model, enumerated.guide, copies(enumerated.batch, COPIES))
    gates = {b.site("gate") for b in enumerated.model.blocks}
    assert {bound_terms.how[site] for site in gates} == {"analytic"}
    assert torch.allclose(bound_terms.total_kl, enumerated.exact_kl.expand(COPIES))
    for estimate in (bound_terms.elbo, bound_terms.log_weight):
        error = (estimate.std() / math.sqrt(COPIES)).item()
        assert estimate.mean().item() == pytest.approx(enumerated.iwae(1), abs=4 * error)
    exact = set(enumerated.log_likelihood.round(decimals=9).tolist())
    assert set(bound_terms.log_likelihood.round(decimals=9).tolist()) <= exact


def test_sampled_weights_average_to_the_evidence(enumerated: Enumerated) -> None:
    batch = copies(enumerated.batch, COPIES)
    weights = importance(enumerated.model, enumerated.guide, batch, num_samples=2)
    ratio = (weights.log_weights - enumerated.log_evidence).exp().flatten()
    error = (ratio.std() / math.sqrt(len(ratio))).item()
    assert ratio.mean().item() == pytest.approx(1, abs=4 * error)
    spread = (weights.bound.std() / math.sqrt(COPIES)).item()
    assert weights.bound.mean().item() == pytest.approx(enumerated.iwae(2), abs=4 * spread)


class Gaussian:
    """One block, one head, two tokens: two logits, integrated by quadrature."""

    site = "decoder.0.self.logits"

    def __init__(self) -> None:
        torch.manual_seed(3)
        self.model = build("language-model", heads=1, layers=1).eval()
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.mul_(2)
        self.batch = Batch.of([[5, 2]])

    def log_evidence(self, points: int = 40) -> float:
        nodes, weights = np.polynomial.hermite_e.hermegauss(points)
        z = torch.cartesian_prod(torch.tensor(nodes), torch.tensor(nodes))
        weight = torch.cartesian_prod(torch.tensor(weights), torch.tensor(weights)).prod(1)
        batch = copies(self.batch, len(z))
        prior = poutine.trace(self.model).get_trace(batch).nodes[self.site]["fn"]
        logits = prior.location.detach().clone()
        logits[:, 0, 1] += z
        likelihood = conditioned_likelihood(self.model, batch, {self.site: logits})
        return (likelihood + (weight / (2 * math.pi)).log()).logsumexp(0).item()


@pytest.fixture(scope="module")
def gaussian() -> Gaussian:
    with in_float64():
        return Gaussian()


def test_quadrature_has_converged(gaussian: Gaussian) -> None:
    assert gaussian.log_evidence(40) == pytest.approx(gaussian.log_evidence(56), abs=1e-3)


AWAY = {"mean-field of target": 0.04, "cascaded of target": 0.04}
"""How far from its start a guide of this form is, where 0.4 would need more draws."""


@pytest.mark.parametrize("form", FORMS)
def test_gaussian_bounds_climb_to_the_integral(form: str, gaussian: Gaussian) -> None:
    guide, evidence = attach(form, gaussian.model, AWAY.get(form, 0.4)), gaussian.log_evidence()
    weights = importance(gaussian.model, guide, copies(gaussian.batch, COPIES), num_samples=8)
    log_weights = weights.log_weights
    one = log_weights.mean(0)
    two = torch.stack([Importance(log_weights[k : k + 2]).bound for k in range(0, 8, 2)]).mean(0)
    eight = weights.bound
    assert (one <= two + 1e-12).all()
    assert (two <= eight + 1e-12).all()
    assert one.mean() < two.mean() < eight.mean()
    error = (eight.std() / math.sqrt(COPIES)).item()
    assert eight.mean().item() < evidence + 4 * error
    ratio = (log_weights - evidence).exp().flatten()
    spread = (ratio.std() / math.sqrt(len(ratio))).item()
    assert ratio.mean().item() == pytest.approx(1, abs=4 * spread)
    assert spread < 0.05


@pytest.mark.parametrize("form", FORMS)
def test_gaussian_bound_from_closed_terms_is_that_from_sampled_ones(
    form: str, gaussian: Gaussian
) -> None:
    guide = attach(form, gaussian.model, AWAY.get(form, 0.4))
    bound_terms = terms(gaussian.model, guide, copies(gaussian.batch, COPIES))
    difference = bound_terms.elbo - bound_terms.log_weight
    error = (difference.std() / math.sqrt(COPIES)).item()
    assert difference.mean().item() == pytest.approx(0, abs=4 * error + 1e-12)
    assert bound_terms.elbo.mean().item() < gaussian.log_evidence()
