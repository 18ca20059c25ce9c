"""Adapters: identity at first, each task its own afterwards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from latentheads.batch import Batch, SentenceTasks
from latentheads.decoding.beam_search import beam_search
from latentheads.handlers import PlugIn
from latentheads.models import Translation
from latentheads.models.adapters import Adapter, Adapters
from tests.tiny import SOURCE_TYPES, SOURCES, TARGET_TYPES, TARGETS, jiggle, sizes

TASKS = torch.tensor([0, 1, 0]), torch.tensor([2, 0, 1])


def make(adapters: Adapters | None) -> Any:
    torch.manual_seed(4)
    network = sizes(norm="pre")
    model = Translation(SOURCE_TYPES, TARGET_TYPES, network, latents=(), adapters=adapters)
    return model.double().eval()


def tasked() -> Batch:
    return replace(Batch.of(TARGETS, SOURCES), source_task=TASKS[0], target_task=TASKS[1])


def test_an_adapter_starts_as_the_identity_and_learns_one_task_at_a_time() -> None:
    adapter = Adapter(3, 6, 5).double()
    x = torch.randn(2, 7, 6)
    task = SentenceTasks(torch.tensor([2, 0]))
    assert torch.equal(adapter(x, task), x)
    jiggle(adapter, 0.5)
    adapted = adapter(x, task)
    for index, number in enumerate((2, 0)):
        one = adapter(x[index], SentenceTasks(torch.tensor([number]), common=True))
        torch.testing.assert_close(adapted[index], one)
    first = SentenceTasks(torch.tensor([0]), common=True)
    torch.testing.assert_close(adapter(x, None), adapter(x, first))
    adapted.square().sum().backward()
    for parameter in adapter.parameters():
        assert (parameter.grad[[0, 2]] != 0).any(-1).any(-1).all() if parameter.ndim > 1 else True
        assert (parameter.grad[1] == 0).all()


def test_an_adapted_state_is_its_formula() -> None:
    adapter, x = jiggle(Adapter(1, 6, 5).double(), 0.5), torch.randn(2, 7, 6)
    scale, inner, inner_bias, outer, outer_bias = (part[0] for part in adapter.parameters())
    normalised = torch.nn.functional.layer_norm(x, (6,)) * scale
    expected = x + (normalised @ inner + inner_bias).relu() @ outer + outer_bias
    torch.testing.assert_close(adapter(x, None), expected)


def test_it_has_the_parameters_of_two_steps_a_layer() -> None:
    plain, adapted = make(None), make(Adapters(5, 2, 3))
    width, hidden, layers = 6, 5, 2
    step = width + width * hidden + hidden + hidden * width + width
    count = [sum(p.numel() for p in model.parameters()) for model in (plain, adapted)]
    assert count[1] - count[0] == 2 * layers * (2 + 3) * step


def test_a_batch_of_several_tasks_equals_its_sentences_alone() -> None:
    model, batch = jiggle(make(Adapters(5, 2, 3)), 0.3), tasked()
    with PlugIn():
        mixed = model.states(batch)
        for index in range(len(batch)):
            assert batch.source is not None
            keep = slice(index, index + 1)
            one = Batch(
                batch.target[keep],
                batch.source[keep],
                source_task=TASKS[0][keep],
                target_task=TASKS[1][keep],
                one_task=True,
            )
            torch.testing.assert_close(model.states(one)[0], mixed[index], rtol=1e-9, atol=1e-10)


def test_decoding_goes_on_with_the_task_of_each_sentence() -> None:
    model, batch = jiggle(make(Adapters(5, 2, 3)), 0.4), tasked()
    for index, hypotheses in enumerate(beam_search(model, batch, num_beams=3)):
        for hypothesis in hypotheses:
            assert batch.source is not None
            tokens = torch.tensor([hypothesis.tokens])
            tasks = (t[index, None] for t in TASKS)
            source_task, target_task = tasks
            one = Batch(
                tokens, batch.source[index, None], source_task=source_task, target_task=target_task
            )
            with PlugIn():
                likelihood = model.likelihood(model.states(one), one)
            assert hypothesis.log_prob == pytest.approx(
                likelihood.log_prob(tokens).item(), abs=1e-9
            )
