r"""The word that alignments explain: its law given a state and the positions pointed at.

The scores of a plain network are :math:`A_t = E h_t`, with the output table :math:`E`. A position
:math:`s` that is pointed at adds :math:`u_s` to the state, so :math:`B_s = E u_s` to the scores:

.. math:: p(y \mid t, s) = \exp(A_t[y] + B_s[y]) / Z(t, s).

All normalisers are one product of matrices, :math:`Z(t, s) = \sum_v e^{A_t[v]} e^{B_s[v]}`, in
place of a softmax for each pair. With two heads a pair of positions adds :math:`B_s + B_r`, and the
second factor is :math:`e^{B_s[v]} e^{B_r[v]}`, taken for few words at a time: all of a sentence's
would be read from memory, which is four times as slow.

Marginals over alignments: Deng et al. 2018, https://arxiv.org/abs/1807.03756, and Wu et al. 2018,
https://arxiv.org/abs/1808.10024. They take a softmax for each position, of any emission.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from latentheads.layers.numeric import exp_, forbid_second_derivative, full_precision, softmax
from latentheads.layers.output import (
    CHUNK,
    Gradients,
    Slices,
    cast_for_matmul,
    linear_log_prob,
)

__all__ = [
    "LARGEST",
    "SMALLEST",
    "EmissionRequest",
    "by_pairs",
    "mix_products",
    "rows_at",
    "sum_products",
    "sum_tops",
    "word_embeddings",
]

LARGEST = 2
"""Heads of one word that are summed out exactly: each further one multiplies the table's size."""

FEWEST = 64
"""Words at least whose pairs of rows are multiplied together: a product of fewer is slow."""

PAIRS = {"cpu": 2**20, "cuda": 2**27}
"""Products of pairs that are in memory at a time: on a CPU they stay in the cache of a core."""

NEGLIGIBLE = 1e-30
"""A probability of a position below this counts as 0 in a gradient."""

SMALLEST = 1e-30
"""A normaliser below this, in units of the largest scores, has lost digits."""


def word_embeddings(
    states: Float[Tensor, "sentence target dim"],
    lexicons: Sequence[Float[Tensor, "sentence key dim"]],
    weight: Float[Tensor, "vocab dim"],
    words: Int[Tensor, "sentence target"],
    asked: EmissionRequest | None = None,
    smoothing: float = 0.0,
) -> Float[Tensor, "sentence target *keys"]:
    r"""Log-probability of every word for each position that may be pointed at, float32 or wider.

    With smoothing :math:`\epsilon` it is the stand-in
    :math:`(1 - \epsilon) \log p(y \mid t, s) + \tfrac{\epsilon}{V} \sum_v \log p(v \mid t, s)`,
    no density.

    The scores of a few sentences are in memory at a time, and made again for the gradient; on a CPU
    the gradient that is likely to be asked for is made in the same pass as the table.

    Args:
        states: What predicts each word.
        lexicons: What every position adds to a state, for each head: one or two.
        weight: The output table.
        words: The words.
        asked: What the table is likely to be made for.
        smoothing: :math:`\epsilon`.
    """
    if not 1 <= len(lexicons) <= LARGEST:
        raise ValueError(f"1 to {LARGEST} heads can be summed out, got {len(lexicons)}")
    table, low = _WordTable.apply(states, weight, words, asked, smoothing, *lexicons)
    # a training step waits here for a GPU: to mend all entries costs more than the table itself
    return _mend_low(table, low, states, lexicons, weight, words, smoothing) if low.any() else table


@dataclass(frozen=True)
class EmissionRequest:
    """The likely use of a table, whose gradient then comes in the same pass.

    Attributes:
        log_law: Log-probability of every position, or pair of positions.
        valid: True at the words that are counted.
        summed: Whether the words' log-probabilities are asked for under this law, a prior, so that
            the gradient is the posterior; or else their mean under it, so that it is the law.
    """

    log_law: Float[Tensor, "sentence target *keys"]
    valid: Bool[Tensor, "sentence target"]
    summed: bool = True

    def gradient(
        self, some: slice, table: Float[Tensor, "few target *keys"]
    ) -> Float[Tensor, "few target *keys"]:
        """The gradient at the table of some sentences, up to a factor."""
        scores = self.log_law[some] + table if self.summed else self.log_law[some]
        # a denormal factor slows a product of matrices: a position as unlikely has no part
        law = F.threshold(softmax(scores.flatten(2)), NEGLIGIBLE, 0.0)
        return (law * self.valid[some, :, None]).view_as(table)


