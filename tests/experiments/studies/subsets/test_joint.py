"""The joint posterior of two blocks: choices of heads, and interactions, by hand."""

from __future__ import annotations

import pytest
import torch

from latentheads.experiments.studies.subsets import joint
from latentheads.latents.bernoulli_heads.corpus import HeadPosterior
from latentheads.latents.bernoulli_heads.subsets import all_subsets
from latentheads.names import Block

BLOCKS = [Block("decoder-self", 0, 2), Block("decoder-self", 1, 1)]
SPARE = torch.tensor([[-9.0, -5.0, -6.0, -1.0, -8.0, -1.5, -1.6, 0.0]])
"""Heads 0 and 1 (bits 1, 2) stand in for each other; head 2 (bit 4) is worth less than both."""


def posterior(rows: torch.Tensor = SPARE) -> HeadPosterior:
    return HeadPosterior(BLOCKS, rows.double(), torch.ones(len(rows)).double())


def test_a_set_of_two_is_chosen_jointly_and_a_ranking_looks_at_single_heads() -> None:
    table = posterior()
    assert joint.best_of_size(table, 2) == 0b011
    assert joint.by_ranking(table, 2) == joint.subset_of([0, 1], table.subsets)
    assert joint.by_elimination(table, 2) == 0b011
    assert joint.by_elimination(table, 1) == 0b001
    assert joint.best_of_size(table, 1) == 0b001


def test_elimination_can_miss_the_best_set() -> None:
    rows = torch.tensor([[-9.0, -5.0, -6.0, -1.0, -2.0, -1.5, -1.6, 0.0]])
    table = posterior(rows)
    assert joint.best_of_size(table, 1) == 0b100
    assert joint.by_elimination(table, 1) == 0b001


def test_losses_are_those_of_test_and_none_is_below_the_best() -> None:
    rows = joint.set_rows(posterior(), posterior(SPARE.flip(-1) - SPARE), 2)
    assert {row["kept"] for row in rows} == {1}
    (best,) = rows[0]["nats_lost"]
    assert rows[0]["choice"] == "best on test"
    assert all(min(row["nats_lost"]) >= best for row in rows)
    assert all(len(row["nats_lost"]) == 2 for row in rows[1:])


def test_interaction_is_what_both_cost_beyond_each() -> None:
    nats = torch.tensor([[-9.0, -2.0, -3.0, -1.0]]).double()  # none, first, second, both active
    table = HeadPosterior([Block("decoder-self", 0, 2)], nats, torch.ones(1).double())
    assert joint.interaction(table, 0, 1) == pytest.approx(8 - 1 - 2)
    assert joint.correlation([1.0, 2.0, 3.0], [2.0, 5.0, 7.0]) == pytest.approx(1)
    assert joint.correlation([1.0, 1.0, 3.0], [5.0, 2.0, 7.0]) == pytest.approx(0.75**0.5)  # a tie


def test_negative_covariance_goes_with_positive_interaction() -> None:
    (first, *_) = joint.pair_rows(posterior(), posterior())
    assert first["heads"] == [("decoder.0.self", 0), ("decoder.0.self", 1)]
    assert first["interaction_test"] == first["interaction_valid"] == pytest.approx(8 - 1.5 - 1.6)
    assert first["covariance_10"] < 0


def test_a_resample_counts_whole_sentences() -> None:
    generator = torch.Generator().manual_seed(0)
    table = HeadPosterior(
        BLOCKS, torch.randn(7, 8, generator=generator).double(), torch.arange(7).double() + 1
    )
    again = joint.resampled(table, 1)
    index = (again.tokens - 1).long()
    assert len(again.tokens) == 7
    torch.testing.assert_close(again.log_likelihoods, table.log_likelihoods[index])
    assert again.subsets.equal(all_subsets(3, again.subsets))
