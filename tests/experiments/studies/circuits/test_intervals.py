"""Intervals of the study of circuits are over tasks, and have a width at 0 and 1."""

from __future__ import annotations

import math

import pytest
import torch

from latentheads.contrib.circuits import Decisions
from latentheads.experiments.studies.circuits.intervals import ratio_interval, wilson_interval
from latentheads.experiments.studies.circuits.reliability import HEADS, reliability
from latentheads.metrics.seeds import spread


def test_layers_of_a_task_are_no_further_evidence() -> None:
    values = [0.2, 0.5, 0.9]
    sums = torch.tensor(values, dtype=torch.float64)
    once = ratio_interval(sums, torch.ones(3), ["a", "b", "c"])
    assert once == pytest.approx(list(spread(values)))
    repeated = ratio_interval(sums.repeat(4), torch.ones(12), ["a", "b", "c"] * 4)
    assert repeated == pytest.approx(once)


def test_a_task_without_decisions_is_no_unit() -> None:
    sums, counts = torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.tensor([0.0, 4.0, 4.0, 4.0])
    tasks = ["a", "b", "c", "c"]
    # residuals of b and c are -1 and 1, of 12 decisions; t of one degree of freedom
    assert ratio_interval(sums, counts, tasks)[2] == pytest.approx(0.5 + 12.7062 * 2 / 12)
    assert ratio_interval(sums, counts, ["c"] * 4) == [0.5, -math.inf, math.inf]


def test_a_share_of_one_has_the_interval_of_as_many_heads() -> None:
    assert wilson_interval(5, 5) == pytest.approx([5 / (5 + 1.959964**2), 1.0])
    log_odds = torch.full((2, HEADS), -5.0, dtype=torch.float64)  # two splits
    log_odds[:, :2] = 5.0
    needed = torch.zeros(2, HEADS, dtype=torch.float64)
    needed[:, :2] = 1.0
    needed[0, 8] = 1.0
    part = Decisions(log_odds.flatten(), needed.flatten())
    other = Decisions(part.log_odds, 1 - part.needed)
    low, high = reliability([part, part], ["a", "b"])["bins"]
    assert (high["heads"], high["layers"], high["decisions"]) == (4, 2, 8)
    assert [high["low"], high["share"], high["high"]] == pytest.approx([0.5101, 1.0, 1.0], abs=1e-4)
    assert low["share"] == pytest.approx(1 / 14)
    low, high = reliability([part, other], ["a", "b"])["bins"]
    assert [high["low"], high["share"], high["high"]] == [0.0, 0.5, 1.0]
