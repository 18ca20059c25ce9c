"""Attention without a latent is fused, and whoever asks for its weights sees them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from latentheads.contrib.heads.record import Recording
from latentheads.inference.objective import Head_ELBO
from tests.tiny import FORMS, attentions_of, build, small_batch

FUSED = "aten._scaled_dot_product_flash_attention_for_cpu.default"
SOFTMAX = "aten._softmax.default"


class Operations(TorchDispatchMode):
    """Counts the operations of a pass."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


def loss_and_gradients(model: nn.Module) -> tuple[Tensor, dict[str, Tensor], Counter[str]]:
    model.zero_grad()
    torch.manual_seed(1)
    with Operations() as operations:
        loss = Head_ELBO()(model, FORMS["tied"](model))(small_batch())
        loss.backward()
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return loss.detach(), gradients, operations.counts


def ask_for_heads(model: nn.Module) -> None:
    for block in attentions_of(model):
        block.hooks.append(lambda *_: None)


@pytest.mark.parametrize(
    ("kind", "options", "fused"),
    [
        ("translation", {"blocks": "none"}, 6),
        ("translation", {"blocks": "encoder-self"}, 4),
        ("language", {"blocks": "none"}, 2),
        ("translation", {"blocks": "none", "attention_dropout": 0.3}, 0),
        ("translation", {"blocks": "all", "prior": "delta"}, 0),
    ],
)
def test_fused_attention_has_the_loss_and_gradients_of_attention_whose_weights_are_made(
    kind: str, options: dict[str, Any], fused: int
) -> None:
    model = build(kind, **options).train()
    blocks = len(attentions_of(model))
    loss, gradients, counts = loss_and_gradients(model)
    assert (counts[FUSED], counts[SOFTMAX]) == (fused, blocks - fused)
    ask_for_heads(model)
    dense_loss, dense_gradients, counts = loss_and_gradients(model)
    assert (counts[FUSED], counts[SOFTMAX]) == (0, blocks)
    torch.testing.assert_close(loss, dense_loss, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients, dense_gradients, rtol=1e-12, atol=1e-12)


def test_a_recording_sees_the_weights_of_fused_blocks() -> None:
    model = build(blocks="none").eval()
    with Recording(model) as heads:
        model.states(small_batch())
    for block in attentions_of(model):
        weights = heads[block.block.name].weights
        assert torch.allclose(weights.sum(-1), torch.ones_like(weights[..., 0]))
