"""Gaps of structures: what a chain can express has none."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from latentheads.experiments.studies.subsets import guides
from latentheads.latents.bernoulli_heads.corpus import HeadPosterior
from latentheads.latents.bernoulli_heads.prior import SubsetPrior, chain_tables, dependence_mask
from latentheads.latents.bernoulli_heads.subsets import joint_table
from latentheads.names import Block

HEADS = [2, 1]


def chain(structure: str) -> Tensor:
    """Log-probabilities of the subsets of a random chain of a structure."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 3, generator=generator)
    weight = torch.randn(5, 3, 3, generator=generator) * dependence_mask(HEADS, structure)
    return joint_table(chain_tables(logits, weight, HEADS))


def gap(log_posterior: Tensor, structure: str) -> float:
    log_q = joint_table(guides.best_chain(log_posterior, HEADS, structure))
    return float((log_q.exp() * (log_q - log_posterior)).sum(-1).max())


@pytest.mark.parametrize("structure", ["mean-field", "cascaded"])
def test_the_best_chain_of_a_structure_has_no_gap_to_one_of_its_own(
    structure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guides, "CHAIN_STEPS", 120)
    assert 0 <= gap(chain(structure), structure) + 1e-9 < 1e-2
    if structure != "mean-field":
        assert gap(chain(structure), "mean-field") > 1e-2


def test_gaps_of_each_sentence_are_ordered_and_exact_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guides, "CHAIN_STEPS", 80)
    generator = torch.Generator().manual_seed(1)
    blocks = [Block("decoder-cross", 0, 2), Block("decoder-cross", 1, 1)]
    rows = 3 * torch.randn(6, 8, generator=generator)
    table = HeadPosterior(blocks, rows, torch.ones(6))
    actual = {
        (row["guide"], row["condition_on"]): row for row in guides.sentence_rows(table, table, 0.7)
    }
    gaps = {key: row["gap"] for key, row in actual.items()}
    assert gaps["exact", ""] == pytest.approx(0, abs=1e-9)
    for structure in guides.structures_of(HEADS):
        optimum, shared = gaps[structure, guides.OPTIMUM], gaps[structure, "nothing"]
        assert 0 < optimum < shared < gaps["tied", ""]
    log_prior = joint_table(SubsetPrior(HEADS, "independent", 0.7)())
    evidence = float((log_prior + rows).logsumexp(-1).mean())
    assert all(row["bound"] + row["gap"] == pytest.approx(evidence) for row in actual.values())
    assert guides.structures_of([4]) == ("mean-field", "autoregressive")


def test_gaps_of_a_corpus_are_those_to_its_posterior(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guides, "CHAIN_STEPS", 50)
    rows = torch.randn(4, 8, generator=torch.Generator().manual_seed(2))
    blocks = [Block("decoder-cross", 0, 2), Block("decoder-cross", 1, 1)]
    table = HeadPosterior(blocks, rows, torch.ones(4))
    for row in guides.corpus_rows(table):
        tempered = table.with_temperature(row["tau"])
        log_prior = tempered.log_prior
        tied = float((log_prior.exp() * (log_prior - tempered.log_probs)).sum())
        assert row["gap"]["tied"] == pytest.approx(tied)
        assert all(0 <= gap + 1e-9 <= tied + 1e-4 for gap in row["gap"].values())
