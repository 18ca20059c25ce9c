"""Alignments under an adaptive softmax, against a softmax for each sum of state and position."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from latentheads.latents.alignments import emission
from latentheads.latents.alignments.bands import (
    BandedNextTokenDistribution,
    compute_emission_log_probs,
    make_next_token_distribution,
)
from latentheads.latents.alignments.emission import EmissionRequest
from latentheads.latents.alignments.next_token import NextTokenDistribution
from latentheads.layers.adaptive import AdaptiveOutput, AdaptiveTable
from latentheads.layers.linear_output import MatrixOutput
from latentheads.layers.output import RowOutput
from tests.latentheads.latents.alignments.tables import N, S, T, look_up

TYPES, WIDTH, CUTOFFS = 17, 8, (5, 11)
WORDS = {"of all bands": (0, TYPES), "of the first band": (0, 5), "of the last": (11, TYPES)}
every_number = pytest.mark.parametrize("heads", [1, 2])
every_size = pytest.mark.parametrize("size", [1.0, 40.0])


def made(
    heads: int, size: float = 1.0, low: int = 0, high: int = TYPES
) -> tuple[AdaptiveOutput, Tensor, list[Tensor], Tensor]:
    """An output layer, states, what positions add to them, and words."""
    torch.manual_seed(heads)
    output = AdaptiveOutput(AdaptiveTable(TYPES, WIDTH, CUTOFFS, 2)).double()
    states = size * torch.randn(N, T, WIDTH, dtype=torch.float64)
    lexicons = [size * torch.randn(N, S, WIDTH, dtype=torch.float64) for _ in range(heads)]
    for tensor in (states, *lexicons):
        tensor.requires_grad_()
    return output, states, lexicons, torch.randint(low, high, (N, T))


def log_probs_of_sums(output: AdaptiveOutput, states: Tensor, lexicons: list[Tensor]) -> Tensor:
    """Log-probability of all types for every position, or pair of them."""
    rows = states[:, :, None] + lexicons[0][:, None]
    if len(lexicons) == 2:
        rows = rows[..., None, :] + lexicons[1][:, None, None]
    tensor: Tensor = output(rows)
    return tensor


@every_number
@every_size
@pytest.mark.parametrize("words", WORDS)
def test_table_and_gradients_are_those_of_every_sum(words: str, size: float, heads: int) -> None:
    output, states, lexicons, y = made(heads, size, *WORDS[words])
    emission_log_probs, plain = (
        compute_emission_log_probs(output, states, lexicons, y),
        log_probs_of_sums(output, states, lexicons),
    )
    plain = look_up(plain, y)
    assert torch.allclose(emission_log_probs, plain, rtol=1e-11, atol=1e-11)
    direction = torch.randn_like(plain)
    given = [states, *lexicons, *output.parameters()]
    actual, expected = (
        torch.autograd.grad((item * direction).sum(), given, allow_unused=True)
        for item in (emission_log_probs, plain)
    )
    for one, other in zip(actual, expected, strict=True):
        wanted = torch.zeros_like(one) if other is None and one is not None else other
        if one is not None:
            assert torch.allclose(one, wanted, rtol=1e-9, atol=1e-9 * wanted.abs().max().item())
        else:
            assert wanted is None or not wanted.any()


@every_number
@pytest.mark.parametrize("summed", [True, False])
def test_the_likely_gradient_is_that_of_the_whole_word(
    summed: bool, heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, states, lexicons, y = made(heads)
    plain = look_up(log_probs_of_sums(output, states, lexicons), y)
    distribution = torch.randn_like(plain).flatten(2).log_softmax(-1).view_as(plain).detach()
    asked = EmissionRequest(distribution, torch.ones(N, T, dtype=torch.bool), summed)
    given = [states, *lexicons, output.table.rows(0), output.table.rows(2)]

    def likely(table: Tensor) -> tuple[Tensor, ...]:
        total = (
            (distribution + table).flatten(2).logsumexp(-1)
            if summed
            else distribution.exp() * table
        )
        return torch.autograd.grad(0.3 * total.sum(), given)

    table = compute_emission_log_probs(output, states, lexicons, y, asked)
    again = []

    def count(*given: Any) -> Any:
        again.append(len(given[1]))
        return scores(*given)

    scores = emission._Scores
    monkeypatch.setattr(emission, "_Scores", count)
    for actual, expected in zip(likely(table), likely(plain), strict=True):
        assert torch.allclose(actual, expected, rtol=1e-9, atol=1e-9 * expected.abs().max().item())
    # of a posterior only the scores of the first softmax are made again
    assert again == ([len(output.head)] if summed else [])


@every_number
def test_padding_that_fills_up_a_band_has_no_gradient_of_its_own(heads: int) -> None:
    output, states, lexicons, y = made(heads)
    y[:, 0], y[1:, 1:] = 12, 2  # the last band: a word of every sentence, more of the first
    table = compute_emission_log_probs(output, states, lexicons, y)
    (gradient,) = torch.autograd.grad(table[1:, 1:].sum(), output.table.rows(2))
    assert not gradient.any()


def test_what_is_dropped_of_a_band_is_dropped_of_the_sum() -> None:
    """A position that takes the state away leaves the softmax of zeros, whatever drops."""
    output, states, _, y = made(1, low=11)
    output.dropout_rate = 0.5
    away = compute_emission_log_probs(output.train(), states, [-states.detach()], y)
    wanted = output.log_prob(torch.zeros_like(states), y)
    assert torch.allclose(away.diagonal(dim1=1, dim2=2), wanted, rtol=1e-12)
    once, again = (
        compute_emission_log_probs(output, states, [states.detach()], y) for _ in range(2)
    )
    assert not torch.allclose(once, again)


def test_states_in_double_are_summed_under_autocast() -> None:
    output, states, lexicons, y = made(2)
    with torch.autocast("cpu", torch.bfloat16):
        emission_log_probs = compute_emission_log_probs(output, states, lexicons, y)
    assert emission_log_probs.dtype == torch.float32
    assert torch.allclose(
        emission_log_probs,
        compute_emission_log_probs(output, states, lexicons, y).float(),
        atol=0.1,
    )


def test_another_output_layer_is_refused() -> None:
    class Other(RowOutput):
        width = WIDTH

        def rows_of(self, words: Tensor) -> Tensor:
            return words

        def forward(self, states: Tensor) -> Tensor:
            return states

        def log_prob(self, states: Tensor, *_: Any, **__: Any) -> Tensor:
            return states[..., 0]

    _, states, lexicons, y = made(1)
    for made_of in (
        lambda: compute_emission_log_probs(Other(), states, lexicons, y),
        lambda: make_next_token_distribution(Other(), lexicons),
    ):
        with pytest.raises(TypeError, match=r"not under Other$"):
            made_of()


@every_number
@every_size
def test_next_words_entropies_and_means_are_those_of_every_sum(size: float, heads: int) -> None:
    output, states, lexicons, y = made(heads, size)
    with torch.no_grad():
        distribution, token_distribution = (
            log_probs_of_sums(output, states, lexicons),
            make_next_token_distribution(output, lexicons),
        )
        prior = torch.randn(distribution.shape[:-1]).double()
        prior = prior.flatten(2).log_softmax(-1).view_as(prior)
        mixed = (distribution + prior[..., None]).flatten(2, -2).logsumexp(2)
        assert torch.allclose(
            token_distribution.log_probs(states, prior), mixed, rtol=1e-9, atol=1e-9
        )
        assert torch.allclose(
            token_distribution.word_log_probs(states, y), look_up(distribution, y), atol=1e-9
        )
        entropies = -torch.xlogy(distribution.exp(), distribution.exp()).sum(-1)
        assert torch.allclose(token_distribution.word_entropies(states), entropies, atol=1e-9)
        other = torch.randn(N, T, TYPES).double().softmax(-1)
        means = torch.einsum("ntv,nt...v->nt...", other, distribution)
        assert torch.allclose(token_distribution.mean_log_probs(states, other), means, atol=1e-9)
        sure = torch.nn.functional.one_hot(y, TYPES).double()  # some bands have nothing of it
        assert torch.allclose(
            token_distribution.mean_log_probs(states, sure), look_up(distribution, y), atol=1e-9
        )


@every_number
@torch.no_grad()
def test_positions_come_go_and_change_places(heads: int) -> None:
    output, states, lexicons, _ = made(heads)
    grown = BandedNextTokenDistribution([lexicon[:, :2] for lexicon in lexicons], output)
    grown.extend([lexicon[:, 2:] for lexicon in lexicons])
    kept, order = torch.tensor([0, 2, 6]), torch.tensor([2, 0, 0])
    grown.keep_positions(kept)
    grown.select(order)
    own = BandedNextTokenDistribution([lexicon[order][:, kept] for lexicon in lexicons], output)
    prior = torch.randn(N, T, *[3] * heads).double()
    log_probs, wanted = (item.log_probs(states[order], prior) for item in (grown, own))
    assert torch.allclose(log_probs, wanted, atol=1e-12)


def test_one_softmax_keeps_its_dictionary() -> None:
    _, _, lexicons, _ = made(1)
    assert isinstance(
        make_next_token_distribution(MatrixOutput(torch.randn(TYPES, WIDTH).double()), lexicons),
        NextTokenDistribution,
    )
