"""Inference networks of gates."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import latentheads as lh
from latentheads.guides import GUIDES
from latentheads.latents.bernoulli_heads.enumeration import SubsetEnumeration
from latentheads.latents.bernoulli_heads.posterior import SubsetPosterior
from latentheads.latents.bernoulli_heads.prior import chain_tables, dependence_mask
from latentheads.latents.bernoulli_heads.subsets import all_subsets, joint_table
from tests.latentheads.latents.bernoulli_heads.models import (
    attach,
    build,
    gates_of,
    language_model,
    texts,
)
from tests.tiny import jiggle, small_batch

STRUCTURES = ("mean-field", "autoregressive", "cascaded")


@pytest.mark.parametrize("condition_on", ["source", "prefix", "target"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_it_starts_at_the_prior_of_its_structure(structure: str, condition_on: str) -> None:
    prior = {"mean-field": "independent"}.get(structure, structure)
    model = build(prior=prior)
    guide = GUIDES[structure](model, condition_on=condition_on).double().eval()
    bound = lh.terms(model, guide, small_batch())
    torch.testing.assert_close(bound.total_kl, torch.zeros(3).double())


@pytest.mark.parametrize("prior", ["autoregressive", "cascaded"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_it_starts_nearer_to_another_prior_than_its_marginals(structure: str, prior: str) -> None:
    if structure == prior:
        return
    model = build(prior=prior)
    guide = GUIDES[structure](model).double().eval()
    log_joint = joint_table(gates_of(model).prior()).detach()
    subsets = all_subsets(6, log_joint)
    means = log_joint.exp() @ subsets
    product = torch.where(subsets > 0, means, 1 - means).log().sum(-1)
    of_marginals = (product.exp() * (product - log_joint)).sum()
    kl = lh.terms(model, guide, small_batch()).total_kl
    assert ((kl > 1e-6) & (kl < of_marginals)).all()


@pytest.mark.parametrize("structure", STRUCTURES)
def test_heads_depend_on_what_the_structure_says(structure: str) -> None:
    model = build(prior="autoregressive")
    guide = jiggle(GUIDES[structure](model).double(), 0.1)
    posterior = guide.latent_posteriors["decoder.0.self.active"]
    lower, upper = (table.log_probs[0] for table in posterior(small_batch()))
    pairs = upper.view(8, 8)
    across = (pairs - pairs[:, :1]).abs().max() > 1e-6
    assert across == (structure == "cascaded")
    probs = lower.exp().view(2, 2, 2)
    covariance = probs[1, 1].sum() - probs[1].sum() * probs[:, 1].sum()
    assert (covariance.abs() > 1e-6) == (structure == "autoregressive")


def with_other(batch: lh.data.Batch, side: str) -> lh.data.Batch:
    tokens = getattr(batch, side).clone()
    tokens[0, 0] = 7
    return replace(batch, **{side: tokens})


@pytest.mark.parametrize("condition_on", ["source", "prefix", "target"])
def test_it_is_conditioned_on_the_text_it_names(condition_on: str) -> None:
    model, batch = build(), small_batch()
    posterior = attach(model, condition_on=condition_on).latent_posteriors["decoder.1.cross.active"]
    before = posterior(batch)[0].log_probs
    for side in ("source", "target"):
        after = posterior(with_other(batch, side))[0].log_probs
        changes = bool((after[0] - before[0]).abs().max() > 1e-9)
        assert changes == (side == "source" or condition_on == "target")
        torch.testing.assert_close(after[1:], before[1:])


def test_without_a_source_only_the_target_is_encoded() -> None:
    model, batch = language_model(), texts()
    for condition_on, encoders in (("source", []), ("target", ["target"])):
        guide = attach(model, condition_on=condition_on)
        posterior = guide.latent_posteriors["decoder.0.self.active"]
        assert isinstance(posterior, SubsetPosterior)
        assert list(posterior.encoders) == encoders
        assert lh.terms(model, guide, batch).elbo.isfinite().all()


def test_a_sentence_without_a_scored_token_has_the_others_posterior() -> None:
    batch = small_batch()
    target = batch.target.clone()
    target[2] = 0
    posterior = attach(build()).latent_posteriors["decoder.0.self.active"]
    log_probs = posterior(replace(batch, target=target))[0].log_probs
    torch.testing.assert_close(log_probs[:2], posterior(batch)[0].log_probs[:2])
    torch.testing.assert_close(log_probs[2].exp().sum(), torch.ones(()))


def test_one_call_of_the_inference_network_serves_all_blocks() -> None:
    model, batch, calls = build(), small_batch(), []
    guide = attach(model)
    guide.latent_posteriors["decoder.0.self.active"].register_forward_hook(
        lambda *_: calls.append(1)
    )
    guide(batch)
    assert len(calls) == 1


LIKELIHOODS = {
    "or": [[0.02, 0.98], [0.98, 0.98]],
    "xor": [[0.02, 0.98], [0.98, 0.02]],
    "agree": [[0.98, 0.02], [0.02, 0.98]],
}
"""p(y | two gates): what two heads explain together."""


def gap(name: str, structure: str, heads: list[int]) -> float:
    """The least gap of a logistic chain over two gates, after gradient steps."""
    torch.manual_seed(0)
    log_likelihoods = torch.tensor(LIKELIHOODS[name]).double().log().mT.flatten()
    zeros, no_pairs = torch.zeros(2).double(), torch.zeros(2, 2).double()
    prior = chain_tables(zeros, no_pairs, heads)
    mask = dependence_mask(heads, structure).double()
    logits = torch.randn(2).double().requires_grad_()
    weight = torch.randn(2, 2).double().requires_grad_()
    optimizer = torch.optim.LBFGS([logits, weight], max_iter=300, line_search_fn="strong_wolfe")

    def enumeration() -> SubsetEnumeration:
        tables = chain_tables(logits, weight * mask, heads)
        return SubsetEnumeration(
            log_likelihoods, prior, tables, [str(n) for n in range(len(heads))]
        )

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value = sum(enumeration().gap().values(), torch.zeros(()))
        value.backward()
        return value

    optimizer.step(closure)
    return float(closure().detach())


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_which_structure_has_the_gap_of_what_two_heads_explain(name: str) -> None:
    within, between = [2], [1, 1]
    assert gap(name, "mean-field", within) > 0.05
    assert gap(name, "autoregressive", within) < 1e-6
    assert gap(name, "cascaded", within) > 0.05
    assert gap(name, "cascaded", between) < 1e-6
    assert gap(name, "autoregressive", between) > 0.05
