"""Exact sums over links: against enumeration, for pairs of unequal lengths, in float64."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from torch.distributions import kl_divergence

from latentheads.contrib.align.chain import LinkChain
from latentheads.contrib.align.model import GUIDES
from tests.latentheads.contrib.align.tiny_chains import NULL, padded, paths, tiny_batch, tiny_model


@pytest.fixture(params=sorted(GUIDES))
def chain(request: pytest.FixtureRequest) -> LinkChain:
    return GUIDES[request.param](tiny_model(), tiny_batch())


@pytest.fixture
def posterior() -> LinkChain:
    return tiny_model().posterior(tiny_batch())


def test_the_normaliser_is_the_sum_over_all_paths(chain: LinkChain) -> None:
    sums = [sum(weight for _, weight in paths(chain, row)) for row in range(3)]
    torch.testing.assert_close(chain.log_normaliser, torch.tensor(sums).log())


def test_marginals_are_those_of_all_paths(chain: LinkChain) -> None:
    for row in range(3):
        links = torch.zeros(chain.weights.linked.shape[1:])
        total = 0.0
        for states, weight in paths(chain, row):
            total += weight
            for word, state in enumerate(states):
                if state < chain.positions:
                    links[word, state - 1] += weight
        torch.testing.assert_close(chain.marginals[row], links / total)


@pytest.mark.parametrize(
    ("words", "positions"), [([0], [1]), ([0, 2], [1, 3]), ([1, 2], [2, 3]), ([0, 1, 2], [1, 3])]
)
def test_the_probability_of_no_link_of_several_words_is_that_of_all_paths(
    words: list[int], positions: list[int], chain: LinkChain
) -> None:
    longest = 2
    none = total = 0.0
    for states, weight in paths(chain, longest):
        total += weight
        none += weight * all(states[word] not in positions for word in words)
    assert chain.unlinked_probability(longest, words, positions) == pytest.approx(none / total)


def test_links_and_null_of_every_word_sum_to_one(posterior: LinkChain) -> None:
    sums = posterior.marginals.sum(-1) + posterior.null_marginals
    torch.testing.assert_close(sums, posterior.weights.mask.double())
    assert float(posterior.null_marginals[posterior.weights.mask].min()) > 0.01


def test_expected_moves_are_those_of_all_paths(chain: LinkChain) -> None:
    for row in range(3):
        moves = torch.zeros_like(chain.weights.moves[row])
        total = 0.0
        for states, weight in paths(chain, row):
            total += weight
            before = 0
            for state in states:
                if state < chain.positions:
                    moves[before, state] += weight
                before = state % chain.positions
        torch.testing.assert_close(chain.expected_moves[row], moves / total)


def test_log_prob_and_entropy_are_those_of_all_paths(chain: LinkChain) -> None:
    length = chain.event_shape[0]
    for row in range(3):
        entropy = 0.0
        total = sum(weight for _, weight in paths(chain, row))
        for states, weight in paths(chain, row):
            value = torch.stack([padded(states, length, chain)] * 3)
            log_prob = float(chain.log_prob(value)[row])
            assert log_prob == pytest.approx(math.log(weight / total))
            entropy -= weight / total * log_prob
        assert float(chain.entropy()[row]) == pytest.approx(entropy, abs=1e-12)


@pytest.mark.parametrize("weight", [1.0, 3.0, 9.0])
def test_the_likeliest_links_are_those_of_the_best_path(
    posterior: LinkChain, weight: float
) -> None:
    chain = posterior.with_weights(null=weight * posterior.weights.null)
    length = chain.event_shape[0]
    nulls = 0
    for row, best in enumerate(chain.likeliest()):
        states, _ = max(paths(chain, row), key=lambda path: path[1])
        expected = padded(states, length, chain)
        mask = chain.weights.mask[row]
        assert best[mask].tolist() == expected[mask].tolist()
        nulls += sum(state >= chain.positions for state in states)
    assert (nulls > 0) == (weight > 1)


def test_a_null_keeps_the_position_that_the_next_jump_starts_at(posterior: LinkChain) -> None:
    positions, row = posterior.positions, 2  # the longest pair is the last one
    kept = torch.tensor([[1, positions + 1, 0], [1, positions + 1, 0], [2, positions + 2, 3]])
    moved = torch.tensor([[1, positions, 0], [1, positions, 0], [2, positions + 1, 3]])
    assert posterior.log_prob(kept).isfinite().all()
    assert posterior.log_prob(moved).tolist() == [-math.inf] * 3
    weights = posterior.weights
    expected = (
        weights.moves[row, 0, 2]
        * weights.linked[row, 0, 1]
        * (NULL * weights.null[row, 1, 0])
        * weights.moves[row, 2, 3]
        * weights.linked[row, 2, 2]
    )
    log_prob = posterior.log_prob(kept)[row] + posterior.log_normaliser[row]
    torch.testing.assert_close(log_prob, expected.log())


def test_samples_have_the_probabilities_of_paths(posterior: LinkChain) -> None:
    samples = posterior.sample(torch.Size([20_000]))
    row = 1
    mask = posterior.weights.mask[row]
    counts = Counter(tuple(states) for states in samples[:, row, mask].tolist())
    total = sum(weight for _, weight in paths(posterior, row))
    for states, weight in paths(posterior, row):
        share = counts.pop(tuple(states), 0) / len(samples)
        assert share == pytest.approx(weight / total, abs=0.015)
    assert not counts


def test_the_prior_is_normalised_and_its_divergence_from_itself_is_exactly_zero() -> None:
    model, batch = tiny_model(), tiny_batch()
    prior = model.prior(batch)
    torch.testing.assert_close(prior.log_normaliser, torch.zeros(3))
    assert kl_divergence(prior, prior).tolist() == [0.0] * 3
    torch.testing.assert_close(kl_divergence(prior, model.prior(batch)), torch.zeros(3))


@pytest.mark.parametrize("name", sorted(GUIDES))
def test_the_divergence_from_the_posterior_is_that_of_all_paths(name: str) -> None:
    model, batch = tiny_model(), tiny_batch()
    guide, posterior = GUIDES[name](model, batch), model.posterior(batch)
    divergence = kl_divergence(guide, posterior)
    for row in range(3):
        weights = {tuple(states): weight for states, weight in paths(posterior, row)}
        own = list(paths(guide, row))
        total, own_total = sum(weights.values()), sum(weight for _, weight in own)
        expected = sum(
            weight / own_total * math.log(weight / own_total / (weights[tuple(states)] / total))
            for states, weight in own
        )
        assert float(divergence[row]) == pytest.approx(expected, abs=1e-12)
    assert bool((divergence.max() > 1e-3) != (name == "exact"))
