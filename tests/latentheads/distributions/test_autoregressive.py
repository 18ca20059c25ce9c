"""Heads given the heads before: triangular maps, their volumes, their divergences."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from latentheads.distributions import CholeskyHeads, HeadContext, NormalHeads
from latentheads.distributions.heads import HeadVariable
from latentheads.guides.autoregressive import MaskedMLP
from tests.latentheads.distributions.forms import FORMS, factor
from tests.tiny import HEADS, context, jiggle

non_linear = pytest.mark.parametrize("form", ["inverse", "masked"])
autoregressive = pytest.mark.parametrize("form", ["cholesky", "inverse", "masked"])


def full(queries: int = 2, keys: int = 2) -> HeadContext:
    head_context = context(1, HEADS, queries, keys)
    every = torch.ones_like(head_context.mask.latent)
    mask = type(head_context.mask)(
        torch.zeros_like(head_context.mask.bias), every, every.sum((-1, -2))
    )
    return HeadContext(head_context.scores, None, mask)


def jacobian(head_variable: HeadVariable, noise: Tensor) -> Tensor:
    computed_jacobian = torch.autograd.functional.jacobian(head_variable._from_noise, noise)
    assert isinstance(computed_jacobian, Tensor)
    return computed_jacobian.reshape(noise.numel(), noise.numel())


@autoregressive
def test_density_is_the_noise_density_over_the_volume_of_the_map(form: str) -> None:
    distribution = FORMS[form](full())
    noise = torch.randn(1, HEADS, 2, 2)
    normal = torch.distributions.Normal(0.0, 1.0).log_prob(noise).sum()
    expected = normal - torch.linalg.slogdet(jacobian(distribution, noise))[1]
    assert torch.allclose(
        distribution.log_prob(distribution._from_noise(noise).clone())[0], expected, atol=1e-10
    )


@autoregressive
def test_a_head_depends_on_the_noise_of_no_later_head_and_of_no_other_pair(form: str) -> None:
    noise = torch.randn(1, HEADS, 2, 2)
    map_ = jacobian(FORMS[form](full()), noise).reshape(HEADS, 4, HEADS, 4)
    for head in range(HEADS):
        for other in range(HEADS):
            block = map_[head, :, other]
            assert torch.equal(block, block.diagonal().diag())
            assert (block.diagonal() != 0).all() == (other <= head)
            assert other <= head or not block.any()


def test_cholesky_is_the_multivariate_normal_at_every_latent_pair() -> None:
    c = context()
    distribution, value = FORMS["cholesky"](c), torch.randn(2, HEADS, 5, 7)
    at = MultivariateNormal(distribution.location.movedim(1, -1), scale_tril=factor())
    expected = (at.log_prob(value.movedim(1, -1)) * c.mask.latent).sum((-1, -2))
    assert torch.allclose(distribution.log_prob(value), expected)


@pytest.mark.parametrize("scale", ["number", "head", "full"])
def test_cholesky_divergence_is_that_of_multivariate_normals(scale: str) -> None:
    scales = {
        "number": 0.8,
        "head": torch.tensor([0.5, 1.1, 1.7])[:, None, None],
        "full": torch.linspace(0.4, 1.6, HEADS * 35).reshape(HEADS, 5, 7),
    }
    c = context()
    q = CholeskyHeads(c.scores + torch.randn_like(c.scores), c, factor())
    p = NormalHeads(c.scores, c, scales[scale])
    spread = torch.as_tensor(scales[scale]).expand(c.scores.shape).movedim(1, -1)
    pairs = kl_divergence(
        MultivariateNormal(q.location.movedim(1, -1), scale_tril=factor()),
        MultivariateNormal(c.scores.movedim(1, -1), scale_tril=spread.diag_embed()),
    )
    assert torch.allclose(kl_divergence(q, p), (pairs * c.mask.latent).sum((-1, -2)))
    assert (kl_divergence(q, p) > 0).all()


def test_cholesky_with_a_diagonal_factor_is_independent_heads() -> None:
    c, value = context(), torch.randn(2, HEADS, 5, 7)
    diagonal = torch.tensor([0.5, 1.1, 1.7])
    linear = CholeskyHeads(c.scores, c, diagonal.diag())
    plain = NormalHeads(c.scores, c, diagonal[:, None, None])
    assert torch.allclose(linear.log_prob(value), plain.log_prob(value))
    assert torch.equal(linear.variance, plain.variance)
    assert torch.equal(linear.mean, plain.mean)


def test_cholesky_variance_is_that_of_the_draws() -> None:
    distribution = FORMS["cholesky"](context())
    draws = distribution.rsample(torch.Size([4000]))
    assert (draws.var(0) / distribution.variance - 1).abs().max() < 6 * math.sqrt(2 / 4000)


@non_linear
def test_sequential_definition_gives_the_one_shot_draw(form: str) -> None:
    c = context()
    distribution = FORMS[form](c)
    noise = torch.randn_like(c.scores)
    read = torch.zeros_like(noise)
    drawn = torch.zeros_like(noise)
    for head in range(HEADS):
        shift, log_scale = distribution.conditioner(read)  # type: ignore[attr-defined]
        drawn[:, head] = shift[:, head] + log_scale[:, head].exp() * noise[:, head]
        read[:, head] = noise[:, head] if form == "inverse" else drawn[:, head]
    assert torch.allclose(distribution._from_noise(noise), c.scores + drawn, atol=1e-12)


def test_masked_network_reads_only_the_heads_before() -> None:
    network = jiggle(MaskedMLP(HEADS, 5, 1.0).double(), 0.5)
    scores, values = torch.randn(2, 1, HEADS, 1, 1)
    for output in range(2):

        def function(v: Tensor, which: int = output) -> Tensor:
            return network(scores, v)[which]

        slope = torch.autograd.functional.jacobian(function, values)
        assert isinstance(slope, Tensor)
        square = slope.reshape(HEADS, HEADS)
        assert torch.equal(square, square.tril(-1))
        assert (square[torch.tril_indices(HEADS, HEADS, -1).unbind()] != 0).all()


def test_linear_draw_keeps_full_precision_under_autocast() -> None:
    c = context()
    cholesky_heads = CholeskyHeads(c.scores.float(), c, factor().float())
    noise = torch.randn(2, HEADS, 5, 7, dtype=torch.float32)
    expected = cholesky_heads._from_noise(noise)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.allclose(cholesky_heads._from_noise(noise), expected, atol=1e-6)
