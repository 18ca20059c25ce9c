"""The distribution of a block's alignments: density, draws, closed forms."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import kl_divergence

from latentheads.latents.alignments.distribution import (
    Alignments,
    CategoricalParameters,
    word_log_probs,
)
from tests.latentheads.latents.alignments import brute_force

DRAWS = 20_000


@pytest.mark.parametrize("kind", brute_force.KINDS)
def test_draws_have_the_density(kind: str) -> None:
    torch.manual_seed(0)
    below = torch.zeros(brute_force.SENTENCES, brute_force.WORDS, 1, dtype=torch.long)
    pointed = brute_force.pointings(kind)[-1]
    distribution = brute_force.block_distributions([pointed], below)[0]
    drawn = distribution.sample(torch.Size([DRAWS]))
    values = brute_force.whole(distribution).enumerate_support(expand=False)[:, 0]
    codes = (
        drawn[:, 1] * brute_force.KEYS ** torch.arange(values[0].numel()).view(values[0].shape)
    ).sum((-1, -2))
    wanted = (
        values * brute_force.KEYS ** torch.arange(values[0].numel()).view(values[0].shape)
    ).sum((-1, -2))
    share = torch.stack([(codes == code).double().mean() for code in wanted])
    # the padded word counts in no density: it is drawn from a distribution that is not looked at
    counted = values[:, None].expand(-1, brute_force.SENTENCES, -1, -1)
    exact = distribution.word_log_prob(counted)[:, 1].sum(-1).exp()
    error = (exact * (1 - exact) / DRAWS).sqrt()
    assert ((share - exact).abs() <= 5 * error + 1e-9).all()


@pytest.mark.parametrize("kind", brute_force.KINDS)
def test_density_sums_to_one_over_its_support(kind: str) -> None:
    torch.manual_seed(1)
    below = torch.ones(brute_force.SENTENCES, brute_force.WORDS, 1, dtype=torch.long)
    whole = brute_force.whole(
        brute_force.block_distributions([brute_force.pointings(kind)[-1]], below)[0]
    )
    values = whole.enumerate_support()
    assert values.shape[1:] == whole.batch_shape + whole.event_shape
    assert torch.allclose(whole.log_prob(values).exp().sum(0), torch.ones(2).double())


@pytest.mark.parametrize("kind", brute_force.KINDS)
def test_a_value_for_all_sentences_is_scored_in_each(kind: str) -> None:
    """Pyro enumerates values that are not expanded."""
    below = torch.ones(brute_force.SENTENCES, brute_force.WORDS, 1, dtype=torch.long)
    whole = brute_force.whole(
        brute_force.block_distributions([brute_force.pointings(kind)[-1]], below)[0]
    )
    once, enumerate_support = whole.enumerate_support(expand=False), whole.enumerate_support()
    assert torch.equal(whole.log_prob(once), whole.log_prob(enumerate_support))


@pytest.mark.parametrize("kind", brute_force.KINDS)
def test_the_mode_is_the_likeliest_given_what_stands_before(kind: str) -> None:
    below = torch.zeros(brute_force.SENTENCES, brute_force.WORDS, 1, dtype=torch.long)
    distribution = brute_force.block_distributions([brute_force.pointings(kind)[-1]], below)[0]
    best = distribution.word_log_prob(distribution.mode)
    for word in range(brute_force.WORDS):
        for key in range(brute_force.KEYS):
            other = distribution.mode.clone()
            other[:, word, -1] = key
            assert (distribution.word_log_prob(other)[:, word] <= best[:, word]).all()


def test_padding_counts_nothing() -> None:
    distribution = brute_force.block_distributions(
        brute_force.pointings("one head"), torch.zeros(2, 3, 0, dtype=torch.long)
    )[0]
    value = torch.zeros(2, 3, 1, dtype=torch.long)
    other = value.clone()
    other[-1, -1] = 2
    assert torch.equal(distribution.log_prob(value), distribution.log_prob(other))


def test_padding_is_not_enumerated() -> None:
    """Its sum over all positions would be their number, and a sum over alignments too large."""
    distribution = brute_force.block_distributions(
        brute_force.pointings("one head"), torch.zeros(2, 3, 0, dtype=torch.long)
    )[0]
    with pytest.raises(
        ValueError, match=r"^alignments can be enumerated only for targets of equal length: "
    ):
        distribution.enumerate_support(expand=False)


@pytest.mark.parametrize("kind", brute_force.KINDS)
def test_words_of_all_blocks_add_up_to_the_density_and_padding_is_0(kind: str) -> None:
    pointed = brute_force.pointings(kind)
    values = brute_force.all_alignments(sum(len(pointing.heads) for pointing in pointed))
    log_probs = word_log_probs(pointed, brute_force.valid(), values)
    assert torch.allclose(log_probs.sum(-1), brute_force.log_prob(pointed, values), rtol=1e-12)
    assert (log_probs[:, -1, -1] == 0).all()


def test_a_closed_kl_is_that_of_all_alignments() -> None:
    torch.manual_seed(2)
    below = torch.randint(3, (2, 3, 1))
    q, p = (
        brute_force.block_distributions(
            [
                CategoricalParameters(
                    brute_force.scores(2),
                    {(1, 0): brute_force.pair(), (2, 0): brute_force.pair()},
                    1,
                )
            ],
            below,
        )[0]
        for _ in range(2)
    )
    values = brute_force.whole(q).enumerate_support()
    log_q = q.log_prob(values)
    every = (log_q.exp() * (log_q - p.log_prob(values))).sum(0) / torch.tensor([1.0, 9.0])
    assert torch.allclose(kl_divergence(q, p), every, rtol=1e-10)
    assert torch.equal(kl_divergence(q, q), torch.zeros(2).double())


def test_heads_that_read_each_other_have_no_closed_kl() -> None:
    alignments = Alignments(brute_force.pointings("two heads")[0], brute_force.valid())
    other = Alignments(brute_force.pointings("two heads")[0], brute_force.valid())
    with pytest.raises(NotImplementedError, match="dependent heads"):
        kl_divergence(alignments, other)
    chain = Alignments(brute_force.pointings("chain")[0], brute_force.valid())
    with pytest.raises(NotImplementedError, match="dependent heads"):
        kl_divergence(chain, Alignments(brute_force.pointings("one head")[0], brute_force.valid()))


def test_expanded_laws_draw_for_every_particle() -> None:
    distribution = brute_force.block_distributions(
        brute_force.pointings("two blocks")[1:], torch.ones(2, 3, 1, dtype=torch.long)
    )[0]
    wide = distribution.expand([5, 2])
    assert wide.sample().shape == (5, 2, 3, 1)
    assert wide.log_prob(wide.sample()).shape == (5, 2)
    assert distribution.expand([2]) is distribution
