"""A training step of every recipe can be captured once and replayed, as in a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyro
import pytest
import torch
from torch import Tensor, nn

from latentheads.batch import Batch
from latentheads.guides import GUIDES, RECIPES
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.copy.options import CopyOptions
from latentheads.models import Translation
from tests.capture import Capture
from tests.latentheads.latents.alignments.models import SHAPES, aligned
from tests.latentheads.latents.bernoulli_heads.models import build as gated
from tests.second_device import NAME, near, second_device
from tests.tiny import SOURCE_TYPES, TARGET_TYPES, attach, build, jiggle, sizes, small_batch

OTHER = Batch.of([[5, 2], [8, 9, 4, 2], [10, 2]], [[6, 2], [7, 2], [9, 8, 9, 4, 2]], None, 29)
"""As many sentences, words at most, and other lengths, than those of the captured batch."""


def of_recipe(name: str) -> tuple[Any, Any]:
    prior, guide = RECIPES[name]
    model = build("language-model", prior, dropout=0.1, attention_dropout=0.1)
    return model, attach("cholesky" if guide == "autoregressive" else guide, model)


def with_guide(model: Any, guide: str = "cascaded") -> tuple[Any, Any]:
    return model, jiggle(GUIDES[guide](model).double(), 0.2)


def copying() -> Any:
    latents = [CopyOptions()]
    return jiggle(Translation(SOURCE_TYPES, TARGET_TYPES, sizes(layers=1), latents), 0.4).double()


PAIRS: dict[str, tuple[Callable[[], tuple[Any, Any]], str]] = {
    **{
        name: (lambda name=name: of_recipe(name), "bound")
        for name in ("coda", "cascaded", "autoregressive")
    },
    "copy": (lambda: with_guide(copying()), "bound"),
    "sampled alignments": (lambda: with_guide(aligned(SHAPES["two blocks"])), "sampled"),
    "weighed alignments": (lambda: with_guide(aligned(SHAPES["chain"])), "iwae"),
    "bernoulli-heads": (lambda: with_guide(gated("decoder.1.cross")), "bound"),
    "sampled gates": (lambda: with_guide(gated(prior="independent"), "autoregressive"), "sampled"),
}


@pytest.fixture(autouse=True)
def unchecked() -> Iterator[None]:
    """As in training: Pyro's checks read what they check."""
    with pyro.validation_enabled(False):
        yield


def step(loss: nn.Module, batch: Batch) -> list[Tensor]:
    """The loss of one draw and the gradients of the parameters that have a part in it."""
    torch.manual_seed(1)
    loss.zero_grad(set_to_none=True)
    value = loss(batch)
    value.backward()
    return [value.detach(), *(p.grad for p in loss.parameters() if p.grad is not None)]


@pytest.mark.parametrize("name", PAIRS)
def test_a_captured_step_is_that_of_any_batch_of_its_shape(name: str) -> None:
    make, objective = PAIRS[name]
    model, guide = make()
    loss = Head_ELBO(analytic=True, objective=objective, num_samples=2)(
        model.train(), guide.train()
    )
    with second_device() as device:
        model.to(device.name)
        guide.to(device.name)
        captured = small_batch(corpus_size=29).to(device.name)
        other = OTHER.to(device.name)
        expected = [near(value).clone() for value in step(loss, other)]
        device.forget()
        with Capture() as capture:
            values = step(loss, captured)
        device.assert_waited([])
        near(captured.target).copy_(near(other.target))
        near(captured.source).copy_(near(other.source))
        torch.manual_seed(1)
        capture.replay()
    assert all(map(torch.equal, map(near, values), expected))


def test_a_captured_step_reads_no_memory_of_the_cpu() -> None:
    numbers = torch.ones(3)
    with (
        second_device(),
        Capture(),
        pytest.raises(RuntimeError, match=r"aten\._to_copy.* reads memory of the CPU"),
    ):
        numbers.to(NAME, non_blocking=True)