def _mend_low(
    table: Float[Tensor, "sentence target *keys"],
    low: Bool[Tensor, "sentence target *keys"],
    states: Tensor,
    lexicons: Sequence[Tensor],
    weight: Tensor,
    words: Tensor,
    smoothing: float,
) -> Float[Tensor, "sentence target *keys"]:
    """Computes some entries one by one, where state and position like words so far apart.

    There every product of two exponentials is too small for a float; a softmax of the sum is not.
    """
    places = low.nonzero(as_tuple=True)
    rows = rows_at(low, states, lexicons)
    mended = linear_log_prob(rows, weight, words[places[:2]], smoothing)
    return table.index_put(places, mended.to(table.dtype))


def rows_at(
    chosen: Bool[Tensor, "sentence target *keys"], states: Tensor, lexicons: Sequence[Tensor]
) -> Float[Tensor, "entry dim"]:
    """The states of some entries of a table, with what their positions add."""
    sentence, target, *keys = chosen.nonzero(as_tuple=True)
    rows = states[sentence, target]
    for lexicon, key in zip(lexicons, keys, strict=True):
        rows = rows + lexicon[sentence, key]
    return rows


class _WordTable(torch.autograd.Function):
    r"""Sums over the vocabulary by products of matrices; keeps the normalisers alone.

    With :math:`g = \partial / \partial \log p(y_t \mid t, s)` the gradient at a score is
    :math:`\sum_s g_{ts} ([v = y_t] - e^{A_t[v]} e^{B_s[v]} / Z_{ts})`, for :math:`B_s[v]` the same
    with the sum over :math:`t`. Where :math:`g` is found to be the likely one, but for a factor,
    the second part is there already. With smoothing the first is
    :math:`(1 - \epsilon) [v = y_t] + \epsilon / V`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        words: Tensor,
        asked: EmissionRequest | None,
        smoothing: float,
        *lexicons: Tensor,
    ) -> tuple[Tensor, Tensor]:
        x, w = cast_for_matmul(states, weight)
        if x.device.type != "cpu" or not any(ctx.needs_input_grad):
            asked = None
        # products with the table in autocast's type, sums of exponentials in float32 or wider
        with torch.autocast(x.device.type, enabled=False):
            scores = _Scores([x, *lexicons], w, words, smoothing)
            sums = Gradients(scores.slices) if asked else None
            tables, scales, lows, grads = [], [], [], []
            for rows, narrow in scores.slices:
                for some, here in scores.exponentials(rows, narrow, put_back=asked is not None):
                    scaled = sum_products(*here.values, buffers=scores.buffers)
                    lows.append(scaled < SMALLEST)
                    scales.append(scaled.clamp_min_(SMALLEST).reciprocal())
                    tables.append(here.said - here.tops - scaled.log())
                    if asked:
                        grads.append(asked.gradient(some, tables[-1]))
                        here.weigh(grads[-1] * scales[-1])
                if sums:
                    sums.subtract_mean(rows, narrow)
        made = [torch.cat(grads), sums.states, sums.table] if sums else []
        ctx.save_for_backward(states, weight, words, torch.cat(scales), *made, *lexicons)
        ctx.kind, ctx.made, ctx.smoothing = w.dtype, len(made), smoothing
        low = torch.cat(lows)
        ctx.mark_non_differentiable(low)
        return torch.cat(tables), low

    @staticmethod
    @forbid_second_derivative
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, words, scales, *rest = ctx.saved_tensors
        made, lexicons = rest[: ctx.made], rest[ctx.made :]
        given = [states, *lexicons]
        factor = _factor_between(grad, made[0]) if made else None
        if factor is not None:
            rows, table = made[1] * factor, made[2] * factor
        else:
            scores = _Scores([each.to(ctx.kind) for each in given], weight.to(ctx.kind), words)
            sums = Gradients(scores.slices)
            for some_rows, narrow in scores.slices:
                for some, here in scores.exponentials(some_rows, narrow, put_back=True):
                    here.weigh(grad[some] * scales[some])
                sums.subtract_mean(some_rows, narrow)
            rows, table = sums.states, sums.table
        wanted = _by_sentence(rows, [each.shape[1] for each in given])
        _add_words(wanted, table, grad, words, weight, given, ctx.smoothing)
        own = [each.to(like.dtype) for each, like in zip(wanted, given, strict=True)]
        return own[0], table.to(weight.dtype), None, None, None, *own[1:]


def _factor_between(grad: Tensor, made: Tensor) -> Tensor | None:
    """The number that one gradient is times the other, up to rounding; None if there is none."""
    factor = grad.sum() / made.sum()
    slack = 256 * torch.finfo(grad.dtype).eps * factor.abs()
    return factor if ((grad - factor * made).abs() <= slack).all() else None


def _by_sentence(
    rows: Float[Tensor, "row dim"], counts: Sequence[int]
) -> list[Float[Tensor, "sentence r dim"]]:
    """Rows of one matrix as states and as positions of each head again."""
    return list(rows.unflatten(0, (-1, sum(counts))).split(list(counts), 1))


@dataclass(frozen=True)
class _Exponentials:
    """Exponentials of the scores of a few sentences, in units of the largest of each row.

    Attributes:
        values: Those of the states, then those of each head's positions.
        tops: The largest score of a state plus those of its positions.
        said: The score that a state gives the word, plus those that its positions give it.
        masses: The values in the type that a gradient of them is made in.
        parts: Where that gradient is written; it may be where the masses are.
        buffers: Memory for products.
    """

    values: Sequence[Float[Tensor, "sentence row vocab"]]
    tops: Float[Tensor, "sentence target *keys"]
    said: Float[Tensor, "sentence target *keys"]
    masses: Sequence[Float[Tensor, "sentence row vocab"]]
    parts: Sequence[Float[Tensor, "sentence row vocab"]]
    buffers: Buffers

    def weigh(self, share: Float[Tensor, "sentence target *keys"]) -> None:
        """Writes the part of the gradient that the normalisers have, at each score.

        Args:
            share: The gradient at every entry of the table, divided by its normaliser.
        """
        share = share.to(self.masses[0].dtype)
        state, *sides = self.masses
        if len(sides) == 1:
            to_state = self.buffers.matmul("state", share, sides[0])
            to_side = self.buffers.matmul("side", share.mT, state)
            torch.mul(state, to_state, out=self.parts[0])
            torch.mul(sides[0], to_side, out=self.parts[1])
            return
        share = share.flatten(2)
        for few, pairs in _pairs(sides[0], sides[1], self.buffers):
            mass = state[..., few]
            # how much each pair of positions has of each word: its sums over either position
            # are the other's part
            reached = self.buffers.matmul("reached", share.mT, mass).mul_(pairs)
            torch.mul(mass, self.buffers.matmul("state", share, pairs), out=self.parts[0][..., few])
            reached = reached.unflatten(1, (sides[0].shape[1], sides[1].shape[1]))
            torch.sum(reached, 2, out=self.parts[1][..., few])
            torch.sum(reached, 1, out=self.parts[2][..., few])


class Buffers:
    """Memory for products of matrices: a CPU takes longer to find new memory than to multiply."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], Tensor] = {}

    def get(self, name: str, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A tensor of a shape, whose content is that of its last use."""
        key = name, like.dtype, shape
        if key not in self._kept:
            self._kept[key] = like.new_empty(shape)
        return self._kept[key]

    def matmul(
        self, name: str, x: Float[Tensor, "batch row k"], y: Float[Tensor, "batch k column"]
    ) -> Float[Tensor, "batch row column"]:
        """The product of two batches of matrices, which holds until the next of this name."""
        return torch.bmm(x, y, out=self.get(name, x, (*x.shape[:2], y.shape[2])))


class _Scores:
    """The scores of states and positions, a few sentences at a time.

    Both are rows of one matrix, so that one product has the scores of both.

    Args:
        sides: The states, then what each head's positions add.
        weight: The output table.
        words: The words.
        smoothing: How much of a word's score is the mean of all scores.
    """

    def __init__(
        self,
        sides: Sequence[Float[Tensor, "sentence row dim"]],
        weight: Float[Tensor, "vocab dim"],
        words: Int[Tensor, "sentence target"],
        smoothing: float = 0.0,
    ) -> None:
        self.words, self._counts = words, [each.shape[1] for each in sides]
        self.buffers = Buffers()
        rows = torch.cat([each.to(weight.dtype) for each in sides], 1)
        self._smoothing = smoothing
        self._means = full_precision(rows) @ full_precision(weight).mean(0) if smoothing else None
        # what is done to a few sentences is many small operations: larger strips are fewer of them
        self.slices = Slices(rows.flatten(0, 1), weight, sum(self._counts), CHUNK)

    def exponentials(
        self, rows: slice, narrow: Float[Tensor, "row vocab"], put_back: bool = False
    ) -> Iterator[tuple[slice, _Exponentials]]:
        """Exponentials of a slice, a strip at a time, and which sentences they are of.

        Args:
            rows: Where the slice stands.
            narrow: Its scores.
            put_back: Whether the masses, as the caller has changed them, stand in their place.
        """
        unit = sum(self._counts)
        # a gradient's products are of autocast's type, if that has the range of an exponential
        rough = put_back and narrow.dtype == torch.bfloat16
        for strip, scores in self.slices.upcast(rows, narrow, put_back and not rough):
            some = slice(strip.start // unit, strip.stop // unit)
            values = scores.unflatten(0, (-1, unit))
            words = self.words[some, None].expand(-1, unit, -1)
            of_words = values.gather(-1, words)
            if self._means is not None:
                of_words = of_words.lerp(
                    self._means[some, :, None].expand_as(of_words), self._smoothing
                )
            own, *said = of_words.split(self._counts, 1)
            tops = values.amax(-1)
            exp_(values.sub_(tops[..., None]))
            masses = parts = values.split(self._counts, 1)
            if rough:
                place = slice(strip.start - rows.start, strip.stop - rows.start)
                parts = narrow[place].view_as(values).split(self._counts, 1)
                # next to each other, as products of half precision want them
                masses = [
                    self.buffers.get(f"mass {side}", narrow, tuple(part.shape)).copy_(part)
                    for side, part in enumerate(masses)
                ]
            top, *above = tops.split(self._counts, 1)
            # a position's score of a word stands at (position, word): turned round for the table
            yield (
                some,
                _Exponentials(
                    values.split(self._counts, 1),
                    sum_tops(top, above),
                    by_pairs(own.diagonal(dim1=1, dim2=2), [each.mT for each in said]),
                    masses,
                    parts,
                    self.buffers,
                ),
            )


def sum_products(
    state: Float[Tensor, "sentence target vocab"],
    *sides: Float[Tensor, "sentence key vocab"],
    buffers: Buffers | None = None,
) -> Float[Tensor, "sentence target *keys"]:
    """The sum over the vocabulary of a state's mass times that of each position."""
    if len(sides) == 1:
        return state @ sides[0].mT
    found = state.new_zeros(len(state), state.shape[1], sides[0].shape[1] * sides[1].shape[1])
    for few, pairs in _pairs(sides[0], sides[1], buffers):
        found.baddbmm_(state[..., few], pairs.mT)
    return found.unflatten(2, (sides[0].shape[1], sides[1].shape[1]))


def mix_products(
    shares: Float[Tensor, "sentence row *keys"], *sides: Float[Tensor, "sentence _ vocab"]
) -> Float[Tensor, "sentence row vocab"]:
    """The masses of all positions, or products of those of a pair, each times its share."""
    if len(sides) == 1:
        return shares @ sides[0]
    found = sides[0].new_empty(*shares.shape[:2], sides[0].shape[2])
    for few, pairs in _pairs(sides[0], sides[1]):
        found[..., few] = shares.flatten(2) @ pairs
    return found


def _pairs(
    first: Float[Tensor, "sentence key vocab"],
    last: Float[Tensor, "sentence key vocab"],
    buffers: Buffers | None = None,
) -> Iterator[tuple[slice, Float[Tensor, "sentence pair few"]]]:
    """The products of the masses of all pairs of positions, for few words at a time."""
    rows = len(first) * first.shape[1] * last.shape[1]
    number = max(FEWEST, PAIRS.get(first.device.type, PAIRS["cuda"]) // max(1, rows))
    for start in range(0, first.shape[2], number):
        few = slice(start, start + number)
        one, other = first[:, :, None, few], last[:, None, :, few]
        shape = len(first), first.shape[1], last.shape[1], one.shape[-1]
        room = None if buffers is None else buffers.get("pairs", first, shape)
        yield few, torch.mul(one, other, out=room).flatten(1, 2)


def sum_tops(
    state: Float[Tensor, "sentence target"], sides: Sequence[Float[Tensor, "sentence key"]]
) -> Float[Tensor, "sentence target *keys"]:
    """Sums of a number of a state and one of each position."""
    return by_pairs(state, [side[:, None] for side in sides])


def by_pairs(
    state: Float[Tensor, "sentence target"], sides: Sequence[Float[Tensor, "sentence *target key"]]
) -> Float[Tensor, "sentence target *keys"]:
    """Sums of a number of a state and one of each position, which may depend on the state."""
    found = state[..., None] + sides[0]
    return found if len(sides) == 1 else found[..., None] + sides[1][..., None, :]


def _add_words(
    wanted: Sequence[Tensor],
    to_weight: Tensor,
    grad: Float[Tensor, "sentence target *keys"],
    words: Int[Tensor, "sentence target"],
    weight: Tensor,
    given: Sequence[Tensor],
    smoothing: float,
) -> None:
    """Adds the part of the gradient that the words themselves have."""
    wide = to_weight.dtype
    table = full_precision(weight)[words]
    if smoothing:
        table = table.lerp(full_precision(weight).mean(0).expand_as(table), smoothing)
    own = grad.flatten(2).sum(-1)
    shares = [grad] if grad.ndim == 3 else [grad.sum(3), grad.sum(2)]
    rows = full_precision(given[0]) * own[..., None]
    wanted[0].add_(table * own[..., None])
    for target, share, lexicon in zip(wanted[1:], shares, given[1:], strict=True):
        target.add_(share.mT.to(wide) @ table)
        rows = rows + share.to(wide) @ full_precision(lexicon)
    rows = rows.flatten(0, 1).to(wide)
    if smoothing:
        to_weight.add_(rows.sum(0) * (smoothing / len(weight)))
    to_weight.index_add_(0, words.flatten(), rows, alpha=1 - smoothing)
