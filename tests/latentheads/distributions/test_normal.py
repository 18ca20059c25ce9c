"""Independent heads: density, moments and closed-form divergence, derived again from scratch."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from latentheads.distributions import HeadContext, NormalHeads
from latentheads.distributions.normal import (
    log_of_scale,
    parts_of_kl,
    stack_kls,
    sum_broadcast_over_pairs,
)
from latentheads.mask import PairMask
from tests.tiny import HEADS, context

HEAD = torch.tensor([0.5, 1.1, 1.7], dtype=torch.float64)[:, None, None]
SCALES = {
    "number": 0.6,
    "one": 1.0,
    "scalar": torch.tensor(0.8, dtype=torch.float64),
    "head": HEAD,
    "key": torch.linspace(0.4, 1.6, 7, dtype=torch.float64)[None, :],
    "full": torch.linspace(0.4, 1.6, HEADS * 35, dtype=torch.float64).reshape(HEADS, 5, 7),
    "sentence": torch.stack([HEAD, 2 * HEAD]),
}
every_scale = pytest.mark.parametrize("scale", SCALES)


def over_latent(elementwise: Tensor, given_context: HeadContext) -> Tensor:
    latent = given_context.mask.latent.unsqueeze(-3).bool()
    return torch.where(latent, elementwise, 0.0).sum((-1, -2, -3))


@every_scale
def test_density_is_the_sum_of_normal_densities_over_latent_pairs(scale: str) -> None:
    c = context()
    value = torch.randn_like(c.scores)
    expected = over_latent(Normal(c.scores, SCALES[scale]).log_prob(value), c)
    assert torch.allclose(NormalHeads(c.scores, c, SCALES[scale]).log_prob(value), expected)


@every_scale
@pytest.mark.parametrize("prior", SCALES)
def test_divergence_is_the_sum_of_normal_divergences_over_latent_pairs(
    scale: str, prior: str
) -> None:
    c = context()
    location = c.scores + torch.randn_like(c.scores)
    q, p = NormalHeads(location, c, SCALES[scale]), NormalHeads(c.scores, c, SCALES[prior])
    pairs = kl_divergence(Normal(location, SCALES[scale]), Normal(c.scores, SCALES[prior]))
    assert torch.allclose(kl_divergence(q, p), over_latent(pairs, c))
    assert (kl_divergence(q, p) > 0).all()


@pytest.mark.parametrize("particles", [(), (2,)])
def test_divergences_of_blocks_at_once_are_those_of_each(particles: tuple[int, ...]) -> None:
    c, pairs = context(), []
    scales = [HEAD.clone().requires_grad_() for _ in range(3)]
    for scale, prior, is_shifted in zip(scales, (1.0, 0.7, 1.0), (True, True, False), strict=True):
        location = c.scores + torch.randn_like(c.scores) if is_shifted else c.scores
        pair = NormalHeads(location, c, scale), NormalHeads(c.scores, c, prior)
        pairs.append(
            [distribution.expand([*particles, *distribution.batch_shape]) for distribution in pair]
        )
    parts = [part for q, p in pairs if (part := parts_of_kl(q, p)) is not None]
    at_once, stacked = stack_kls(parts), torch.stack([kl_divergence(q, p) for q, p in pairs])
    torch.testing.assert_close(at_once, stacked, rtol=1e-13, atol=1e-13)
    gradients, wanted = (
        torch.autograd.grad(kl.square().sum(), scales) for kl in (at_once, stacked)
    )
    torch.testing.assert_close(gradients, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scale", ["number", "scalar", "key", "sentence"])
def test_a_scale_that_is_not_one_for_each_head_has_a_divergence_of_its_own(scale: str) -> None:
    c = context()
    assert parts_of_kl(NormalHeads(c.scores, c, SCALES[scale]), NormalHeads(c.scores, c)) is None
    assert parts_of_kl(NormalHeads(c.scores, c, HEAD), NormalHeads(c.scores, c, HEAD)) is None


@every_scale
def test_moments_are_those_of_the_draws(scale: str) -> None:
    c = context()
    normal_heads = NormalHeads(c.scores, c, SCALES[scale])
    draws = normal_heads.rsample(torch.Size([4000]))
    assert torch.allclose(draws.mean(0), normal_heads.mean, atol=6 * 3.4 / math.sqrt(4000))
    ratio = draws.var(0) / normal_heads.variance
    assert ratio.shape == c.scores.shape
    assert (ratio - 1).abs().max() < 6 * math.sqrt(2 / 4000)


@given(
    shift=st.lists(st.floats(-3, 3), min_size=5, max_size=5),
    offset=st.floats(-5, 5),
)
def test_centring_a_row_lowers_the_divergence_by_half_n_mean_squared(
    shift: list[float], offset: float
) -> None:
    keys = len(shift)
    mask = PairMask.build(torch.ones(1, 1, keys).bool(), torch.ones(1, 1).bool(), torch.float64)
    scores = torch.zeros(1, 1, 1, keys, dtype=torch.float64)
    delta = torch.tensor(shift, dtype=torch.float64) + offset
    c = HeadContext(scores, None, mask)
    p = NormalHeads(scores, c)

    def kl(difference: Tensor) -> float:
        return kl_divergence(NormalHeads(scores + difference, c, 0.7), p).item()

    saved = kl(delta) - kl(delta - delta.mean())
    assert saved == pytest.approx(keys * delta.mean().item() ** 2 / 2, abs=1e-9)


def test_constant_term_costs_the_same_as_its_expansion() -> None:
    c = context()
    shape = c.scores.shape
    for term in (0.3, torch.tensor(0.3), torch.full((HEADS, 1, 1), 0.3)):
        spread = torch.as_tensor(term).expand(shape)
        assert torch.allclose(sum_broadcast_over_pairs(term, shape, c.mask), over_latent(spread, c))


@every_scale
@pytest.mark.parametrize("prior", SCALES)
@pytest.mark.parametrize("shift", [0.0, 0.4])
def test_every_particle_has_a_divergence_of_its_own(scale: str, prior: str, shift: float) -> None:
    """The scores of an upper block have particles in front, of which its mask knows nothing."""
    c = context()
    scores = torch.randn(3, *c.scores.shape)
    many, ones = (replace(c, scores=item) for item in (scores, scores[1]))

    def divergence(given_context: HeadContext) -> Tensor:
        location = given_context.scores + shift if shift else given_context.scores
        q = NormalHeads(location, given_context, SCALES[scale])
        return kl_divergence(q, NormalHeads(given_context.scores, given_context, SCALES[prior]))

    assert torch.allclose(divergence(many), divergence(ones).expand(3, 2))


def test_log_of_a_number_and_of_a_tensor() -> None:
    assert log_of_scale(2.0) == math.log(2)
    assert torch.equal(torch.as_tensor(log_of_scale(HEAD)), HEAD.log())
