"""A posterior where a pair carries a latent, the prior elsewhere."""

from __future__ import annotations

import pyro
import pytest
import torch
from torch import Tensor
from torch.distributions import kl_divergence

from latentheads.distributions import CholeskyHeads, DeltaHeads, HeadVariable, NormalHeads
from tests.latentheads.distributions.forms import FORMS, Make
from tests.tiny import HEADS, NoiseTape, context

EVERY: dict[str, Make] = {**FORMS, "point": lambda c: DeltaHeads(c.scores, c)}
every_form = pytest.mark.parametrize("form", EVERY)


def three(form: str) -> tuple[HeadVariable, HeadVariable, NormalHeads]:
    """A posterior that is restricted, its like that is not, and the prior."""
    head_context = context()
    free, prior = (
        EVERY[form](head_context),
        NormalHeads(head_context.scores - 0.4, head_context, 1.3),
    )
    distribution = EVERY[form](head_context)
    distribution.restrict(prior)
    return distribution, free, prior


def latent_of(head_variable: HeadVariable) -> Tensor:
    return head_variable.context.mask.latent.bool()[:, None].expand(head_variable.location.shape)


@every_form
def test_it_draws_each_pair_from_the_law_that_it_stands_for(form: str, tape: NoiseTape) -> None:
    distribution, free, prior = three(form)
    drawn = []
    for item in (distribution, free, prior):
        tape.rewind()
        drawn.append(item.rsample())
    value, of_posterior, of_prior = drawn
    latent = latent_of(distribution)
    assert torch.equal(value[latent], of_posterior[latent])
    assert torch.equal(value[~latent], of_prior[~latent])


@every_form
def test_its_density_and_divergence_are_those_of_the_posterior(form: str) -> None:
    distribution, free, prior = three(form)
    value = distribution.rsample()
    assert torch.allclose(distribution.log_prob(value), free.log_prob(value.clone()), atol=1e-9)
    if isinstance(distribution, NormalHeads | CholeskyHeads):
        assert torch.equal(kl_divergence(distribution, prior), kl_divergence(free, prior))


@every_form
def test_particles_in_front_are_each_their_own_draw(form: str) -> None:
    distribution, _, prior = three(form)
    many = distribution.expand((3, 2))
    assert distribution.expand((2,)) is distribution
    assert many.batch_shape == (3, 2)
    value = many.rsample()
    assert value.shape == (3, *distribution.location.shape)
    elsewhere = (~latent_of(distribution)).expand(value.shape)
    assert not torch.equal(value[0][elsewhere[0]], value[1][elsewhere[1]])
    stacked = torch.stack([distribution.log_prob(one.clone()) for one in value])
    assert torch.allclose(many.log_prob(value), stacked, atol=1e-9)
    with pyro.plate("particles", 3, dim=-2), pyro.plate("sentences", 2, dim=-1):
        assert pyro.sample("z", distribution).shape == value.shape
    distribution.restrict(NormalHeads(prior.location + 1000, prior.context))
    assert (distribution.expand((3, 2)).rsample()[elsewhere] > 500).all()


def test_gradients_reach_both_laws_through_their_own_pairs() -> None:
    head_context = context()
    shifts = [torch.zeros((), requires_grad=True) for _ in range(2)]
    posterior, prior = (NormalHeads(head_context.scores + shift, head_context) for shift in shifts)
    posterior.restrict(prior)
    posterior.rsample().sum().backward()
    latent = head_context.mask.latent.unsqueeze(1).expand(head_context.scores.shape)
    assert shifts[0].grad == latent.sum()
    assert shifts[1].grad == (1 - latent).sum()


def test_a_prior_completes_what_another_library_proposes() -> None:
    head_context = context()
    prior = NormalHeads(head_context.scores, head_context)
    proposed = torch.full((5, 2, HEADS, 5, 7), 1000.0)
    actual = prior.expand((5, 2)).complete(proposed)
    latent = latent_of(prior).expand(proposed.shape)
    assert torch.equal(actual[latent], proposed[latent])
    assert (actual[~latent] < 500).all()
    assert not torch.equal(actual[0], actual[1])
