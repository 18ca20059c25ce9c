"""Layers below a block run once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from latentheads.latents.bernoulli_heads.lower_layers import LowerLayers, _repeat_rows
from latentheads.latents.network import Choice
from tests.latentheads.latents.bernoulli_heads.models import build
from tests.tiny import counting, small_batch


def block_of(model: Any, name: str) -> Any:
    return next(module for module in model.head_blocks if module.block.name == name)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_what_was_recorded_is_returned_and_what_is_above_runs_again(norm: str) -> None:
    model, batch = build(norm=norm, layers=3), small_batch()
    lower = LowerLayers(model, [block_of(model, "decoder.1.cross")])
    assert not lower.is_recorded
    with lower.record():
        recorded = model.states(batch, {})
    assert lower.is_recorded
    assert lower.size == 3 * 5 * 6  # states of the encoder; nothing reads its logits
    assert lower.particles == 0
    with counting(model) as names, lower.replay():
        torch.testing.assert_close(model.states(batch, {}), recorded)
        gate = {"decoder.1.cross": Choice(torch.tensor([1.0, 0.0, 1.0]).double())}
        gated = model.states(batch, gate)
    assert set(names) == {f"decoder.{n}.{kind}" for n in (1, 2) for kind in ("self", "cross")}
    torch.testing.assert_close(gated, model.states(batch, gate))
    assert not torch.allclose(gated, recorded)


def test_it_leaves_the_network_as_it_was() -> None:
    model, batch = build(), small_batch()
    lower = LowerLayers(model, [block_of(model, "decoder.1.cross")])
    with lower.record():
        model.states(batch, {})
    with pytest.raises(KeyError), lower.replay():
        raise KeyError
    assert all("forward" not in vars(module) for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_layers_that_are_compiled_run_again() -> None:
    model, batch = build(), small_batch()
    layer = model.encoder.layers[0]
    layer._compiled_call_impl = layer._call_impl
    lower = LowerLayers(model, [block_of(model, "decoder.1.cross")])
    with lower.record():
        recorded = model.states(batch, {})
    with counting(model) as names, lower.replay():
        torch.testing.assert_close(model.states(batch, {}), recorded)
    assert "encoder.0.self" in names
    assert "encoder.1.self" not in names


def test_rows_of_sentences_are_repeated_and_what_they_share_is_not() -> None:
    states, shared, number = torch.ones(2, 3, 5), torch.ones(1, 7), torch.tensor(1.0)
    word, repeated, *others = _repeat_rows(("word", states, shared, number, None), 4, 2)
    assert (word, repeated.shape) == ("word", (8, 3, 5))
    assert others == [shared, number, None]


def test_a_layer_that_runs_in_a_loop_runs_again() -> None:
    class Loop(nn.Module):
        """Three layers, of which the second runs twice."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))

        def forward(self, states: Tensor) -> Tensor:
            first, looped, last = self.layers
            return last(looped(looped(first(states))))

    model, states = Loop(), torch.randn(3, 2)
    own = model.layers[0].forward = model.layers[0].forward  # as accelerate sets one
    lower = LowerLayers(model, [model.layers[2]])
    for _ in range(2):
        with lower.record():
            recorded = model(states)
    with lower.replay():
        torch.testing.assert_close(model(states), recorded)
    assert lower.size == 6
    assert list(lower._outputs) == [model.layers[0]]
    assert vars(model.layers[0])["forward"] is own
