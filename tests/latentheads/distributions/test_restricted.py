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
    known = context()
    free, prior = EVERY[form](known), NormalHeads(known.scores - 0.4, known, 1.3)
    law = EVERY[form](known)
    law.restrict(prior)
    return law, free, prior


def latent_of(law: HeadVariable) -> Tensor:
    return law.context.mask.latent.bool()[:, None].expand(law.location.shape)


@every_form
def test_it_draws_each_pair_from_the_law_that_it_stands_for(form: str, tape: NoiseTape) -> None:
    law, free, prior = three(form)
    drawn = []
    for each in (law, free, prior):
        tape.rewind()
        drawn.append(each.rsample())
    value, of_posterior, of_prior = drawn
    latent = latent_of(law)
    assert torch.equal(value[latent], of_posterior[latent])
    assert torch.equal(value[~latent], of_prior[~latent])


@every_form
def test_its_density_and_divergence_are_those_of_the_posterior(form: str) -> None:
    law, free, prior = three(form)
    value = law.rsample()
    assert torch.allclose(law.log_prob(value), free.log_prob(value.clone()), atol=1e-9)
    if isinstance(law, NormalHeads | CholeskyHeads):
        assert torch.equal(kl_divergence(law, prior), kl_divergence(free, prior))


@every_form
def test_particles_in_front_are_each_their_own_draw(form: str) -> None:
    law, _, prior = three(form)
    many = law.expand((3, 2))
    assert law.expand((2,)) is law
    assert many.batch_shape == (3, 2)
    value = many.rsample()
    assert value.shape == (3, *law.location.shape)
    elsewhere = (~latent_of(law)).expand(value.shape)
    assert not torch.equal(value[0][elsewhere[0]], value[1][elsewhere[1]])
    each = torch.stack([law.log_prob(one.clone()) for one in value])
    assert torch.allclose(many.log_prob(value), each, atol=1e-9)
    with pyro.plate("particles", 3, dim=-2), pyro.plate("sentences", 2, dim=-1):
        assert pyro.sample("z", law).shape == value.shape
    law.restrict(NormalHeads(prior.location + 1000, prior.context))
    assert (law.expand((3, 2)).rsample()[elsewhere] > 500).all()


def test_gradients_reach_both_laws_through_their_own_pairs() -> None:
    known = context()
    shifts = [torch.zeros((), requires_grad=True) for _ in range(2)]
    posterior, prior = (NormalHeads(known.scores + shift, known) for shift in shifts)
    posterior.restrict(prior)
    posterior.rsample().sum().backward()
    latent = known.mask.latent.unsqueeze(1).expand(known.scores.shape)
    assert shifts[0].grad == latent.sum()
    assert shifts[1].grad == (1 - latent).sum()


def test_a_prior_completes_what_another_library_proposes() -> None:
    known = context()
    prior = NormalHeads(known.scores, known)
    proposed = torch.full((5, 2, HEADS, 5, 7), 1000.0)
    found = prior.expand((5, 2)).complete(proposed)
    latent = latent_of(prior).expand(proposed.shape)
    assert torch.equal(found[latent], proposed[latent])
    assert (found[~latent] < 500).all()
    assert not torch.equal(found[0], found[1])
