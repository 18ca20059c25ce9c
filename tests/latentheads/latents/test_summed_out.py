"""Laws of a table of all values of a latent, whatever latent it is of."""

from __future__ import annotations

import math
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pyro import poutine
from torch import Tensor

from latentheads.latents.summed_out import (
    SummedOut,
    TableEnumeration,
    enumerate_latents,
    expectation,
)

SEEDS = st.integers(0, 2**31)


class Table(TableEnumeration):
    """The values of one latent, at one site."""

    sites = ("z",)

    def __init__(self, log_likelihoods: Tensor, log_prior: Tensor, log_q: Tensor) -> None:
        self.log_likelihoods, self.log_prior, self.log_q = log_likelihoods, log_prior, log_q

    def kl(self) -> dict[str, Tensor]:
        return {"z": expectation(self.log_q, self.log_q - self.log_prior)}

    def gap(self) -> dict[str, Tensor]:
        return {"z": expectation(self.log_q, self.log_q - self.log_posterior)}


def make_table(seed: int, impossible: bool = False) -> Table:
    """A random table of three sentences and five values, one of them without posterior mass."""
    generator = torch.Generator().manual_seed(seed)
    likelihoods, prior, q = 3 * torch.randn(3, 3, 5, generator=generator, dtype=torch.float64)
    if impossible:
        prior[:, 2] = q[:, 2] = -math.inf
    return Table(likelihoods, prior.log_softmax(-1), q.log_softmax(-1))


@given(SEEDS, st.booleans())
def test_bound_and_gap_are_the_evidence(seed: int, impossible: bool) -> None:
    table = make_table(seed, impossible)
    kl, gap = table.kl()["z"], table.gap()["z"]
    torch.testing.assert_close(table.log_likelihood - kl + gap, table.log_evidence)
    assert (kl >= 0).all()
    assert (gap >= 0).all()


@given(SEEDS, st.booleans())
def test_entropies_and_divergences_of_prior_and_posterior(seed: int, impossible: bool) -> None:
    table = make_table(seed, impossible)
    values = table.entropies()
    assert all(((value >= 0) & value.isfinite()).all() for value in values.values())
    for name in ("prior_entropy", "posterior_entropy"):
        assert (values[name] <= math.log(4 if impossible else 5) + 1e-9).all()
    tied = Table(table.log_likelihoods, table.log_prior, table.log_prior)
    torch.testing.assert_close(values["prior_gap"], tied.gap()["z"])
    exact = Table(table.log_likelihoods, table.log_prior, table.log_posterior)
    torch.testing.assert_close(values["information"], exact.kl()["z"])


@given(SEEDS)
def test_the_exact_posterior_has_one_weight_and_others_weights_of_their_table(seed: int) -> None:
    table = make_table(seed)
    exact = Table(table.log_likelihoods, table.log_prior, table.log_posterior)
    weights = exact.log_weights(7)
    torch.testing.assert_close(weights, table.log_evidence.expand(7, 3))
    drawn, possible = table.log_weights(7), table.log_joint - table.log_q
    assert ((drawn[..., None] - possible).abs().amin(-1) < 1e-12).all()
    assert table.log_weights(0).shape == (0, 3)


@given(SEEDS)
def test_weights_have_the_evidence_as_their_mean(seed: int) -> None:
    table = make_table(seed)
    mean = expectation(table.log_q, (table.log_joint - table.log_q).exp())
    torch.testing.assert_close(mean.log(), table.log_evidence)


def test_a_value_that_is_impossible_counts_nothing_and_has_no_gradient() -> None:
    log_weights = torch.tensor([0.5, 0.5, 0.0]).log()
    values = torch.tensor([1.0, 2.0, -math.inf], requires_grad=True)
    mean = expectation(log_weights, values)
    mean.backward()
    assert mean.item() == 1.5
    assert values.grad is not None
    assert values.grad.tolist() == [0.5, 0.5, 0.0]


class Coin(dist.Bernoulli):  # type: ignore[misc]
    """A latent of its own class."""


class Summed(dist.Delta, SummedOut):  # type: ignore[misc]
    """A target whose only latent is a coin."""

    latent_class = Coin

    def enumerate_latents(self, model_trace: Any, guide_trace: Any) -> Table:
        return make_table(0)

    def log_evidence(self, tokens: Tensor) -> Tensor:
        return make_table(0).log_evidence


def traced(observed: Tensor | None = None) -> poutine.Trace:
    def model() -> None:
        pyro.sample("coin", Coin(torch.tensor(0.5)), obs=observed)
        pyro.sample("y", Summed(torch.zeros(())), obs=torch.zeros(()))

    return poutine.trace(model).get_trace()


def test_the_default_loss_is_that_of_the_bound_and_no_other() -> None:
    trace, summed = traced(), Summed(torch.zeros(()))
    log_likelihood, kl, is_in_bound = summed.loss_terms(trace, trace, "bound", 1)
    assert is_in_bound
    assert torch.equal(log_likelihood, make_table(0).log_likelihood)
    assert torch.equal(kl["z"], make_table(0).kl()["z"])
    with pytest.raises(ValueError, match=r"^Summed is trained by its bound, .* it has no iwae$"):
        summed.loss_terms(trace, trace, "iwae", 2)


def test_a_latent_that_is_observed_is_not_summed_over() -> None:
    trace = traced()
    trace.nodes["y"]["fn"].check_not_observed(trace)
    trace = traced(torch.ones(()))
    with pytest.raises(ValueError, match=r"^site 'coin' is observed, and Head_ELBO sums over it"):
        trace.nodes["y"]["fn"].check_not_observed(trace)


def test_only_a_target_that_is_summed_out_is_enumerated() -> None:
    trace = traced()
    assert isinstance(enumerate_latents(trace, trace, "y"), Table)
    assert enumerate_latents(trace, trace, "coin") is None
    assert repr(make_table(0)) == "Table(z)"
