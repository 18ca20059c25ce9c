"""A posterior where a pair carries a latent, the prior elsewhere."""

from __future__ import annotations

import pyro
import pytest
import torch
from torch.distributions import kl_divergence

from latentheads.distributions import (
    CholeskyHeads,
    DeltaHeads,
    HeadContext,
    HeadLogits,
    MaskedHeads,
    NormalHeads,
    Restricted,
)
from tests.latentheads.distributions.test_heads import FORMS
from tests.tiny import NoiseTape, context

every_form = pytest.mark.parametrize("form", FORMS)


def prior_of(known: HeadContext) -> NormalHeads:
    return NormalHeads(known.scores - 0.4, known, 1.3)


def both(form: str) -> tuple[Restricted, HeadLogits, NormalHeads]:
    known = context()
    posterior, prior = FORMS[form](known), prior_of(known)
    return Restricted(posterior, prior), posterior, prior


@every_form
def test_it_draws_each_pair_from_the_law_that_it_stands_for(form: str, tape: NoiseTape) -> None:
    law, posterior, prior = both(form)
    latent = law.context.mask.latent.bool()[:, None].expand(law.location.shape)
    tape.rewind()
    value = law.rsample()
    tape.rewind()
    of_posterior, of_prior = posterior.rsample(), prior.rsample()
    assert torch.equal(value[latent], of_posterior[latent])
    assert torch.equal(value[~latent], of_prior[~latent])
    assert torch.equal(law.location[latent], posterior.location[latent])
    assert torch.equal(law.location[~latent], prior.location[~latent])


@every_form
def test_its_density_and_divergence_are_those_of_the_posterior(form: str) -> None:
    law, posterior, prior = both(form)
    value = law.rsample()
    assert torch.allclose(law.log_prob(value), posterior.log_prob(value.clone()), atol=1e-9)
    if isinstance(posterior, NormalHeads | CholeskyHeads):
        assert torch.equal(kl_divergence(law, prior), kl_divergence(posterior, prior))
    else:
        with pytest.raises(NotImplementedError):
            kl_divergence(law, prior)


@every_form
def test_particles_in_front_are_each_their_own_draw(form: str) -> None:
    law, *_ = both(form)
    many = law.expand((3, 2))
    assert law.expand((2,)) is law
    assert many.batch_shape == (3, 2)
    value = many.rsample()
    assert value.shape == (3, *law.location.shape)
    assert not torch.equal(value[0], value[1])
    each = torch.stack([law.log_prob(one.clone()) for one in value])
    assert torch.allclose(many.log_prob(value), each, atol=1e-9)
    with pyro.plate("particles", 3, dim=-2), pyro.plate("sentences", 2, dim=-1):
        assert pyro.sample("z", law).shape == value.shape


def test_gradients_reach_both_laws_through_their_own_pairs() -> None:
    known = context()
    shifts = [torch.zeros((), requires_grad=True) for _ in range(2)]
    posterior, prior = (NormalHeads(known.scores + shift, known) for shift in shifts)
    Restricted(posterior, prior).rsample().sum().backward()
    latent = known.mask.latent.unsqueeze(1).expand(known.scores.shape)
    assert shifts[0].grad == latent.sum()
    assert shifts[1].grad == (1 - latent).sum()


def test_a_prior_without_a_closed_form_has_none_here() -> None:
    known = context()
    law = Restricted(prior_of(known), prior_of(known))
    masked = FORMS["masked"](known)
    assert isinstance(masked, MaskedHeads)
    for prior in (masked, DeltaHeads(known.scores, known)):
        with pytest.raises(NotImplementedError):
            kl_divergence(law, prior)
