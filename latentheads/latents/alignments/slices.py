"""Sums over tables of positions, a few words at a time: the tables themselves are not kept.

A table has a number for each word and for each position, or pair of positions. What is computed
from tables for each word alone is computed slice by slice, and again for the gradient, so that in
memory are the tables that go in, and their gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.layers.numeric import forbid_second_derivative, without_autocast

SLICE = {"cpu": 2**18, "cuda": 2**25}
"""Numbers of a table in memory at a time, by device: on a CPU they fit into a core's cache."""

Compute = Callable[[Sequence[Tensor]], Tensor]
"""Computes terms from tables, ``term sentence target``."""


def sum_by_words(
    compute: Compute, tables: Sequence[Tensor], shape: Sequence[int], cells: int
) -> Float[Tensor, term * words]:
    """Terms of every word, computed for a few words at a time.

    Args:
        compute: Computes the terms of some words: it is given the tables' rows for them.
        tables: Tensors whose first dimensions are those of the words, or 1.
        shape: The dimensions of the words: of sentences, and last of targets.
        cells: Numbers of the largest table for a word.
    """
    flat = [_flatten(table, shape) for table in tables]
    if math.prod(shape) * cells <= _limit(flat[0]):
        terms = compute(flat)
    else:
        terms = _SumByWords.apply(compute, shape, cells, *flat)
    return terms.view(len(terms), *shape)


def _flatten(table: Tensor, shape: Sequence[int]) -> Float[Tensor, "sentence target ..."]:
    """Flattens the dimensions of sentences; those that share a table have it once."""
    words = len(shape)
    batch, rest = table.shape[: words - 1], table.shape[words - 1 :]
    if math.prod(batch) == 1:
        return table.reshape(1, *rest)
    return table.expand(*shape[:-1], *rest).flatten(0, words - 2)


def _limit(table: Tensor) -> int:
    """The most numbers of a slice."""
    return SLICE.get(table.device.type, SLICE["cuda"])


def _slices(shape: Sequence[int], cells: int, limit: int) -> Iterator[tuple[slice, slice]]:
    """Cuts long sentences into runs of words, and groups short ones."""
    sentences, words = math.prod(shape[:-1]), shape[-1]
    run = max(1, limit // cells)
    group = max(1, run // max(1, words))
    for first in range(0, sentences, group):
        for start in range(0, words, run):
            yield slice(first, first + group), slice(start, start + run)


def _take(table: Tensor, at: tuple[slice, slice]) -> Tensor:
    """The rows of a slice; what all sentences or all words share is whole."""
    rows = (part if size > 1 else slice(None) for part, size in zip(at, table.shape))
    return table[tuple(rows)]


class _SumByWords(torch.autograd.Function):
    """Saves the tables alone."""

    @staticmethod
    def forward(
        ctx: Any, compute: Compute, shape: Sequence[int], cells: int, *tables: Tensor
    ) -> Tensor:
        ctx.save_for_backward(*tables)
        ctx.compute, ctx.slices = compute, [*_slices(shape, cells, _limit(tables[0]))]
        terms: Tensor | None = None
        for at in ctx.slices:
            of_slice = compute([_take(table, at) for table in tables])
            if terms is None:
                size = len(of_slice), math.prod(shape[:-1]), shape[-1]
                terms = of_slice.new_empty(size)
            terms[:, at[0], at[1]] = of_slice
        assert terms is not None
        return terms

    @staticmethod
    @forbid_second_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tables, needed = ctx.saved_tensors, ctx.needs_input_grad[3:]
        grads = [torch.zeros_like(t) if need else None for t, need in zip(tables, needed)]
        for at in ctx.slices:
            rows = [_take(t, at).detach().requires_grad_(n) for t, n in zip(tables, needed)]
            with torch.enable_grad(), without_autocast(grad.device):
                terms = ctx.compute(rows)
            inputs = [row for row in rows if row.requires_grad]
            row_grads = torch.autograd.grad(terms, inputs, grad[:, at[0], at[1]], allow_unused=True)
            sums = [_take(g, at) for g in grads if g is not None]
            for total, of_slice in zip(sums, row_grads, strict=True):
                if of_slice is not None:
                    total += of_slice
        return None, None, None, *grads
