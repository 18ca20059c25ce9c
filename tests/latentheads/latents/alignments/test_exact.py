"""Sums over alignments against sums over all alignments, one by one."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from latentheads.latents.alignments.chain import ChainInference, ChainParameters
from latentheads.latents.alignments.distribution import CategoricalParameters
from latentheads.latents.alignments.exact import IndependentWords
from tests.latentheads.latents.alignments import brute_force

PADDING = torch.tensor([1.0, brute_force.KEYS], dtype=torch.float64)
"""So often each alignment of the words that are counted stands among all: once, or once a key."""


@pytest.fixture(params=brute_force.KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    torch.manual_seed(0)
    name: str = request.param
    return name


def times(kind: str) -> torch.Tensor:
    heads = 1 if kind in ("one head", "chain") else 2
    return PADDING**heads


def counted(kind: str, values: torch.Tensor) -> torch.Tensor:
    """A sum over all alignments, where those that differ in padding alone are one."""
    return values.sum(0) / times(kind)


def test_evidence_is_the_sum_over_all_alignments(kind: str) -> None:
    priors, words = brute_force.pointings(kind), brute_force.table(kind)
    prior, message = brute_force.everything(kind, priors, words)
    exact = (prior + message).logsumexp(0) - times(kind).log()
    here = brute_force.summed(kind, priors, words)
    assert torch.allclose(here.log_evidence, exact, rtol=1e-12, atol=0)
    assert torch.allclose(here.word_log_evidence.sum(-1), exact, rtol=1e-12, atol=0)
    assert here.word_log_evidence[-1, -1] == 0


def test_posterior_is_bayes(kind: str) -> None:
    priors, words = brute_force.pointings(kind), brute_force.table(kind)
    here = brute_force.summed(kind, priors, words)
    prior, message = brute_force.everything(kind, priors, words)
    values = brute_force.all_alignments(sum(len(one_prior.heads) for one_prior in priors))
    log_probability = brute_force.log_prob(here.posterior(), values)
    wanted = prior + message - here.log_evidence
    likely = wanted > -1e6
    assert torch.allclose(log_probability[likely], wanted[likely], rtol=0, atol=1e-10)
    assert (log_probability[~likely] < -1e6).all()


@pytest.mark.parametrize("form", ["poor", "rich", "prior", "exact"])
def test_bound_kl_and_gap_are_means_over_all_alignments(kind: str, form: str) -> None:
    priors, words = brute_force.pointings(kind), brute_force.table(kind)
    here = brute_force.summed(kind, priors, words)
    guide = {
        "poor": lambda: brute_force.pointings(kind, condition_on=False),
        "rich": lambda: [
            brute_force.chained(p) if kind == "chain" else p for p in brute_force.pointings(kind)
        ],
        "prior": lambda: list(priors),
        "exact": here.posterior,
    }[form]()
    prior, message = brute_force.everything(kind, priors, words)
    log_q = brute_force.log_prob(
        guide, brute_force.all_alignments(sum(len(one_prior.heads) for one_prior in priors))
    )
    q = log_q.exp()
    expected = counted(kind, q * message)
    kl = counted(kind, q * (log_q - prior))
    assert torch.allclose(counted(kind, q), torch.ones(2, dtype=torch.float64))
    assert torch.allclose(here.expected_log_likelihood(guide), expected, rtol=1e-10, atol=1e-12)
    assert torch.allclose(sum(here.kl(guide)), kl, rtol=1e-10, atol=1e-10)
    gap = here.log_evidence - (expected - kl)
    assert torch.allclose(sum(here.gap(guide)), gap, rtol=1e-10, atol=1e-10)
    if form == "prior":
        assert all((item == 0).all() for item in here.kl(guide))
    if form == "exact":
        assert sum(here.gap(guide)).abs().max() < 1e-12


def test_entropies_and_what_words_say_are_means_over_all_alignments(kind: str) -> None:
    priors, words = brute_force.pointings(kind), brute_force.table(kind)
    here = brute_force.summed(kind, priors, words)
    prior, message = brute_force.everything(kind, priors, words)
    posterior = prior + message - here.log_evidence
    for actual, wanted in (
        (here.prior_entropy, -prior.exp() * prior),
        (here.posterior_entropy, -posterior.exp() * posterior),
        (here.information, posterior.exp() * (posterior - prior)),
    ):
        assert torch.allclose(actual, counted(kind, wanted), rtol=1e-10, atol=1e-12)


def test_a_chain_of_one_word_is_that_word_alone_and_one_of_none_is_nothing() -> None:
    torch.manual_seed(0)
    scores, words = torch.randn(2, 1, 1, 3), torch.randn(2, 1, 3)
    valid = torch.tensor([[True], [False]])
    chain_parameters = ChainParameters(scores, transition_scores=torch.randn(2, 1, 3, 3))
    chain, alone = (
        ChainInference([chain_parameters], words, valid),
        IndependentWords([CategoricalParameters(scores)], words, valid),
    )
    uniform = [CategoricalParameters(torch.zeros_like(scores))]
    for one, other in (
        (chain.log_evidence, alone.log_evidence),
        (chain.prior_entropy, alone.prior_entropy),
        (chain.posterior_entropy, alone.posterior_entropy),
        (chain.information, alone.information),
        (chain.gap(uniform)[0], alone.gap(uniform)[0]),
    ):
        torch.testing.assert_close(one, other)
        assert one[0] != 0
        assert one[1] == 0


@pytest.mark.parametrize(("shape", "which"), [("two heads", 0), ("two blocks", 1)])
def test_blocks_have_a_kl_each(shape: str, which: int) -> None:
    torch.manual_seed(0)
    priors = brute_force.pointings(shape)
    guide = list(priors)
    moved = guide[which]
    guide[which] = CategoricalParameters(
        moved.scores + brute_force.pair()[..., :1, :], moved.pairs, moved.first_head
    )
    one_kl = brute_force.summed(shape, priors, brute_force.table(shape)).kl(guide)
    assert [bool((kl > 0).all()) for kl in one_kl] == [
        index == which for index in range(len(priors))
    ]


def test_no_position_and_all_the_same_give_the_plain_network() -> None:
    words = torch.randn(2, 3, 1, dtype=torch.float64).expand(2, 3, 5)
    priors = [CategoricalParameters(torch.randn(2, 3, 1, 5, dtype=torch.float64))]
    here = IndependentWords(priors, words, brute_force.valid())
    plain = (words[..., 0] * brute_force.valid()).sum(-1)
    assert torch.allclose(here.log_evidence, plain, rtol=1e-13, atol=0)
    assert math.isclose(here.gap(priors)[0].abs().max().item(), 0, abs_tol=1e-12)


def test_the_posterior_of_a_long_text_is_that_of_its_words() -> None:
    """A chain that jumps everywhere with equal probability is one of independent words."""
    scores = torch.randn(1, 3000, 1, 3, dtype=torch.float64)
    words, valid = 5 * torch.randn(1, 3000, 3).double(), torch.ones(1, 3000, dtype=torch.bool)
    transition_scores = torch.zeros(1, 1, 3, 3, dtype=torch.float64)
    prior = ChainParameters(scores, transition_scores=transition_scores)
    (chain,) = ChainInference([prior], words, valid).posterior()
    (alone,) = IndependentWords([CategoricalParameters(scores)], words, valid).posterior()
    torch.testing.assert_close(chain.marginals, alone.marginals)


def test_a_kl_made_without_a_graph_is_not_reused_in_one(kind: str) -> None:
    priors = brute_force.pointings(kind)
    here = brute_force.summed(kind, priors, brute_force.table(kind))
    guide = [replace(block, scores=block.scores.clone().requires_grad_()) for block in priors]
    with torch.no_grad():
        here.expected_log_likelihood(guide)
        here.kl(guide)
    assert here.kl(guide)[0].requires_grad
    assert here.expected_log_likelihood(guide).requires_grad
    assert here.kl(guide)[0].requires_grad


def test_sums_of_a_chain_compile() -> None:
    priors, words = brute_force.pointings("chain"), brute_force.table("chain")
    here, twin = (brute_force.summed("chain", priors, words) for _ in range(2))
    compiled = torch.compile(here.expected_log_likelihood, backend="eager")
    assert torch.equal(compiled(priors), twin.expected_log_likelihood(priors))
