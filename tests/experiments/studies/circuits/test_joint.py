"""Log-densities of subsets are kept in a file, and a run goes on with them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from latentheads.experiments.studies.circuits.joint import CachedDensity
from latentheads.latents.bernoulli_heads.subsets import all_subsets, subset_index


def test_what_was_scored_is_not_scored_again(tmp_path: Path) -> None:
    torch.manual_seed(0)
    table, calls = torch.randn(32, dtype=torch.float64), []

    def density(gates: Tensor) -> Tensor:
        calls.extend(gates.tolist())
        return table[subset_index(gates)]

    every = all_subsets(5, table)
    kept = CachedDensity(density, tmp_path / "densities.txt")
    twice = torch.cat([every[:20], every[:7]])
    assert torch.equal(kept(twice), density(twice))
    calls.clear()
    again = CachedDensity(density, tmp_path / "densities.txt")
    assert torch.equal(again(every), table)
    assert len(calls) == 12
    scored = again.scored()
    assert scored["log_evidence"] == pytest.approx(float(table.logsumexp(0)))
    assert scored["inclusion"] == pytest.approx((table.softmax(0) @ every).tolist())
