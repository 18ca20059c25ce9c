"""The table of words and positions against a softmax for every entry."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from latentheads.latents.alignments import emission
from latentheads.latents.alignments.emission import EmissionRequest, emission_log_probs
from tests.latentheads.latents.alignments.memory import Largest, cut
from tests.latentheads.latents.alignments.tables import TYPES, N, S, T, inputs, look_up, naive


def smoothed(tensor: Tensor, words: Tensor, smoothing: float) -> Tensor:
    return (1 - smoothing) * look_up(tensor, words) + smoothing * tensor.mean(-1)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("chunk", [2**21, 60])
@pytest.mark.parametrize("size", [1.0, 60.0])
@pytest.mark.parametrize("heads", [1, 2])
def test_table_and_gradients_are_those_of_every_softmax(
    heads: int, size: float, chunk: int, smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(monkeypatch, chunk)
    states, lexicons, weight, words = inputs(heads, size)
    log_probs = emission_log_probs(states, lexicons, weight, words, smoothing=smoothing)
    plain = smoothed(naive(states, lexicons, weight), words, smoothing)
    assert torch.allclose(log_probs, plain, rtol=1e-12, atol=1e-12)
    direction, given = torch.randn_like(plain), [states, weight, *lexicons]
    actual = torch.autograd.grad((log_probs * direction).sum(), given)
    expected = torch.autograd.grad((plain * direction).sum(), given)
    for one, other in zip(actual, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-9 * other.abs().max().item())


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("summed", [True, False])
@pytest.mark.parametrize("chunk", [2**21, 60])
@pytest.mark.parametrize("heads", [1, 2])
def test_the_gradient_that_is_likely_is_made_beside_the_table(
    heads: int, chunk: int, summed: bool, smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scores are made again only where another is asked for."""
    cut(monkeypatch, chunk)
    states, lexicons, weight, words = inputs(heads, 1.0)
    given = [states, weight, *lexicons]
    plain = smoothed(naive(states, lexicons, weight), words, smoothing)
    distribution = torch.randn_like(plain).flatten(2).log_softmax(-1).view_as(plain).detach()
    valid = torch.rand(N, T, dtype=torch.float64) < 0.8

    def likely(table: Tensor) -> tuple[Tensor, ...]:
        one_total = (
            (distribution + table).flatten(2).logsumexp(-1)
            if summed
            else distribution.exp() * table
        )
        total = (one_total.flatten(2).sum(-1) if one_total.ndim > 2 else one_total) * valid
        return torch.autograd.grad(0.3 * total.sum(), given, retain_graph=True)

    log_probs = emission_log_probs(
        states, lexicons, weight, words, EmissionRequest(distribution, valid, summed), smoothing
    )
    direction = torch.randn_like(plain)
    other = torch.autograd.grad((log_probs * direction).sum(), given, retain_graph=True)
    wanted = torch.autograd.grad((plain * direction).sum(), given, retain_graph=True)
    monkeypatch.delattr(emission, "_Scores")
    for actual, expected in zip(
        (*likely(log_probs), *other), (*likely(plain), *wanted), strict=True
    ):
        assert torch.allclose(actual, expected, rtol=1e-9, atol=1e-9 * expected.abs().max().item())


def test_words_far_apart_are_summed_in_logarithms() -> None:
    states, lexicons, weight, words = inputs(1, 60.0)
    _, low = emission._EmissionLogProbs.apply(states, weight, words, None, 0.0, *lexicons)
    assert low.any()


def test_lexicons_of_zeros_leave_the_plain_network() -> None:
    states, lexicons, weight, words = inputs(1, 1.0)
    table = emission_log_probs(states, [torch.zeros_like(lexicons[0])], weight, words)
    plain = look_up((states @ weight.mT).log_softmax(-1), words)
    assert torch.allclose(table, plain[..., None].expand_as(table), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("foreseen", [True, False])
@pytest.mark.parametrize("heads", [1, 2])
def test_scores_of_the_whole_batch_are_never_in_memory(
    heads: int, foreseen: bool, smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(monkeypatch, 300)
    states, lexicons, weight, words = inputs(heads, 1.0)
    zeros = torch.zeros(N, T, *[S] * heads)
    asked = EmissionRequest(zeros, torch.ones(N, T, dtype=torch.bool)) if foreseen else None
    with Largest(TYPES) as largest:
        table = emission_log_probs(states, lexicons, weight, words, asked, smoothing)
        forward, largest.size = largest.size, 0
        (table.flatten(2).logsumexp(-1) if foreseen else table).sum().backward()
    of_a_sentence = (T + heads * S) * TYPES
    assert forward == of_a_sentence
    assert largest.size == (weight.numel() if foreseen else of_a_sentence)


@pytest.mark.parametrize("heads", [1, 2])
def test_under_autocast_only_products_with_the_table_are_narrow(heads: int) -> None:
    given = inputs(heads, 1.0)
    states, *lexicons, weight = (
        value.detach().float() for value in (given[0], *given[1], given[2])
    )
    exact = emission_log_probs(states, lexicons, weight, given[3])
    for tensor in (states, weight, *lexicons):
        tensor.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        log_probs = emission_log_probs(states, lexicons, weight, given[3])
    assert log_probs.dtype == torch.float32
    assert (log_probs - exact).abs().max() < 0.05
    log_probs.sum().backward()
    assert all(value.grad is not None for value in (states, weight, *lexicons))
    narrow = [value.detach().bfloat16().float() for value in (states, weight, *lexicons)]
    probs = naive(narrow[0], narrow[2:], narrow[1])
    assert (log_probs - look_up(probs, given[3])).abs().max() < 0.03


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("asks", [False, True])
def test_gradients_under_autocast_are_as_good_as_its_type(asks: bool, heads: int) -> None:
    states, lexicons, weight, words = inputs(heads, 1.0)
    given = [tensor.float().requires_grad_() for tensor in (states, weight, *lexicons)]

    def gradients(tensor: Tensor, table: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad((tensor + table).flatten(2).logsumexp(-1).sum(), given)

    table = emission_log_probs(given[0], given[2:], given[1], words)
    distribution = torch.randn_like(table).flatten(2).log_softmax(-1).view_as(table)
    asked = (
        EmissionRequest(distribution, torch.ones(words.shape, dtype=torch.bool)) if asks else None
    )
    with torch.autocast("cpu", torch.bfloat16):
        rough = emission_log_probs(given[0], given[2:], given[1], words, asked)
    for actual, expected in zip(
        gradients(distribution, rough), gradients(distribution, table), strict=True
    ):
        assert (actual - expected).norm() < 0.02 * expected.norm()


def test_a_second_derivative_is_refused() -> None:
    states, lexicons, weight, words = inputs(1, 1.0)
    table = emission_log_probs(states, lexicons, weight, words)
    with pytest.raises(RuntimeError, match=r"^a network of heads has no second derivatives"):
        torch.autograd.grad(table.sum(), states, create_graph=True)
