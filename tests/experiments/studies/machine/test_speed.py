"""Rows of the speed study that are captured and replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro
import pytest
import torch
from torch import Tensor

from latentheads.experiments.studies.benchmarks.baselines import Runner, Setting, make_batch
from latentheads.experiments.studies.machine.speed import FUSED, SMALL, Replayed, make_rows
from latentheads.training import graphs
from tests.capture import capture_operations
from tests.second_device import home, second_device


@pytest.mark.parametrize("row", [FUSED, "coda", "cascaded+alignments"])
def test_a_replayed_row_is_the_row_itself(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "record", capture_operations)
    monkeypatch.setattr(graphs, "SEEN", 1)
    size = SMALL["sentences"]
    with second_device() as device, pyro.validation_enabled(False):
        setting = Setting(device.name, 1, adam=True)
        batch = make_batch(size, setting)

        def train(make: Callable[..., Any], **more: Any) -> tuple[Any, list[Tensor]]:
            loss, parameters = make_rows()[row](size, setting, batch)
            runner = make(row, loss, parameters, setting, "fp32", **more)
            for seed in range(3):
                torch.manual_seed(seed)
                runner.step()
            return runner, home(parameters)

        _, expected = train(Runner)
        replayed, actual = train(Replayed, batch=batch)
    assert replayed.graphs.replays == 2
    assert all(map(torch.equal, actual, expected))
