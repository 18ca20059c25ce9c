"""The product that is nearest to a prior: no coordinate of it can be improved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from latentheads.latents.alignments.chain import ChainParameters
from latentheads.latents.alignments.distribution import NOWHERE, CategoricalParameters
from latentheads.latents.alignments.marginals import head_marginals
from latentheads.latents.alignments.nearest_product import nearest_product
from tests.latentheads.latents.alignments.laws import pointings, summed, table, valid

COUPLED = ("two blocks", "chain")


def coupled(kind: str, strength: float, seed: int = 0) -> list[CategoricalParameters]:
    """A random prior; the larger the strength, the more one position says about another."""
    torch.manual_seed(seed)
    *lower, top = pointings(kind)
    if isinstance(top, ChainParameters):
        return [replace(top, transition_scores=strength * top.transition_scores)]
    return [*lower, replace(top, pairs={key: strength * r for key, r in top.pairs.items()})]


def product_of(scores: Sequence[Tensor]) -> list[CategoricalParameters]:
    return [CategoricalParameters(each, first_head=head) for head, each in enumerate(scores)]


def kl(kind: str, priors: list[CategoricalParameters], scores: Sequence[Tensor]) -> Tensor:
    return torch.stack(summed(kind, priors, table(kind)).kl(product_of(scores))).sum()


def marginals_of(priors: list[CategoricalParameters]) -> list[Tensor]:
    heads = head_marginals(priors).log().clamp_min(NOWHERE).unbind(-3)
    return [each.unsqueeze(-2) for each in heads]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("strength", [0.3, 3.0, 30.0])
@pytest.mark.parametrize("kind", COUPLED)
def test_it_is_nearer_than_the_marginals(kind: str, strength: float, seed: int) -> None:
    priors = coupled(kind, strength, seed)
    nearest = kl(kind, priors, nearest_product(priors, valid()))
    marginals = kl(kind, priors, marginals_of(priors))
    assert 1e-6 < nearest < marginals


@pytest.mark.parametrize("kind", COUPLED)
def test_the_factors_that_were_updated_last_are_optimal(kind: str) -> None:
    priors = coupled(kind, 3.0)
    scores = [each.requires_grad_() for each in nearest_product(priors, valid())]
    gradients = torch.autograd.grad(kl(kind, priors, scores), scores)
    last = gradients[0][..., 1::2, :, :] if kind == "chain" else gradients[1]
    assert last.abs().max() < 1e-12
    assert max(float(gradient.abs().max()) for gradient in gradients) > 1e-9


@pytest.mark.parametrize("kind", ["one head", "two heads"])
def test_what_is_a_product_stays_as_it_is(kind: str) -> None:
    priors = pointings(kind, condition_on=False)
    (scores,) = nearest_product(priors, valid())
    assert scores is priors[0].scores


def test_padding_has_no_say() -> None:
    (prior,) = coupled("chain", 3.0)
    assert isinstance(prior, ChainParameters)
    (scores,) = nearest_product([prior], valid())
    other = prior.scores.clone()
    other[~valid()] = 7 * torch.randn_like(other[~valid()])
    (others,) = nearest_product([replace(prior, scores=other)], valid())
    found, wanted = (each.softmax(-1)[valid()] for each in (others, scores))
    torch.testing.assert_close(found, wanted)
