"""Hard Concrete gates: probabilities against Monte Carlo, the KL against enumeration."""

from __future__ import annotations

import math
from unittest import mock

import pytest
import torch
from torch.distributions import kl_divergence

from latentheads.latents.gates.hard_concrete import HIGH, LOW, HardConcrete

LOCATIONS = torch.tensor([-2.5, -0.6, 0.0, 0.4, 3.1], dtype=torch.float64)
DRAWS = 200_000
BETA = 0.33


def make_gates(shift: float = 0.0) -> HardConcrete:
    return HardConcrete(LOCATIONS + shift, BETA)


def above(gates: HardConcrete, value: float) -> torch.Tensor:
    """P(z > value), and of 1 P(z = 1)."""
    odds = math.log((value - LOW) / (HIGH - value))
    return (gates.logits - BETA * odds).sigmoid()


def test_probabilities_against_monte_carlo() -> None:
    gates = make_gates()
    drawn = gates.rsample(torch.Size([DRAWS]))
    error = 5 / math.sqrt(DRAWS)
    assert drawn.min() == 0
    assert drawn.max() == 1
    assert torch.allclose((drawn > 0).double().mean(0), gates.open, atol=error)
    assert torch.allclose((drawn == 1).double().mean(0), above(gates, 1), atol=error)
    assert torch.allclose(drawn.mean(0), gates.mean, atol=error)
    for low, high in ((0.05, 0.3), (0.3, 0.8), (0.8, 0.95)):
        share = ((drawn > low) & (drawn <= high)).double().mean(0)
        assert torch.allclose(share, above(gates, low) - above(gates, high), atol=error)


def test_published_constants() -> None:
    """Voita et al.: the gate is exactly 1 or 0 at test time from log alpha = 2.398 on."""
    edge = math.log(1.1 / 0.1)
    assert edge == pytest.approx(2.398, abs=1e-3)
    near = HardConcrete(torch.tensor([edge - 1e-3, edge + 1e-9, -edge - 1e-9, -edge + 1e-3]), BETA)
    assert near.mode[0] < 1
    assert near.mode[1:3].tolist() == [1, 0]
    assert near.mode[3] > 0
    assert float(above(near, 1)[1]) == pytest.approx(0.833, abs=1e-3)
    assert float(near.open[2]) == pytest.approx(1 - 0.833, abs=1e-3)


def test_a_law_is_made_of_its_probability_to_be_open() -> None:
    logit = torch.tensor([-7.0, 0.0, 2.0])
    assert torch.allclose(HardConcrete.with_open(logit, BETA).open, logit.sigmoid())


def test_gates_are_printed_with_their_probability_to_be_open() -> None:
    gates = HardConcrete.with_open(torch.tensor([[2.0, -1.0]]), 0.5)
    assert repr(gates) == "HardConcrete(open 0.881 0.269)"


def test_the_divergence_is_that_of_open_and_closed() -> None:
    q, p = make_gates(), make_gates(0.7)
    open_q, open_p = q.open, p.open
    both = open_q * (open_q / open_p).log() + (1 - open_q) * ((1 - open_q) / (1 - open_p)).log()
    kl = kl_divergence(q, p)
    assert kl == pytest.approx(float(both.sum()))
    drawn = q.rsample(torch.Size([DRAWS]))
    ratio = q.log_prob(drawn) - p.log_prob(drawn)
    assert float(ratio.mean()) == pytest.approx(float(kl), abs=5 * float(ratio.std()) / 447)
    assert kl_divergence(q, make_gates()) == 0


def test_a_prior_of_small_odds_is_the_penalty_on_open_gates() -> None:
    q, penalty = make_gates(), 4000.0
    p = HardConcrete.with_open(torch.full((5,), -penalty), BETA)
    entropy = -(q.open * q.open.log() + (1 - q.open) * (1 - q.open).log())
    assert kl_divergence(q, p) == pytest.approx(float((penalty * q.open - entropy).sum()))


def test_the_gradient_of_a_draw_is_that_of_its_mean() -> None:
    logits = LOCATIONS.clone().requires_grad_()
    (exact,) = torch.autograd.grad(HardConcrete(logits, BETA).mean.sum(), logits)
    drawn = HardConcrete(logits, BETA).rsample(torch.Size([DRAWS]))
    (sampled,) = torch.autograd.grad(drawn.mean(0).sum(), logits)
    assert torch.allclose(sampled, exact, atol=0.01)


def test_noise_of_exactly_zero_closes_a_gate_without_a_gradient() -> None:
    logits = LOCATIONS.clone().requires_grad_()
    with mock.patch.object(torch, "rand", lambda shape, **options: torch.zeros(shape, **options)):
        sampled = HardConcrete(logits, BETA).rsample()
    (gradient,) = torch.autograd.grad(sampled.sum(), logits)
    assert sampled.tolist() == gradient.tolist() == [0] * 5


def test_a_sampled_divergence_has_no_gradient_to_offer() -> None:
    gates = HardConcrete(LOCATIONS.clone().requires_grad_(), BETA)
    drawn = gates.rsample()
    with pytest.raises(
        ValueError, match=r"closed form of their KL alone: .* Head_ELBO\(analytic=True\) under pyro"
    ):
        gates.log_prob(drawn)
    with torch.no_grad():
        assert gates.log_prob(drawn).isfinite()


def test_expanded_gates_are_the_same_gates() -> None:
    wide = make_gates().expand([3])
    assert isinstance(wide, HardConcrete)
    assert wide.batch_shape == (3,)
    assert wide.temperature == BETA
    assert wide.rsample().shape == (3, 5)
    torch.testing.assert_close(kl_divergence(wide, wide.expand([3])), torch.zeros(3))
