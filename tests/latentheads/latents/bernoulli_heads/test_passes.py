"""Passes with given gates: against a pass of the whole network for each subset."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from latentheads.latents.bernoulli_heads.passes import GatedPass
from latentheads.models.adapters import Adapters
from tests.latentheads.latents.bernoulli_heads.models import (
    build,
    every_subset,
    gates_of,
    language_model,
    log_likelihood_by_hand,
    texts,
)
from tests.tiny import counting, small_batch


def weight_normed() -> Any:
    """A model whose weights are parametrized: each has a list of modules."""
    model = build()
    for module in [part for part in model.modules() if isinstance(part, nn.Linear)]:
        weight_norm(module)
    return model


CASES = {
    "two layers": lambda: build(),
    "encoder": lambda: build("encoder.0.self,encoder.1.self"),
    "top": lambda: build(""),
    "pre-norm": lambda: build(norm="pre", share="none"),
    "n-grams": lambda: build(mixers="ngram", norm="pre"),
    "local": lambda: build(mixers="local,attention", windows=2),
    "weight-normed": weight_normed,
    "tasks": lambda: build(adapters=Adapters(5, 2, 2)),
}


def passes(model: Any, batch: Any, **options: Any) -> GatedPass:
    return GatedPass(model, batch, gates_of(model).gated_blocks(model), **options)


def by_hand(model: Any, batch: Any) -> Tensor:
    subsets = every_subset(sum(gates_of(model).heads))
    return torch.stack([log_likelihood_by_hand(model, batch, gates) for gates in subsets], -1)


@pytest.mark.parametrize("case", CASES)
def test_all_subsets_at_once_are_each_alone(case: str) -> None:
    model, batch = CASES[case](), small_batch()
    log_probs = passes(model, batch).log_probs_of_subsets(batch.scored)
    torch.testing.assert_close(log_probs, by_hand(model, batch))
    assert log_probs.std(-1).min() > 1e-6


def test_of_a_language_model_with_context() -> None:
    from dataclasses import replace

    model, batch = language_model(layers=3), replace(texts(), context=1)
    log_probs = passes(model, batch).log_probs_of_subsets(batch.scored)
    torch.testing.assert_close(log_probs, by_hand(model, batch))


def test_layers_below_run_once() -> None:
    model, batch = build("decoder.1.cross"), small_batch()
    gated_pass = passes(model, batch, gibibytes=1e-9)
    with counting(model) as names:
        gated_pass.tokens_given(torch.ones(3).double())
        gated_pass.log_probs_of_subsets(batch.scored)
    assert names.count("encoder.0.self") == names.count("decoder.0.cross") == 1
    assert names.count("decoder.1.cross") == 1 + 8


@pytest.mark.parametrize("gibibytes", [1e-9, 1e-4])
def test_slices_give_the_same_values_and_gradients(gibibytes: float) -> None:
    model, batch = build(), small_batch()
    whole, sliced = passes(model, batch), passes(model, batch, gibibytes=gibibytes)
    assert sliced._slice_size() < 64
    gradients = []
    for gated_pass in (whole, sliced):
        model.zero_grad()
        log_probs = gated_pass.log_probs_of_subsets(batch.scored)
        log_probs.logsumexp(-1).sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    torch.testing.assert_close(gradients[0], gradients[1])
    with torch.no_grad():
        torch.testing.assert_close(
            whole.log_probs_of_subsets(batch.scored), sliced.log_probs_of_subsets(batch.scored)
        )


def test_gradients_are_those_of_passes_of_the_whole_network() -> None:
    model, batch = build(), small_batch()
    gradients = []
    for log_probs in (
        passes(model, batch).log_probs_of_subsets(batch.scored),
        by_hand(model, batch),
    ):
        model.zero_grad()
        log_probs.logsumexp(-1).sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    torch.testing.assert_close(gradients[0], gradients[1])


def test_an_expected_gradient_with_more_particles_than_the_pass_has_changes_nothing() -> None:
    model, batch, gradients = build(), small_batch(), []
    table = torch.rand(2, len(batch.target), 64).double()
    for expected in (None, table[0], table):
        model.zero_grad()
        log_probs = passes(model, batch).log_probs_of_subsets(batch.scored, expected)
        log_probs.logsumexp(-1).sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    torch.testing.assert_close(gradients[1], gradients[0])
    torch.testing.assert_close(gradients[2], gradients[0])


def test_slices_with_dropout_are_computed_alike_in_the_backward_pass() -> None:
    model, batch = build(dropout=0.3).train(), small_batch()
    gated_pass = passes(model, batch, gibibytes=1e-9)
    gated_pass.log_probs_of_subsets(batch.scored).logsumexp(-1).sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_hooks_are_called_for_no_subset() -> None:
    model, batch, calls = build(), small_batch(), []
    for module in model.head_blocks:
        module.hooks.append(lambda *_: calls.append(1))
    gated_pass = passes(model, batch)
    gated_pass.tokens_given(torch.ones(6).double())
    before = len(calls)
    gated_pass.log_probs_of_subsets(batch.scored)
    assert len(calls) == before > 0


def test_sums_are_cached_by_tokens() -> None:
    model, batch = build(), small_batch()
    gated_pass = passes(model, batch)
    first = gated_pass.log_probs_of_subsets(batch.target)
    assert gated_pass.log_probs_of_subsets(batch.target) is first
    other = batch.target.clone()
    other[0, 0] = 8
    assert not torch.equal(gated_pass.log_probs_of_subsets(other), first)
    with torch.inference_mode():
        own = other.clone()
        before = gated_pass.log_probs_of_subsets(own)
        own[0, 0] = 7
        assert not torch.equal(gated_pass.log_probs_of_subsets(own), before)
