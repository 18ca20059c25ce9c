"""What every form of the heads' distribution promises."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import kl_divergence

from latentheads.distributions import DeltaHeads
from latentheads.distributions.heads import sum_over_latent_pairs
from tests.latentheads.distributions.forms import FORMS
from tests.tiny import context

every_form = pytest.mark.parametrize("form", FORMS)


@every_form
def test_own_sample_has_the_gradient_a_foreign_value_has(form: str) -> None:
    def gradient(reference: bool) -> Tensor:
        torch.manual_seed(1)
        c = context()
        c.scores.requires_grad_()
        distribution = FORMS[form](c)
        value = distribution.rsample()
        weights = torch.tensor([1.0, -0.5])
        (
            distribution.log_prob(value if reference else value + 0) @ weights
            + value.square().sum()
        ).backward()
        assert c.scores.grad is not None
        return c.scores.grad

    assert torch.allclose(gradient(True), gradient(False), atol=1e-9)


@every_form
def test_value_drawn_without_a_graph_gets_the_score_function_gradient(form: str) -> None:
    c = context()
    c.scores.requires_grad_()
    distribution = FORMS[form](c)
    value = distribution.sample()
    (reused,) = torch.autograd.grad(distribution.log_prob(value).sum(), c.scores, allow_unused=True)
    (true,) = torch.autograd.grad(distribution.log_prob(value.clone()).sum(), c.scores)
    assert reused is not None
    assert torch.allclose(reused, true, atol=1e-9)


@every_form
def test_one_value_is_scored_once(form: str) -> None:
    distribution = FORMS[form](context())
    value = distribution.rsample()
    assert distribution.log_prob(value) is distribution.log_prob(value)


@every_form
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_value_changed_in_place_is_scored_anew(form: str, mode: type[Any]) -> None:
    with mode():
        distribution = FORMS[form](context())
        value = distribution.sample()
        for _ in range(2):
            value[..., 0] += 3
            assert torch.equal(distribution.log_prob(value), distribution.log_prob(value.clone()))
            value = distribution.sample()
            distribution.log_prob(value)


@every_form
def test_a_score_made_without_a_graph_is_not_reused_in_one(form: str) -> None:
    c = context()
    c.scores.requires_grad_()
    distribution = FORMS[form](c)
    value = torch.randn_like(c.scores)
    with torch.no_grad():
        distribution.log_prob(value)
    assert distribution.log_prob(value).requires_grad


@every_form
@torch.no_grad()
def test_only_the_last_draw_reuses_its_noise(form: str) -> None:
    c = context()
    distribution, fresh = FORMS[form](c), FORMS[form](c)
    first, second = distribution.rsample(), distribution.rsample()
    for value in (first, second, first):
        assert torch.allclose(distribution.log_prob(value), fresh.log_prob(value), atol=1e-10)


@every_form
def test_every_latent_pair_changes_the_density(form: str) -> None:
    c = context()
    value = torch.randn_like(c.scores).requires_grad_()
    (slope,) = torch.autograd.grad(FORMS[form](c).log_prob(value).sum(), value)
    latent = c.mask.latent.unsqueeze(-3).expand(slope.shape).bool()
    assert (slope[latent] != 0).all()
    assert (slope[~latent] == 0).all()


@every_form
def test_particles_in_front_are_each_their_own_draw(form: str) -> None:
    distribution = FORMS[form](context())
    wide = distribution.expand(torch.Size([3, 2]))
    assert wide is distribution.expand(torch.Size([3, 2]))
    assert distribution.expand(distribution.batch_shape) is distribution
    value = wide.rsample()
    assert value.shape == (3, 2, *distribution.event_shape)
    assert not torch.equal(value[0], value[1])
    stacked = torch.stack([distribution.log_prob(particle.clone()) for particle in value])
    assert torch.allclose(wide.log_prob(value), stacked, atol=1e-10)


@every_form
def test_divergence_from_itself_is_zero(form: str) -> None:
    distribution = FORMS[form](context())
    assert torch.equal(kl_divergence(distribution, distribution), torch.zeros(2))


@pytest.mark.parametrize("form", ["cholesky", "inverse", "masked"])
def test_forms_without_a_closed_divergence_say_so(form: str) -> None:
    c = context()
    with pytest.raises(NotImplementedError, match="Heads"):
        kl_divergence(FORMS["normal"](c), FORMS[form](c))


def test_delta_scores_its_location_alone() -> None:
    c = context()
    delta_heads = DeltaHeads(c.scores, c)
    assert torch.equal(delta_heads.rsample(), c.scores)
    assert torch.equal(delta_heads.log_prob(delta_heads.rsample()), torch.zeros(2))
    assert torch.equal(delta_heads.variance, torch.zeros_like(c.scores))
    elsewhere = c.scores.clone()
    elsewhere[1, 0, 0, 0] += 1
    assert delta_heads.log_prob(elsewhere).tolist() == [0.0, -torch.inf]


def test_per_pair_sums_heads_and_latent_pairs_alone() -> None:
    c = context()
    total = sum(
        c.scores[b, :, t, s].sum() * c.mask.latent[b, t, s]
        for b in range(2)
        for t in range(5)
        for s in range(7)
    )
    assert torch.allclose(sum_over_latent_pairs(c.scores, c.mask).sum(), torch.as_tensor(total))
