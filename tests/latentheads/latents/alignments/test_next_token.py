"""Next words mixed over all positions, against a softmax for every entry."""

from __future__ import annotations

import pytest
import torch

from latentheads.latents.alignments.next_token import NextTokenDistribution
from tests.latentheads.latents.alignments.tables import TYPES, N, T, inputs, naive


@pytest.mark.parametrize("size", [1.0, 60.0])
@pytest.mark.parametrize("heads", [1, 2])
def test_next_words_are_mixed_over_all_positions(heads: int, size: float) -> None:
    states, lexicons, weight, _ = inputs(heads, size)
    distributions = naive(states, lexicons, weight)
    prior = torch.randn(distributions.shape[:-1], dtype=torch.float64)
    prior = prior.flatten(2).log_softmax(-1).view_as(prior)
    mixed = (distributions + prior[..., None]).flatten(2, -2).logsumexp(2)
    dictionary = NextTokenDistribution([lexicon.detach() for lexicon in lexicons], weight.detach())
    assert torch.allclose(dictionary.log_probs(states.detach(), prior), mixed.detach(), atol=1e-12)
    one = dictionary.log_probs(states.detach()[:, :1], prior[:, :1])  # as while one is decoded
    assert torch.allclose(one, mixed.detach()[:, :1], atol=1e-12)
    narrow = NextTokenDistribution(
        [lexicon.detach().float() for lexicon in lexicons], weight.detach().float()
    )
    log_probs = narrow.log_probs(states.detach().float(), prior.float())
    assert torch.allclose(log_probs.exp().double(), mixed.detach().exp(), atol=1e-5 * size)
    order = torch.tensor([2, 0, 0])
    dictionary.select(order)
    log_probs = dictionary.log_probs(states.detach()[order], prior[order])
    assert torch.allclose(log_probs, mixed.detach()[order], atol=1e-12)


@pytest.mark.parametrize("heads", [1, 2])
def test_positions_taken_in_one_by_one_are_those_of_one_table(heads: int) -> None:
    states, lexicons, weight, _ = inputs(heads, 1.0)
    states, lexicons, weight = states.detach(), [x.detach() for x in lexicons], weight.detach()
    whole, grown = (
        NextTokenDistribution(lexicons, weight),
        NextTokenDistribution([x[:, :0] for x in lexicons], weight),
    )
    for columns in zip(*(lexicon.split(1, 1) for lexicon in lexicons), strict=True):
        grown.extend(columns)
    prior = torch.randn(whole.word_entropies(states).shape)
    log_probs = grown.log_probs(states, prior)
    assert torch.allclose(log_probs, whole.log_probs(states, prior), atol=1e-12)


@pytest.mark.parametrize("size", [1.0, 60.0])
@pytest.mark.parametrize("heads", [1, 2])
def test_entropies_and_means_are_those_of_every_softmax(heads: int, size: float) -> None:
    states, lexicons, weight, _ = (
        [tensor.detach() for tensor in part] if isinstance(part, list) else part.detach()
        for part in inputs(heads, size)
    )
    distributions, other = (
        naive(states, lexicons, weight),
        torch.randn(N, T, TYPES).double().softmax(-1),
    )
    dictionary = NextTokenDistribution(lexicons, weight)
    entropies = -torch.xlogy(distributions.exp(), distributions.exp()).sum(-1)
    assert torch.allclose(dictionary.word_entropies(states), entropies, atol=1e-9)
    means = torch.einsum("ntv,nt...v->nt...", other, distributions)
    assert torch.allclose(dictionary.mean_log_probs(states, other), means, atol=1e-9)


@pytest.mark.usefixtures("as_the_programs_do")
def test_a_word_that_state_and_position_both_shun_has_its_own_probability() -> None:
    weight = torch.eye(3)
    lexicon, state = torch.tensor([[[-68.0, 0, -90]]]), torch.tensor([[[0.0, -68, -90]]])
    log_probs = NextTokenDistribution([lexicon], weight).log_probs(state, torch.zeros(1, 1, 1))
    expected = (lexicon + state).log_softmax(-1)
    assert torch.allclose(log_probs, expected)


@pytest.mark.parametrize("heads", [1, 2])
def test_autocast_rounds_the_scores_of_entropies_and_nothing_else(heads: int) -> None:
    states, *vectors = (torch.randint(-2, 3, (N, T, 4)).float() for _ in range(heads + 1))
    distribution = NextTokenDistribution(vectors, torch.randint(-2, 3, (TYPES, 4)).float())
    entropies = distribution.word_entropies(states)
    with torch.autocast("cpu", torch.bfloat16):  # products of small whole numbers are exact
        torch.testing.assert_close(distribution.word_entropies(states), entropies)
