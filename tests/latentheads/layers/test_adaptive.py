"""Adaptive embeddings and softmax: exact, equal to a full softmax made of the same weights."""

from __future__ import annotations

import pytest
import torch
from torch.nn.utils import prune

from latentheads.batch import PAD
from latentheads.layers.adaptive import AdaptiveOutput, AdaptiveTable

TYPES, WIDTH, CUTOFFS = 23, 16, (7, 12)


def layer(rate: float = 0.0) -> AdaptiveOutput:
    return AdaptiveOutput(AdaptiveTable(TYPES, WIDTH, CUTOFFS, 2), rate)


def test_every_type_is_embedded_by_its_band() -> None:
    table = layer().table
    tokens = torch.arange(TYPES)[None]
    embedded = table(tokens)
    for token in range(TYPES):
        band = sum(token >= cut for cut in CUTOFFS)
        row = table.bands[band].weight[token - table.ends[band]]
        assert torch.allclose(embedded[0, token], table.projections[band].weight @ row)
    assert [band.weight.shape[1] for band in table.bands] == [16, 8, 4]
    assert (embedded[0, PAD] == 0).all()


def test_all_types_together_have_probability_one() -> None:
    output = layer()
    assert torch.allclose(output(torch.randn(3, WIDTH)).exp().sum(-1), torch.ones(3))


def test_the_likelihood_is_that_of_the_full_softmax() -> None:
    output = layer()
    states = torch.randn(5, 11, WIDTH, requires_grad=True)
    tokens = torch.randint(TYPES, (5, 11))
    weight = torch.randn(5, 11)
    full = output(states).gather(-1, tokens[..., None]).squeeze(-1)
    log_probability = output.log_prob(states, tokens)
    assert torch.allclose(log_probability, full, atol=1e-12)
    unread = output.table.projection(0)
    wanted = [states, *(p for p in output.parameters() if p is not unread)]
    ours = torch.autograd.grad((log_probability * weight).sum(), wanted)
    theirs = torch.autograd.grad((full * weight).sum(), wanted)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("uniform", [True, False])
def test_a_mixture_with_a_constant_is_the_plain_formula(uniform: bool) -> None:
    output = layer()
    states = torch.randn(5, 11, WIDTH, requires_grad=True)
    tokens = torch.randint(TYPES, (5, 11))
    weight = torch.ones(5, 11) if uniform else torch.randn(5, 11)
    log_constant = torch.randn(5, 11, requires_grad=True)
    full = output(states).gather(-1, tokens[..., None]).squeeze(-1)
    expected = torch.logaddexp(full, log_constant)
    mixture, log_probs = output.log_mixture(states, tokens, log_constant)
    torch.testing.assert_close(mixture, expected)
    torch.testing.assert_close(log_probs, full)
    unread = output.table.projection(0)
    inputs = [states, log_constant, *(p for p in output.parameters() if p is not unread)]
    ours = torch.autograd.grad((mixture * weight).sum(), inputs)
    theirs = torch.autograd.grad((expected * weight).sum(), inputs)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


def test_a_word_has_a_row_that_its_score_is_the_product_with() -> None:
    output = layer()
    state, words = torch.randn(WIDTH), torch.arange(TYPES)
    assert output.width == WIDTH
    scores = output.rows_of(words[None])[0] @ state
    head = output.head @ state
    for word in range(TYPES):
        band = sum(word >= cut for cut in CUTOFFS)
        if not band:
            assert torch.allclose(scores[word], head[word])
            continue
        own = output.table.rows(band)[word - output.table.ends[band]]
        within = own @ (output.table.projection(band).T @ state)
        assert torch.allclose(scores[word], head[CUTOFFS[0] + band - 1] + within)


@pytest.mark.parametrize("tokens", [[1, 2, 3], [20, 21, 22]])
def test_bands_that_do_not_occur_cost_nothing(tokens: list[int]) -> None:
    output = layer()
    states, y = torch.randn(3, WIDTH), torch.tensor(tokens)
    full = output(states).gather(-1, y[:, None]).squeeze(-1)
    assert torch.allclose(output.log_prob(states, y), full)


def test_dropout_acts_on_the_further_bands_while_training() -> None:
    output = layer(0.5)
    states = torch.randn(400, WIDTH)
    frequent, rare = torch.full((400,), 3), torch.full((400,), 20)
    exact = output.eval().log_prob(states, frequent), output.log_prob(states, rare)
    output.train()
    assert torch.allclose(output.log_prob(states, frequent), exact[0])
    assert not torch.allclose(output.log_prob(states, rare), exact[1])


def test_without_a_cut_it_is_a_plain_softmax() -> None:
    output = AdaptiveOutput(AdaptiveTable(TYPES, WIDTH, ()))
    states, y = torch.randn(3, WIDTH), torch.tensor([4, 9, 22])
    plain = (states @ output.table.bands[0].weight.T).log_softmax(-1)
    assert torch.allclose(output(states), plain)
    assert torch.allclose(output.log_prob(states, y), plain.gather(-1, y[:, None]).squeeze(-1))


def test_smoothing_and_wrong_bands_are_refused() -> None:
    output = layer()
    with pytest.raises(ValueError, match="label_smoothing needs a full softmax"):
        output.log_prob(torch.randn(1, WIDTH), torch.tensor([1]), 0.1)
    with pytest.raises(ValueError, match="cutoffs must rise between 0 and the vocabulary size 23"):
        AdaptiveTable(TYPES, WIDTH, (12, 7))
    with pytest.raises(ValueError, match="cutoffs must rise"):
        AdaptiveTable(TYPES, WIDTH, (7, 23))
    with pytest.raises(ValueError, match="div_value must be at least 1"):
        AdaptiveTable(TYPES, 3, CUTOFFS, 2)


def test_what_is_held_keeps_its_weights() -> None:
    output = layer()
    states, tokens = torch.randn(5, WIDTH), torch.arange(5) * 4
    expected, held = output.log_prob(states, tokens), output.with_current_weights()
    assert all(
        one is other for one, other in zip(held.parameters(), output.parameters(), strict=True)
    )
    for name, item in list(output.named_parameters()):
        module = output.get_submodule(name.rpartition(".")[0])
        module.weight = torch.nn.Parameter(torch.zeros_like(item))
    assert torch.equal(held.log_prob(states, tokens), expected)
    assert not torch.equal(output.log_prob(states, tokens), expected)


def test_what_is_held_of_pruned_bands_is_pruned_and_trains_them() -> None:
    output = layer()
    states, tokens = torch.randn(11, WIDTH), torch.randint(TYPES, (11,))
    for band in output.table.bands:
        prune.l1_unstructured(band, "weight", 0.5)
    held = output.with_current_weights().log_prob(states, tokens)
    assert torch.equal(held, output.log_prob(states, tokens))
    held.sum().backward()
    assert all((band.weight_orig.grad != 0).any() for band in output.table.bands)
