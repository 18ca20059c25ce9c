"""Sums by slices of words against the same sums at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from latentheads.latents.alignments import slices
from latentheads.latents.alignments.slices import sum_by_words

SENTENCES, WORDS, KEYS = 3, 5, 7


def terms_of(tables: Sequence[Tensor]) -> Tensor:
    """Two terms of every word; the second takes no part of the last table."""
    pairs, scores, shared = tables
    log_evidence = (pairs + scores.unsqueeze(-1) + shared).flatten(2).logsumexp(-1)
    return torch.stack([log_evidence, (pairs * scores.unsqueeze(-1)).flatten(2).sum(-1)])


@pytest.mark.parametrize("numbers", [1, 2 * KEYS**2, 11 * KEYS**2, 10**6])
def test_sums_and_gradients_are_those_of_whole_tables(
    numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = [(SENTENCES, WORDS, KEYS, KEYS), (SENTENCES, WORDS, KEYS), (1, WORDS, 1, KEYS)]
    tables = [torch.randn(shape).requires_grad_() for shape in shapes]
    whole = terms_of(tables)
    weights = torch.randn_like(whole)
    monkeypatch.setitem(slices.SLICE, "cpu", numbers)
    terms = sum_by_words(terms_of, tables, (SENTENCES, WORDS), KEYS**2)
    torch.testing.assert_close(terms, whole)
    expected = torch.autograd.grad((whole * weights).sum(), tables)
    actual = torch.autograd.grad((terms * weights).sum(), tables)
    for gradient, expected_gradient in zip(actual, expected, strict=True):
        torch.testing.assert_close(gradient, expected_gradient)


def test_particles_share_a_table_of_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    own = torch.randn(2, SENTENCES, WORDS, KEYS, KEYS)
    shared = [torch.randn(1, SENTENCES, WORDS, KEYS), torch.randn(1, 1, WORDS, 1, KEYS)]
    scores = shared[0].expand(2, -1, -1, -1).flatten(0, 1)
    expected = terms_of([own.flatten(0, 1), scores, shared[1][0]])
    for numbers in (3 * KEYS**2, 10**6):
        monkeypatch.setitem(slices.SLICE, "cpu", numbers)
        terms = sum_by_words(terms_of, [own, *shared], (2, SENTENCES, WORDS), KEYS**2)
        torch.testing.assert_close(terms, expected.view(terms.shape))


def test_a_table_without_a_gradient_is_left_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(slices.SLICE, "cpu", KEYS**2)
    pairs = torch.randn(SENTENCES, WORDS, KEYS, KEYS)
    scores = torch.randn(SENTENCES, WORDS, KEYS).requires_grad_()
    shared = torch.randn(1, WORDS, 1, KEYS)
    sum_by_words(terms_of, [pairs, scores, shared], (SENTENCES, WORDS), KEYS**2).sum().backward()
    assert scores.grad is not None
    assert pairs.grad is None
