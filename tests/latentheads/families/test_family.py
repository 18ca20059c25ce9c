"""Families: each is the formula it is named after."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import pytest
import torch
from torch import nn
from torch.distributions import kl_divergence

from latentheads.distributions import CholeskyHeads, DeltaHeads, NormalHeads
from latentheads.families import (
    Affine,
    Cascade,
    CholeskyFactor,
    Correlated,
    Gaussian,
    HeadScale,
    Identity,
    OwnMLP,
    Point,
    ReleasedCascade,
    RunningSum,
)
from latentheads.families.normal import make_posterior
from latentheads.names import Block
from tests.tiny import HEADS, context, jiggle, small_batch

FIRST, SECOND = Block("encoder-self", 0, HEADS), Block("encoder-self", 1, HEADS)


def test_locations_are_their_formulas() -> None:
    c = context(below=True)
    scores, below = c.scores, c.below
    assert below is not None
    fused, linked, released, corrected = (
        jiggle(Cascade(SECOND, link=False), 0.2),
        jiggle(Cascade(SECOND), 0.2),
        jiggle(ReleasedCascade(SECOND), 0.2),
        jiggle(OwnMLP(HEADS, 4), 0.2),
    )
    assert Identity()(c) is scores
    assert torch.equal(RunningSum()(c), scores + below)
    assert torch.allclose(fused(c), scores + fused.fusion(below))
    assert torch.allclose(linked(c), scores + below + linked.fusion(below))
    u = scores + below
    assert torch.allclose(released(c), u + released.fusion(u))
    assert torch.allclose(corrected(c), scores + corrected.fusion(scores))


@pytest.mark.parametrize("location", [RunningSum(), Cascade(FIRST), ReleasedCascade(FIRST)])
def test_first_block_of_a_chain_stands_at_the_scores(location: nn.Module) -> None:
    c = context()
    assert torch.equal(location(c), c.scores)
    assert not list(location.parameters())


@pytest.mark.parametrize("location", [RunningSum(), Cascade(SECOND), ReleasedCascade(SECOND)])
@pytest.mark.parametrize(
    ("dim", "what", "own"), [(1, "heads", 3), (2, "queries", 5), (3, "keys", 7)]
)
@pytest.mark.parametrize("below", [1, 2])
def test_logits_of_another_shape_below_are_refused(
    location: nn.Module, below: int, dim: int, what: str, own: int
) -> None:
    c = context(below=True)
    assert c.lower is not None
    fewer = replace(c, lower=c.lower.narrow(dim, 0, below), block=SECOND)
    message = f"^block 'encoder.1.self' has {own} {what}, the one below {below}: a prior or guide"
    with pytest.raises(ValueError, match=message):
        location(fewer)
    assert Identity()(fewer) is c.scores


@pytest.mark.parametrize("location", [Cascade(SECOND, link=False, zero=True), OwnMLP(HEADS, 4)])
def test_a_posterior_location_starts_at_the_scores(location: nn.Module) -> None:
    c = context(below=True)
    assert torch.equal(location.double()(c), c.scores)


def test_scale_is_a_number_until_learned() -> None:
    assert HeadScale(HEADS, 0.7)() == 0.7
    learned = HeadScale(HEADS, 0.7, learned=True)()
    assert isinstance(learned, torch.Tensor)
    assert torch.allclose(learned, torch.full((HEADS, 1, 1), 0.7))


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_scale_must_be_positive(value: float) -> None:
    with pytest.raises(ValueError, match=f"scale must be positive and finite, got {value}"):
        HeadScale(HEADS, value)


@pytest.mark.parametrize("learned", [True, False])
def test_factor_is_lower_triangular_with_its_scale_on_the_diagonal(learned: bool) -> None:
    factor = CholeskyFactor(HEADS, 0.7, learned).double()
    with torch.no_grad():
        factor.below_diagonal.normal_()
    matrix = factor()
    assert torch.equal(matrix, matrix.tril())
    assert torch.allclose(matrix.diagonal(), torch.full((HEADS,), 0.7))
    strict = torch.tril_indices(HEADS, HEADS, -1).unbind()
    assert torch.equal(matrix[strict], factor.below_diagonal[strict])


def test_families_wrap_location_and_scale() -> None:
    c = context()
    gaussian = Gaussian(Identity(), HeadScale(HEADS, 0.7))(c)
    point = Point(Identity())(c)
    linear = Correlated(Identity(), CholeskyFactor(HEADS, 0.7))(c)
    assert isinstance(gaussian, NormalHeads)
    assert gaussian.scale == 0.7
    assert isinstance(point, DeltaHeads)
    assert isinstance(linear, CholeskyHeads)
    assert all(
        distribution.location is c.scores and distribution.context is c
        for distribution in (gaussian, point, linear)
    )


def test_a_posterior_starts_at_the_scale_of_a_gaussian_prior() -> None:
    gaussian = Gaussian(Identity(), HeadScale(HEADS, 0.7))
    trained = jiggle(Gaussian(Identity(), HeadScale(HEADS, 0.7, learned=True)), 0.3)
    scales = cast(torch.Tensor, trained.scale()).detach()
    shared = Gaussian(Identity(), HeadScale(1, 0.7, learned=True))  # one scale of all heads
    priors = ((gaussian, 0.7), (trained, scales), (shared, 0.7), (Point(Identity()), 1.0))
    for prior, start in (*priors, (None, 1.0)):
        scale = make_posterior(Identity(), prior, HEADS)(context()).scale
        torch.testing.assert_close(scale, torch.as_tensor(start).expand_as(scale))


@pytest.mark.parametrize(
    "location",
    [Cascade(SECOND), Cascade(SECOND, link=False), OwnMLP(HEADS, 4)],
    ids=["linked", "fused", "corrected"],
)
@pytest.mark.parametrize("prior", [1.0, 0.7, torch.tensor([0.5, 1.1, 1.7])[:, None, None]])
def test_divergence_from_the_scores_is_the_one_of_any_location(
    location: nn.Module, prior: float | torch.Tensor
) -> None:
    c = replace(context(below=True), batch=small_batch())  # as a guide is given it
    gaussian = Gaussian(
        jiggle(location.double(), 0.2), HeadScale(HEADS, 0.6, learned=True).double()
    )  # type: ignore[arg-type]
    q, p = gaussian(c), NormalHeads(c.scores, c, prior)
    same = NormalHeads(q.location, c, q.scale)
    results = [
        (kl, *torch.autograd.grad(kl.sum(), list(gaussian.parameters()), retain_graph=True))
        for kl in (kl_divergence(q, p), kl_divergence(same, p))
    ]
    assert q.squares is not None
    assert gaussian(replace(c, batch=None)).squares is None  # a prior: nothing asks for them
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


def test_a_point_mass_is_pruned_with_its_location() -> None:
    point = Point(jiggle(Affine(HEADS, 3), 0.2))
    gain = cast(Affine, point.location).gain
    point.prune([2, 0])
    assert torch.equal(cast(Affine, point.location).gain, gain[[2, 0]])
