"""Hypotheses of a search, without a search."""

from __future__ import annotations

from typing import Any

import torch

from latentheads.batch import BOS, Batch
from latentheads.handlers import PlugIn


def assert_each_continues(model: Any, batch: Batch) -> None:
    """Each selected hypothesis goes on with its own past: its logits are those of a whole pass."""
    first = torch.tensor([[[5], [6]], [[7], [8]], [[9], [10]]])
    sentences, hypotheses = torch.tensor([2, 0]), torch.tensor([[1, 1, 0], [0, 1, 0]])
    second = torch.tensor([[[4], [5], [6]], [[7], [7], [8]]])
    with PlugIn():
        state = model.begin(batch)
        model.step(torch.full((3, 1, 1), BOS), state)
        state.select(None, torch.zeros(3, 2, dtype=torch.long))
        model.step(first, state)
        state.select(sentences, hypotheses)
        step = model.step(second, state).squeeze(-2)
        for index, sentence in enumerate(sentences):
            before = first[sentence, hypotheses[index]]
            target = torch.cat([before, second[index], torch.full((3, 1), 11)], 1)
            source = batch.source[sentence].expand(3, -1)
            expected = model.predict(model.states(Batch(target, source)))[:, -1]
            assert torch.allclose(step[index], expected, atol=1e-10)
