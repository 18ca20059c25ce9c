"""The chain of boundaries against the sum over all paths, one by one."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from latentheads.contrib.heads.boundaries.chain import (
    BoundaryChain,
    chain_posterior,
    jump_chain,
    monotone_chain,
)


def _paths(chain: BoundaryChain, emissions: Tensor) -> dict[tuple[int, ...], Tensor]:
    """Log prior plus emissions of every path."""
    boundaries, positions = emissions.shape
    scores = {}
    for path in product(range(positions), repeat=boundaries):
        score = emissions[0, path[0]] - torch.tensor(positions).log()
        for index in range(1, boundaries):
            jump = path[index] - path[index - 1] - chain.least
            if not 0 <= jump < chain.jumps.shape[-1]:
                break
            row = chain.jumps[(index - 1) % chain.kinds]
            score = score + row[jump] + emissions[index, path[index]]
        else:
            scores[path] = score
    return scores


@pytest.mark.parametrize(("kinds", "least"), [(1, 0), (2, 0), (1, -1)])
def test_the_sum_is_that_over_all_paths(kinds: int, least: int) -> None:
    torch.manual_seed(0)
    jumps = torch.rand(kinds, 3, dtype=torch.float64).log_softmax(-1)
    chain = BoundaryChain(jumps, jumps, least)
    emissions = 3 * torch.randn(4, 5, dtype=torch.float64)
    posterior = chain_posterior(chain, emissions)
    scores = _paths(chain, emissions)
    evidence = torch.stack([*scores.values()]).logsumexp(0)
    torch.testing.assert_close(posterior.log_evidence, evidence)
    marginals, counts = torch.zeros(4, 5).double(), torch.zeros(kinds, 3).double()
    for path, score in scores.items():
        probability = (score - evidence).exp()
        marginals[range(4), path] += probability
        for index in range(1, 4):
            counts[(index - 1) % kinds, path[index] - path[index - 1] - least] += probability
    torch.testing.assert_close(posterior.marginals.transpose(0, 1).flatten(0, 1), marginals)
    torch.testing.assert_close(posterior.jumps, counts)


def test_emissions_that_differ_by_much_leave_the_sum_exact() -> None:
    chain = monotone_chain([2.0])
    emissions = torch.zeros(2, 3, dtype=torch.float64)
    emissions[0, 2], emissions[1, 0] = 600.0, 600.0  # the likeliest pair is impossible
    emissions[:, 1] = 590.0
    paths = torch.stack([*_paths(chain, emissions).values()])
    torch.testing.assert_close(chain_posterior(chain, emissions).log_evidence, paths.logsumexp(0))


def test_jumps_of_a_monotone_chain_have_their_medians() -> None:
    chain = monotone_chain([3.0, 20.0])
    cumulative = chain.jumps.exp().cumsum(-1)
    torch.testing.assert_close(cumulative[:, -1], torch.ones(2).double())
    for row, median in zip(cumulative, (3, 20), strict=True):
        assert row[median - 1] < 0.5 < row[median + 1]


def test_words_of_text_go_back_less_often_than_ahead() -> None:
    chain = jump_chain(reach=3)
    jumps = chain.jumps[0].exp()
    torch.testing.assert_close(jumps.sum(), torch.tensor(1.0).double())
    assert chain.least + int(jumps.argmax()) == 1
    emissions = torch.full((3, 4), -9.0).double()
    for word, position in enumerate((2, 1, 0)):
        emissions[word, position] = 0
    assert chain_posterior(chain, emissions).marginals[0].argmax(-1).tolist() == [2, 1, 0]


def test_a_pause_may_be_much_longer_than_a_word() -> None:
    emissions = torch.full((4, 67), -9.0, dtype=torch.float64)
    truth = torch.tensor([1, 3, 61, 64])
    emissions[torch.arange(4), truth] = 0.0
    posterior = chain_posterior(monotone_chain([2.0]), emissions)
    assert posterior.marginals[0].argmax(-1).tolist() == truth.tolist()


def test_a_posterior_is_computed_in_inference_mode_too() -> None:
    with torch.inference_mode():
        chain, emissions = monotone_chain([2.0]), torch.arange(6.0).view(2, 3).double()
        posterior = chain_posterior(chain, emissions)
    expected = chain_posterior(chain, emissions)
    torch.testing.assert_close(posterior.marginals, expected.marginals)
