"""Families: each is the formula it is named after."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from latentheads import Block
from latentheads.distributions import CholeskyHeads, DeltaHeads, NormalHeads
from latentheads.families import (
    Below,
    CholeskyFactor,
    Corrected,
    Correlated,
    Fused,
    Fusion,
    Gaussian,
    HeadScale,
    Point,
    Released,
    Scores,
)
from tests.tiny import HEADS, context, jiggle

FIRST, SECOND = Block("encoder-self", 0, HEADS), Block("encoder-self", 1, HEADS)


def reference(fusion: Fusion) -> nn.Sequential:
    """The same MLP, heads last, as the paper writes it."""
    modules: list[nn.Module] = []
    for layer in fusion.layers:
        modules += [layer, nn.LeakyReLU(0.2)]
    return nn.Sequential(*modules[:-1])


@pytest.mark.parametrize("layers", [2, 3])
def test_fusion_is_an_mlp_over_the_heads_of_each_pair(layers: int) -> None:
    fusion = jiggle(Fusion(HEADS, hidden=5, layers=layers), 0.3)
    z = torch.randn(2, HEADS, 5, 7)
    expected = reference(fusion)(z.movedim(1, -1)).movedim(-1, 1)
    assert torch.allclose(fusion(z), expected, atol=1e-12)


@pytest.mark.parametrize(("heads", "parameters"), [(4, 420), (8, 1608), (16, 6288), (32, 24864)])
def test_three_layer_fusion_has_24_h_squared_plus_9_h_parameters(
    heads: int, parameters: int
) -> None:
    fusion = Fusion(heads, hidden=4, layers=3)
    assert sum(p.numel() for p in fusion.parameters()) == parameters == 24 * heads**2 + 9 * heads


@pytest.mark.parametrize("hidden", [2, 4, 8])
def test_two_layer_fusion_has_2_alpha_h_squared_and_biases(hidden: int) -> None:
    parameters = sum(p.numel() for p in Fusion(HEADS, hidden).parameters())
    assert parameters == 2 * hidden * HEADS**2 + (hidden + 1) * HEADS


def test_fusion_starts_as_the_released_code_does() -> None:
    torch.manual_seed(2)
    fusion = Fusion(16, hidden=4, layers=3)
    z = torch.randn(1, 16, 60, 60)
    assert fusion(z).std().item() == pytest.approx(0.14, abs=0.04)
    assert not Fusion(HEADS, zero=True)(torch.randn(1, HEADS, 2, 2)).any()


def test_locations_are_their_formulas() -> None:
    c = context(below=True)
    scores, below = c.scores, c.below
    assert below is not None
    fused, linked, released, corrected = (
        jiggle(Fused(SECOND, link=False), 0.2),
        jiggle(Fused(SECOND), 0.2),
        jiggle(Released(SECOND), 0.2),
        jiggle(Corrected(HEADS, 4), 0.2),
    )
    assert Scores()(c) is scores
    assert torch.equal(Below()(c), scores + below)
    assert torch.allclose(fused(c), scores + fused.fusion(below))
    assert torch.allclose(linked(c), scores + below + linked.fusion(below))
    u = scores + below
    assert torch.allclose(released(c), u + released.fusion(u))
    assert torch.allclose(corrected(c), scores + corrected.fusion(scores))


@pytest.mark.parametrize("location", [Below(), Fused(FIRST), Released(FIRST)])
def test_first_block_of_a_chain_stands_at_the_scores(location: nn.Module) -> None:
    c = context()
    assert torch.equal(location(c), c.scores)
    assert not list(location.parameters())


@pytest.mark.parametrize("location", [Fused(SECOND, link=False, zero=True), Corrected(HEADS, 4)])
def test_a_posterior_location_starts_at_the_scores(location: nn.Module) -> None:
    c = context(below=True)
    assert torch.equal(location.double()(c), c.scores)


def test_scale_is_a_number_until_learned() -> None:
    assert HeadScale(HEADS, 0.7)() == 0.7
    learned = HeadScale(HEADS, 0.7, learned=True)()
    assert isinstance(learned, torch.Tensor)
    assert torch.allclose(learned, torch.full((HEADS, 1, 1), 0.7))


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_scale_must_be_positive(value: float) -> None:
    with pytest.raises(ValueError, match=f"scale must be positive, got {value}"):
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
    gaussian = Gaussian(Scores(), HeadScale(HEADS, 0.7))(c)
    point = Point(Scores())(c)
    linear = Correlated(Scores(), CholeskyFactor(HEADS, 0.7))(c)
    assert isinstance(gaussian, NormalHeads)
    assert gaussian.scale == 0.7
    assert isinstance(point, DeltaHeads)
    assert isinstance(linear, CholeskyHeads)
    assert all(law.location is c.scores and law.context is c for law in (gaussian, point, linear))


def test_fusion_keeps_full_precision_under_autocast() -> None:
    fusion = Fusion(HEADS, layers=3).float()
    z = torch.randn(2, HEADS, 5, 7, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(fusion(z), fusion(z.clone()))
        inside = fusion(z)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, fusion(z))
