"""Samples of subsets have the marginals and the evidence of the exact table."""

from __future__ import annotations

import math
import re
from functools import partial

import pytest
import torch
from torch import Tensor

from latentheads.contrib.circuits import (
    SubsetDensity,
    SubsetScorer,
    block_tables,
    circuit_posterior,
    gibbs,
    smc,
)
from latentheads.latents.bernoulli_heads.subsets import all_subsets, subset_index
from tests.latentheads.contrib.circuits.tiny import PROMPTS, network
from tests.typechecking import unchecked

HEADS = 6
BLOCKS = [[0, 1, 2], [3, 4, 5]]


class Table:
    """A density from a table, which counts what it is called with."""

    def __init__(self, log_density: Tensor) -> None:
        self.log_density, self.calls = log_density, 0

    def __call__(self, gates: Tensor) -> Tensor:
        self.calls += len(gates)
        return self.log_density[subset_index(gates)]


@pytest.fixture(scope="module")
def scorer() -> SubsetScorer:
    return SubsetScorer(network(), PROMPTS, ["decoder.0.self", "decoder.1.self"])


@pytest.fixture(scope="module")
def density(scorer: SubsetScorer) -> SubsetDensity:
    """Of a tiny network; heads depend on each other across layers."""
    return SubsetDensity(scorer, penalty=0.05, tau=0.1, rate=0.4)


@pytest.fixture(scope="module")
def table(density: SubsetDensity) -> Table:
    return Table(density(all_subsets(HEADS, torch.empty((), dtype=torch.float64))))


def test_the_density_is_that_of_the_exact_posterior(
    scorer: SubsetScorer, density: SubsetDensity, table: Table
) -> None:
    posterior = circuit_posterior(scorer, density.penalty, density.tau, density.rate)
    torch.testing.assert_close(posterior.log_probs, table.log_density.log_softmax(0))
    assert 0.05 < posterior.inclusion.min() < 0.5 < posterior.inclusion.max()
    independent = posterior.covariance.fill_diagonal_(0).abs().max()
    assert independent > 0.02


def test_a_scorer_is_no_density(scorer: SubsetScorer) -> None:
    """The rows of its prompts would be normalised as if each were a density."""
    for sample in (gibbs, smc, block_tables):
        with pytest.raises(ValueError, match=r"^density must be of subsets, as SubsetDensity\("):
            sample(scorer, BLOCKS)


def exact_inclusion(table: Table) -> Tensor:
    return table.log_density.softmax(0) @ all_subsets(HEADS, table.log_density)


@pytest.mark.parametrize("blocks", [BLOCKS, [[head] for head in range(HEADS)]])
def test_gibbs_samples_have_the_exact_marginals(table: Table, blocks: list[list[int]]) -> None:
    samples = gibbs(table, blocks, sweeps=300, chains=20)
    torch.testing.assert_close(samples.inclusion, exact_inclusion(table), rtol=0, atol=0.025)
    posterior = table.log_density.softmax(0)
    subsets = all_subsets(HEADS, posterior)
    centred = subsets - posterior @ subsets
    covariance = (centred * posterior[:, None]).mT @ centred
    torch.testing.assert_close(samples.covariance, covariance, rtol=0, atol=0.02)
    assert samples.log_evidence is None


def test_samples_of_each_chain_stay_together() -> None:
    stuck = Table(torch.full((2**HEADS,), -1e6, dtype=torch.float64))
    stuck.log_density[[0, -1]] = 0.0  # a chain over single heads leaves neither subset
    samples = gibbs(stuck, [[head] for head in range(HEADS)], sweeps=3, chains=7)
    assert samples.by_chain.shape == (7, 3, HEADS)
    assert torch.equal(samples.by_chain[:, 0], samples.gates[:7])
    assert 0 < samples.by_chain[:, 0, 0].sum() < 7
    assert (samples.by_chain == samples.by_chain[:, :1]).all()
    with pytest.raises(ValueError, match=r"^burn_in must be at least 0, got -5$"):
        gibbs(stuck, BLOCKS, burn_in=-5)


def test_sequential_monte_carlo_has_the_exact_marginals_and_evidence(table: Table) -> None:
    estimates, inclusion = [], []
    for seed in range(20):
        samples = smc(table, BLOCKS, particles=200, seed=seed)
        assert samples.log_evidence is not None
        estimates.append(samples.log_evidence)
        inclusion.append(samples.inclusion)
    mean = torch.stack(inclusion).mean(0)
    torch.testing.assert_close(mean, exact_inclusion(table), rtol=0, atol=0.02)
    log_evidence = float(table.log_density.logsumexp(0))
    ratios = (torch.tensor(estimates) - log_evidence).exp()
    error = float(ratios.std()) / math.sqrt(len(ratios))
    assert float(ratios.mean()) == pytest.approx(1, abs=4 * error)
    assert error < 0.05


