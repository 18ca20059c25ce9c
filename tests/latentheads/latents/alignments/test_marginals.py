"""Marginals of laws of alignments, against all alignments gone through one by one."""

from __future__ import annotations

import pytest
import torch

from latentheads.latents.alignments.marginals import head_marginals
from tests.latentheads.latents.alignments import laws


@pytest.mark.parametrize("condition_on", [False, True])
@pytest.mark.parametrize("kind", laws.KINDS)
def test_a_heads_marginals_are_sums_over_all_others(kind: str, condition_on: bool) -> None:
    torch.manual_seed(0)
    pointed = laws.pointings(kind, condition_on)
    marginals = head_marginals(pointed)
    heads = sum(len(pointing.heads) for pointing in pointed)
    assert marginals.shape == (laws.SENTENCES, heads, laws.WORDS, laws.KEYS)
    values = laws.all_alignments(heads)
    mass = laws.log_prob(pointed, values).exp()
    there = torch.nn.functional.one_hot(values, laws.KEYS).double()
    wanted = torch.einsum("ns,nswhk->shwk", mass, there)
    real = laws.valid()[:, None, :, None].expand_as(marginals)
    wanted[-1] /= laws.KEYS**heads  # the padded word counts in no density
    assert torch.allclose(marginals[real], wanted[real], rtol=1e-10, atol=1e-12)


def test_of_an_exact_posterior_too() -> None:
    torch.manual_seed(0)
    priors, words = laws.pointings("two heads"), laws.table("two heads")
    joint = laws.summed("two heads", priors, words)
    marginals = head_marginals(joint.posterior())
    exact = joint.log_posterior.exp()  # type: ignore[union-attr]
    assert torch.allclose(marginals, torch.stack([exact.sum(-1), exact.sum(-2)], -3), atol=1e-12)
