"""Sums over all subsets, against loops; the order of the bounds."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pyro import poutine
from torch import nn

import latentheads as lh
from latentheads.guides import GUIDES
from latentheads.latents.bernoulli_heads.subsets import HeadSubsets, logistic_chain
from tests.latentheads.latents.bernoulli_heads.models import (
    attach,
    build,
    every_subset,
    gates_of,
    language_model,
    log_joint_by_hand,
    log_prior_by_hand,
    texts,
)
from tests.tiny import padded, rows, small_batch

STRUCTURES = ("mean-field", "autoregressive", "cascaded")
PRIORS = ("independent", "autoregressive", "cascaded")
every_structure = pytest.mark.parametrize("structure", STRUCTURES)


def log_q_by_hand(guide: Any, batch: Any) -> torch.Tensor:
    lower, upper = guide.latent_posteriors["decoder.0.self.active"](batch)
    index = torch.arange(64)
    return lower.log_probs[:, index % 8] + upper.log_probs


@pytest.mark.parametrize("prior", PRIORS)
def test_evidence_is_a_sum_of_passes_of_the_whole_network(prior: str) -> None:
    model, batch = build(prior=prior), small_batch()
    with torch.no_grad():
        by_hand = log_joint_by_hand(model, batch).logsumexp(-1)
    enumeration = lh.terms(model, GUIDES["tied"](model), batch).enumeration
    torch.testing.assert_close(enumeration.log_evidence, by_hand)


def test_evidence_has_the_gradient_of_that_sum() -> None:
    model, batch, gradients = build(), small_batch(), []
    for evidence in (
        model.token_distribution(batch).log_evidence(batch.scored),
        log_joint_by_hand(model, batch).logsumexp(-1),
    ):
        model.zero_grad()
        evidence.sum().backward()
        gradients.append(
            {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        )
    torch.testing.assert_close(gradients[0], gradients[1])
    assert gradients[0]["bernoulli_heads.prior.weight"].any()


@every_structure
def test_every_term_is_a_sum_over_subsets(structure: str) -> None:
    model, batch = build(), small_batch()
    guide = attach(model, structure)
    bound = lh.terms(model, guide, batch)
    with torch.no_grad():
        log_joint, log_q = log_joint_by_hand(model, batch), log_q_by_hand(guide, batch)
    torch.testing.assert_close(bound.elbo, (log_q.exp() * (log_joint - log_q)).sum(-1))
    enumeration = bound.enumeration
    gap = sum(enumeration.gap().values())
    torch.testing.assert_close(bound.elbo + gap, enumeration.log_evidence)
    assert (gap > 1e-4).all()
    assert all((value >= 0).all() for value in enumeration.gap().values())
    assert {bound.how[site] for site in enumeration.sites} == {"enumerated"}


def test_inclusion_sums_the_subsets_with_a_head() -> None:
    model, batch = build(), small_batch()
    guide = attach(model, "cascaded")
    enumeration = lh.terms(model, guide, batch).enumeration
    with torch.no_grad():
        log_joint, log_q = log_joint_by_hand(model, batch), log_q_by_hand(guide, batch)
        log_prior = torch.stack([log_prior_by_hand(model, b) for b in every_subset(6)])
    log_probs = {"prior": log_prior, "guide": log_q, "posterior": log_joint.log_softmax(-1)}
    inclusion = enumeration.inclusion()
    assert set(inclusion) == set(log_probs)
    for name, values in log_probs.items():
        for head in range(6):
            columns = [column for column in range(64) if column >> head & 1]
            expected = values[..., columns].exp().sum(-1).expand(3)
            torch.testing.assert_close(inclusion[name][:, head], expected)


def test_entropies() -> None:
    model, batch = build(), small_batch()
    entropies = lh.terms(model, GUIDES["tied"](model), batch).enumeration.entropies()
    with torch.no_grad():
        log_posterior = log_joint_by_hand(model, batch).log_softmax(-1)
    expected = -(log_posterior.exp() * log_posterior).sum(-1)
    torch.testing.assert_close(entropies["posterior_entropy"], expected)
    lower, upper = (table.log_probs for table in gates_of(model).prior())
    log_prior = (lower.repeat(8) + upper).detach()
    prior_entropy = -(log_prior.exp() * log_prior).sum()
    torch.testing.assert_close(entropies["prior_entropy"], prior_entropy.expand(3))
    information = (log_posterior.exp() * (log_posterior - log_prior)).sum(-1)
    torch.testing.assert_close(entropies["information"], information)


@pytest.mark.parametrize("kind", ["translation", "language-model"])
def test_elbo_iwae_and_log_p_are_in_order(kind: str) -> None:
    torch.manual_seed(0)
    model = build() if kind == "translation" else language_model()
    batch = small_batch() if kind == "translation" else texts()
    enumeration = lh.terms(model, attach(model), batch).enumeration
    exact = enumeration.log_evidence
    elbo = enumeration.log_likelihood - sum(enumeration.kl().values())
    weights = enumeration.log_weights(60_000)
    iwae = [weights.view(k, -1, 3).logsumexp(0).mean(0) - torch.tensor(k).log() for k in (1, 2, 8)]
    torch.testing.assert_close(iwae[0], elbo, atol=0.02, rtol=0)
    assert (elbo < iwae[1]).all()
    assert (iwae[1] < iwae[2]).all()
    assert (iwae[2] < exact + 1e-3).all()


@pytest.mark.parametrize("guide", ["tied", "exact"])
def test_a_network_that_is_nan_is_named_in_one_line(guide: str) -> None:
    model = build()
    *_, norm = (module for module in model.modules() if isinstance(module, nn.LayerNorm))
    norm.register_forward_hook(lambda _, __, output: output * math.nan)
    with pytest.raises(FloatingPointError, match=r"^the bound is NaN: site \S+: .* not finite$"):
        lh.evaluate(model, GUIDES[guide](model), [small_batch()], num_samples=2)


@pytest.mark.parametrize("prior", PRIORS)
def test_a_tied_guide_has_a_log_ratio_of_exactly_0_in_every_sample(prior: str) -> None:
    model, batch = build(prior=prior, dropout=0.2).train(), small_batch()
    guide = GUIDES["tied"](model)
    for _ in range(3):
        guide(batch)
        model_trace, guide_trace = guide.get_traces()
        sites = [n for n, s in guide_trace.nodes.items() if isinstance(s.get("fn"), HeadSubsets)]
        assert len(sites) == 2
        for name in sites:
            assert guide_trace.nodes[name]["fn"] is model_trace.nodes[name]["fn"]
    bound = lh.terms(model.eval(), guide, batch)
    assert (bound.log_ratio == 0).all()
    assert (bound.total_kl == 0).all()


def test_the_exact_guide_is_bayes_rule() -> None:
    model, batch = build(), small_batch()
    guide = GUIDES["exact"](model)
    bound = lh.terms(model, guide, batch)
    torch.testing.assert_close(bound.elbo, bound.enumeration.log_evidence)
    for gap in bound.enumeration.gap().values():
        torch.testing.assert_close(gap, torch.zeros(3).double())
    with torch.no_grad():
        posterior = log_joint_by_hand(model, batch).softmax(-1)
    marginal = posterior.unflatten(-1, (8, 8)).sum(-2)
    site = guide.trace.nodes["decoder.0.self.active"]
    torch.testing.assert_close(site["fn"].log_probs.exp(), marginal)
    weights = lh.inference.importance(model, guide, batch, num_samples=4).log_weights
    torch.testing.assert_close(weights, bound.elbo.expand(4, 3))


def test_padding_and_order_change_no_sentence() -> None:
    model, batch = build(), small_batch()
    guide = attach(model)
    elbo = lh.terms(model, guide, batch).elbo
    torch.testing.assert_close(lh.terms(model, guide, padded(batch, 2, 3)).elbo, elbo)
    order = [2, 0]
    torch.testing.assert_close(lh.terms(model, guide, rows(batch, order)).elbo, elbo[order])


def test_another_distribution_as_posterior_is_refused() -> None:
    model, batch = build("decoder.1.cross"), small_batch()

    class Foreign(GUIDES["tied"]):  # type: ignore[name-defined,misc]
        is_tied = False

        def get_posterior(self, name: str, prior: Any) -> Any:
            if name.endswith("active"):
                probs = torch.full(prior.shape(), 0.5, dtype=torch.float64)
                return torch_bernoulli(probs)
            return prior

    with pytest.raises(ValueError, match="posterior must be HeadSubsets, got Independent"):
        lh.terms(model, Foreign(model), batch)


def test_a_table_that_leaves_out_lower_blocks_is_refused() -> None:
    model, batch = build(), small_batch()

    class Alone(GUIDES["tied"]):  # type: ignore[name-defined,misc]
        is_tied = False

        def get_posterior(self, name: str, prior: Any) -> Any:
            logits = torch.zeros(3, dtype=torch.float64)
            table = logistic_chain(logits, torch.zeros(3, 3, dtype=torch.float64))
            return HeadSubsets(table, None, prior.batch_shape)

    with pytest.raises(ValueError, match=r"^site 'decoder.1.cross.active': first must be 3, .* 0$"):
        lh.terms(model, Alone(model), batch)


def torch_bernoulli(probs: torch.Tensor) -> Any:
    import pyro.distributions as dist

    return dist.Bernoulli(probs).to_event(1)


def test_observed_gates_have_no_bound() -> None:
    model, batch = build("decoder.1.cross"), small_batch()
    guide = attach(model)
    gates = torch.ones(3, 3, dtype=torch.float64)
    conditioned = poutine.condition(guide, {"decoder.1.cross.active": gates})
    with pytest.raises(ValueError, match=r"site 'decoder\.1\.cross\.active' is observed"):
        lh.terms(model, conditioned, batch)