def test_a_peaked_posterior_is_tempered_in_steps() -> None:
    torch.manual_seed(0)
    table = Table(20 * torch.randn(2**HEADS, dtype=torch.float64))
    samples = smc(table, BLOCKS, particles=400, moves=8)
    assert len(samples.temperatures) > 3
    assert samples.temperatures[0] == 0
    assert samples.temperatures[-1] == 1
    best = all_subsets(HEADS, table.log_density)[table.log_density.argmax()]
    assert torch.equal(samples.inclusion.round(), best)
    assert 0 < samples.acceptance < 1


def test_proposals_are_exact_tables_of_blocks_with_other_heads_kept(table: Table) -> None:
    first, second = block_tables(table, BLOCKS)
    rows = table.log_density.view(8, 8)  # the second block has the higher bits
    torch.testing.assert_close(first, rows[-1].log_softmax(0))
    torch.testing.assert_close(second, rows[:, -1].log_softmax(0))
    table.calls = 0
    smc(table, BLOCKS, particles=10, moves=1, tables=[first, second])
    assert table.calls < 150 < 10 * 8 * 2


def test_samples_name_the_heads_of_their_scorer(density: SubsetDensity, table: Table) -> None:
    for samples in (gibbs(density, BLOCKS, 1, 1, 0), smc(density, BLOCKS, 2, 1)):
        assert list(samples.to_frame()) == ["weight", *density.scorer.labels]
        assert f"inclusion {density.scorer.labels[0]} {samples.inclusion[0]:.3f}, " in repr(samples)
    assert list(gibbs(table, BLOCKS, 1, 1, 0).to_frame()) == ["weight", *range(HEADS)]


def test_samples_repeat_with_their_seed_and_blocks_are_checked(table: Table) -> None:
    assert torch.equal(gibbs(table, BLOCKS, 3).gates, gibbs(table, BLOCKS, 3).gates)
    peak = torch.tensor([1.0, 0, 1, 1, 0, 0])
    peaked = Table(-1e6 * torch.ones(2**HEADS).scatter(0, subset_index(peak), 0.0).double())
    assert torch.equal(gibbs(peaked, BLOCKS, 1, 1, 0, start=peak).gates, peak[None].double())
    printed = repr(smc(table, BLOCKS, 9))
    assert re.match(
        r"SampledSubsets\(9 samples of 6 heads, log evidence -?\d+\.\d+, accept", printed
    )
    for start in (peak[1:], 2 * peak):
        with pytest.raises(ValueError, match=r"^start must be a 0 or 1 for each of 6 heads, got"):
            gibbs(table, BLOCKS, start=start)
    assert torch.equal(smc(table, BLOCKS, 9).gates, smc(table, BLOCKS, 9).gates)
    for blocks in ([[0, 1], [1, 2]], [[0], [2]], []):
        with pytest.raises(ValueError, match=r"^blocks must hold every head once, got \["):
            gibbs(table, blocks)
    with pytest.raises(ValueError, match=r"^each of blocks must be a list, got 0$"):
        unchecked(gibbs)(table, [0, 1])
    with pytest.raises(ValueError, match=r"^a block has at most 12 heads, got 13$"):
        smc(table, [list(range(13))])
    for threshold in (0.0, 1.0):
        with pytest.raises(
            ValueError, match=rf"^threshold must be above 0 and below 1, got {threshold}"
        ):
            smc(table, BLOCKS, threshold=threshold)


def test_a_slice_without_density_is_an_error_of_one_line(table: Table) -> None:
    subsets = all_subsets(HEADS, torch.empty((), dtype=torch.float64))
    few = Table(table.log_density.masked_fill(subsets.sum(-1) > 1, -torch.inf))
    samples = gibbs(few, BLOCKS, 20, start=torch.zeros(HEADS))
    assert samples.gates.sum(-1).max() == 1
    message = r"^density must be finite for a subset of each block beside the other heads: "
    for sample in (block_tables, smc, partial(gibbs, start=torch.ones(HEADS))):
        for density in (few, Table(table.log_density * torch.nan)):
            with pytest.raises(ValueError, match=message):
                sample(density, BLOCKS)


def test_a_density_takes_what_a_posterior_takes(scorer: SubsetScorer) -> None:
    with pytest.raises(ValueError, match=r"^penalty must be at least 0, got -1\.0$"):
        SubsetDensity(scorer, -1.0, tau=1.0)
    with pytest.raises(ValueError, match=r"^tau must be positive and finite, got 0\.0$"):
        SubsetDensity(scorer, 0.0, tau=0.0)
    with pytest.raises(ValueError, match=r"^rate must be above 0 and below 1, got 1\.0$"):
        SubsetDensity(scorer, 0.0, 1.0, rate=1.0)
