"""Priors of gates."""

from __future__ import annotations

import math

import pytest
import torch

from latentheads.latents.bernoulli_heads.prior import SubsetPrior, dependence_mask
from tests.latentheads.latents.bernoulli_heads.models import (
    build,
    every_subset,
    gates_of,
    log_prior_by_hand,
)
from tests.tiny import jiggle


def test_what_a_head_is_conditioned_on() -> None:
    assert not dependence_mask([2, 1], "independent").any()
    assert not dependence_mask([2, 1], "mean-field").any()
    within = dependence_mask([2, 1], "autoregressive")
    assert within.tolist() == [[False] * 3, [True, False, False], [False] * 3]
    below = dependence_mask([2, 1], "cascaded")
    assert below.tolist() == [[False] * 3, [False] * 3, [True, True, False]]


@pytest.mark.parametrize("structure", ["independent", "autoregressive", "cascaded"])
def test_tables_are_the_product_of_logistic_conditionals(structure: str) -> None:
    model = build(prior=structure)
    lower, upper = gates_of(model).prior()
    for index, gates in enumerate(every_subset(6)):
        log_prob = lower.log_probs[index % 8] + upper.log_probs[index]
        torch.testing.assert_close(log_prob, log_prior_by_hand(model, gates))


@pytest.mark.parametrize("structure", ["independent", "autoregressive", "cascaded"])
def test_it_starts_at_the_rate(structure: str) -> None:
    prior = SubsetPrior([2, 3], structure, 0.7).double()
    for table in prior():
        all_active = table.log_probs.unflatten(-1, (2**table.heads, -1))[-1]
        expected = torch.full_like(all_active, table.heads * math.log(0.7))
        torch.testing.assert_close(all_active, expected, atol=1e-6, rtol=0)


def test_a_fixed_rate_is_not_learned_and_others_are() -> None:
    fixed = SubsetPrior([2, 2], "independent", 0.7)
    assert not any(parameter.requires_grad for parameter in fixed.parameters())
    for structure in ("autoregressive", "cascaded"):
        prior = jiggle(SubsetPrior([2, 2], structure, 0.7), 0.1)
        sum(table.log_probs[-1] for table in prior()).backward()
        assert prior.logits.grad.all()
        assert torch.equal(prior.weight.grad != 0, prior.mask)
