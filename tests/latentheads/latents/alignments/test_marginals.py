"""Marginals of distributions of alignments, against all alignments gone through one by one."""

from __future__ import annotations

import pytest
import torch

from latentheads.latents.alignments.marginals import head_marginals
from tests.latentheads.latents.alignments import brute_force


@pytest.mark.parametrize("condition_on", [False, True])
@pytest.mark.parametrize("kind", brute_force.KINDS)
def test_a_heads_marginals_are_sums_over_all_others(kind: str, condition_on: bool) -> None:
    torch.manual_seed(0)
    pointed = brute_force.pointings(kind, condition_on)
    marginals = head_marginals(pointed)
    heads = sum(len(pointing.heads) for pointing in pointed)
    assert marginals.shape == (brute_force.SENTENCES, heads, brute_force.WORDS, brute_force.KEYS)
    values = brute_force.all_alignments(heads)
    mass = brute_force.log_prob(pointed, values).exp()
    there = torch.nn.functional.one_hot(values, brute_force.KEYS).double()
    wanted = torch.einsum("ns,nswhk->shwk", mass, there)
    real = brute_force.valid()[:, None, :, None].expand_as(marginals)
    wanted[-1] /= brute_force.KEYS**heads  # the padded word counts in no density
    assert torch.allclose(marginals[real], wanted[real], rtol=1e-10, atol=1e-12)


def test_of_an_exact_posterior_too() -> None:
    torch.manual_seed(0)
    priors, words = brute_force.pointings("two heads"), brute_force.table("two heads")
    joint = brute_force.summed("two heads", priors, words)
    marginals = head_marginals(joint.posterior())
    exact = joint.log_posterior.exp()  # type: ignore[union-attr]
    assert torch.allclose(marginals, torch.stack([exact.sum(-1), exact.sum(-2)], -3), atol=1e-12)
