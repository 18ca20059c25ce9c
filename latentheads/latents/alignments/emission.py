r"""Emission log-probabilities: a target token given a decoder state and the aligned positions.

A network without alignments has the scores :math:`A_t = E h_t`, with the output matrix :math:`E`. A
position :math:`s` that a head points at adds :math:`u_s` to the state, so :math:`B_s = E u_s` to
the scores:

.. math:: p(y \mid t, s) = \exp(A_t[y] + B_s[y]) / Z(t, s).

All normalisers are one matrix product, :math:`Z(t, s) = \sum_v e^{A_t[v]} e^{B_s[v]}`, instead of
one softmax for each pair. With two heads a pair of positions adds :math:`B_s + B_r`, and the second
factor is :math:`e^{B_s[v]} e^{B_r[v]}`. It is computed for a few vocabulary entries at a time, so
that it stays in the cache: reading it from main memory is four times as slow.

Marginals over alignments: Deng et al. 2018, https://arxiv.org/abs/1807.03756, and Wu et al. 2018,
https://arxiv.org/abs/1808.10024. They compute a softmax for each position, for any emission.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from latentheads.guards import any_true
from latentheads.layers.linear_log_prob import (
    CHUNK,
    Gradients,
    Slices,
    cast_for_matmul,
    factor_between,
    linear_log_prob,
)
from latentheads.layers.numeric import exp_, forbid_second_derivative, full_precision, softmax

MAX_HEADS = 2
"""Most heads that are summed out exactly: each further head multiplies the table's size."""

MIN_TOKENS = 64
"""Fewest vocabulary entries in one product over pairs of positions: smaller products are slow."""

PAIR_BUFFER_SIZE = {"cpu": 2**20, "cuda": 2**27}
"""Entries of the buffer for products over pairs of positions: on a CPU it fits a core's cache."""

MIN_PROBABILITY = 1e-30
"""Probabilities of positions below this count as 0 in a gradient."""

MIN_NORMALISER = 1e-30
"""Normalisers below this, relative to the largest scores, are imprecise."""


def emission_log_probs(
    states: Float[Tensor, "sentence target dim"],
    vectors: Sequence[Float[Tensor, "sentence key dim"]],
    weight: Float[Tensor, "vocab dim"],
    tokens: Int[Tensor, "sentence target"],
    request: EmissionRequest | None = None,
    smoothing: float = 0.0,
) -> Float[Tensor, "sentence target *keys"]:
    r"""Compute the log-probability of every target token for each position, in float32 or wider.

    With label smoothing :math:`\epsilon` the value is
    :math:`(1 - \epsilon) \log p(y \mid t, s) + \tfrac{\epsilon}{V} \sum_v \log p(v \mid t, s)`,
    which is not a density.

    Only the scores of a few sentences are in memory at a time. They are recomputed for the
    gradient. On a CPU the most likely gradient is computed in the forward pass.

    Args:
        states: The decoder states that predict the tokens.
        vectors: The vector that each position adds to a state, for each of one or two heads.
        weight: The output matrix.
        tokens: The target tokens.
        request: How the result is likely to be used.
        smoothing: :math:`\epsilon`.
    """
    inputs = states, weight, tokens, request, smoothing, *vectors
    log_probs, underflows = _EmissionLogProbs.apply(*inputs)
    # this waits for a GPU, which is cheaper than recomputing all entries
    if not any_true(underflows):
        return log_probs
    return _recompute_underflows(log_probs, underflows, states, vectors, weight, tokens, smoothing)


@dataclass(frozen=True)
class EmissionRequest:
    """The likely use of emission log-probabilities: their gradient is computed in the same pass.

    Attributes:
        log_probs: Log-probability of every position, or pair of positions.
        valid: True at real tokens.
        marginal: Whether the loss is the marginal log-likelihood under these log-probabilities, a
            prior; its gradient is then the posterior. False: the loss is the expected
            log-likelihood under them, and the gradient is the distribution itself.
    """

    log_probs: Float[Tensor, "sentence target *keys"]
    valid: Bool[Tensor, "sentence target"]
    marginal: bool = True

    def gradient(
        self, sentences: slice, log_probs: Float[Tensor, "few target *keys"]
    ) -> Float[Tensor, "few target *keys"]:
        """The gradient with respect to the log-probabilities of some sentences, up to a factor."""
        scores = self.log_probs[sentences]
        scores = scores + log_probs if self.marginal else scores
        # denormal numbers slow down a matrix product: such positions are dropped
        probs = F.threshold(softmax(scores.flatten(2)), MIN_PROBABILITY, 0.0)
        return (probs * self.valid[sentences, :, None]).view_as(log_probs)


def _recompute_underflows(
    log_probs: Float[Tensor, "sentence target *keys"],
    underflows: Bool[Tensor, "sentence target *keys"],
    states: Tensor,
    vectors: Sequence[Tensor],
    weight: Tensor,
    tokens: Tensor,
    smoothing: float,
) -> Float[Tensor, "sentence target *keys"]:
    """Recompute some entries by a softmax, where all products of two exponentials underflow.

    That happens where a state and a position prefer very different tokens.
    """
    indices = underflows.nonzero(as_tuple=True)
    rows = states_at(underflows, states, vectors)
    recomputed = linear_log_prob(rows, weight, tokens[indices[:2]], smoothing)
    return log_probs.index_put(indices, recomputed.to(log_probs.dtype))


def states_at(
    mask: Bool[Tensor, "sentence target *keys"], states: Tensor, vectors: Sequence[Tensor]
) -> Float[Tensor, "entry dim"]:
    """The states of some entries of a table, plus the vectors of their positions."""
    sentence, target, *keys = mask.nonzero(as_tuple=True)
    rows = states[sentence, target]
    for vector, key in zip(vectors, keys, strict=True):
        rows = rows + vector[sentence, key]
    return rows


class _EmissionLogProbs(torch.autograd.Function):
    r"""Sums over the vocabulary by matrix products; saves the normalisers only.

    With :math:`g = \partial / \partial \log p(y_t \mid t, s)` the gradient of a score
    :math:`A_t[v]` is :math:`\sum_s g_{ts} ([v = y_t] - e^{A_t[v]} e^{B_s[v]} / Z_{ts})`; for
    :math:`B_s[v]` the sum runs over :math:`t`. If :math:`g` is proportional to the requested
    gradient, the second term was computed in the forward pass. With smoothing the first term is
    :math:`(1 - \epsilon) [v = y_t] + \epsilon / V`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        tokens: Tensor,
        request: EmissionRequest | None,
        smoothing: float,
        *vectors: Tensor,
    ) -> tuple[Tensor, Tensor]:
        x, w = cast_for_matmul(states, weight)
        if x.device.type != "cpu" or not any(ctx.needs_input_grad):
            request = None
        # products with the output matrix in autocast's dtype, sums of exponentials in float32+
        with torch.autocast(x.device.type, enabled=False):
            scores = _Scores([x, *vectors], w, tokens, smoothing)
            gradients = Gradients(scores.slices) if request else None
            shape = (*tokens.shape, *(vector.shape[1] for vector in vectors))
            wide = full_precision(x).dtype
            log_probs = torch.empty(shape, dtype=wide, device=x.device)
            inverse_normalisers = torch.empty_like(log_probs)
            underflows = torch.empty(shape, dtype=torch.bool, device=x.device)
            expected_grad = torch.empty_like(log_probs) if request else None
            for rows, logits_slice in scores.slices:
                strips = scores.exponentials(rows, logits_slice, put_back=request is not None)
                for sentences, exponentials in strips:
                    normalisers = sum_products(*exponentials.values, buffers=scores.buffers)
                    underflows[sentences] = normalisers < MIN_NORMALISER
                    normalisers.clamp_min_(MIN_NORMALISER)
                    inverse_normalisers[sentences] = normalisers.reciprocal()
                    shifted_scores = exponentials.token_scores - exponentials.maxima
                    log_probs[sentences] = shifted_scores.sub_(normalisers.log_())
                    # now, since the next strip overwrites these exponentials
                    if request and expected_grad is not None:
                        expected_grad[sentences] = request.gradient(sentences, log_probs[sentences])
                        scaled_grad = expected_grad[sentences] * inverse_normalisers[sentences]
                        exponentials.write_normaliser_gradient(scaled_grad)
                if gradients:  # by now the slice holds gradients of its logits
                    gradients.subtract_mean(rows, logits_slice)
        cached = [expected_grad, gradients.states, gradients.table] if gradients else []
        # vectors come last: their number varies, that of the cached tensors is 0 or 3
        ctx.save_for_backward(states, weight, tokens, inverse_normalisers, *cached, *vectors)
        ctx.dtype, ctx.num_cached, ctx.smoothing = w.dtype, len(cached), smoothing
        ctx.mark_non_differentiable(underflows)
        return log_probs, underflows

    @staticmethod
    @forbid_second_derivative
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, tokens, inverse_normalisers, *rest = ctx.saved_tensors
        cached, vectors = rest[: ctx.num_cached], rest[ctx.num_cached :]
        inputs = [states, *vectors]
        # a mean over tokens, a KL weight or a loss scale multiply the expected gradient by a number
        factor = factor_between(grad, cached[0]) if cached and grad.numel() else None
        if factor is not None:
            row_grads, weight_grad = cached[1] * factor, cached[2] * factor
        else:
            sides = [value.to(ctx.dtype) for value in inputs]
            scores = _Scores(sides, weight.to(ctx.dtype), tokens)
            gradients = Gradients(scores.slices)
            for rows, logits_slice in scores.slices:
                strips = scores.exponentials(rows, logits_slice, put_back=True)
                for sentences, exponentials in strips:
                    scaled_grad = grad[sentences] * inverse_normalisers[sentences]
                    exponentials.write_normaliser_gradient(scaled_grad)
                gradients.subtract_mean(rows, logits_slice)
            row_grads, weight_grad = gradients.states, gradients.table
        input_grads = _split_by_sentence(row_grads, [value.shape[1] for value in inputs])
        _add_token_gradient(input_grads, weight_grad, grad, tokens, weight, inputs, ctx.smoothing)
        pairs = zip(input_grads, inputs, strict=True)
        cast_grads = [input_grad.to(value.dtype) for input_grad, value in pairs]
        return cast_grads[0], weight_grad.to(weight.dtype), None, None, None, *cast_grads[1:]


def _split_by_sentence(
    rows: Float[Tensor, "row dim"], counts: Sequence[int]
) -> list[Float[Tensor, "sentence r dim"]]:
    """Split the rows of one matrix into those of the states and of each head's positions."""
    return list(rows.unflatten(0, (-1, sum(counts))).split(list(counts), 1))


@dataclass(frozen=True)
class _Exponentials:
    """``exp(scores - maximum)`` of a few sentences, with the maximum of each row.

    Attributes:
        values: Those of the states, then those of each head's positions.
        maxima: The maximum of a state's scores plus those of its positions.
        token_scores: The state's score of the target token plus those of its positions.
        cast_values: The values in the dtype of their gradient.
        grads: Where that gradient is written; it may share memory with ``cast_values``.
        buffers: Memory for products.
    """

    values: Sequence[Float[Tensor, "sentence row vocab"]]
    maxima: Float[Tensor, "sentence target *keys"]
    token_scores: Float[Tensor, "sentence target *keys"]
    cast_values: Sequence[Float[Tensor, "sentence row vocab"]]
    grads: Sequence[Float[Tensor, "sentence row vocab"]]
    buffers: Buffers

    def write_normaliser_gradient(
        self, scaled_grad: Float[Tensor, "sentence target *keys"]
    ) -> None:
        """Write the normalisers' part of the gradient of each score.

        Args:
            scaled_grad: The gradient of every entry of the table, divided by its normaliser.
        """
        scaled_grad = scaled_grad.to(self.cast_values[0].dtype)
        state, *vectors = self.cast_values
        if len(vectors) == 1:
            to_state = self.buffers.matmul("state", scaled_grad, vectors[0])
            to_vectors = self.buffers.matmul("side", scaled_grad.mT, state)
            torch.mul(state, to_state, out=self.grads[0])
            torch.mul(vectors[0], to_vectors, out=self.grads[1])
            return
        scaled_grad = scaled_grad.flatten(2)
        for columns, pairs in _pairs(vectors[0], vectors[1], self.buffers):
            values = state[..., columns]
            # gradients of all pairs of positions: the sum over one position is the other's gradient
            pair_grads = self.buffers.matmul("pairs of grads", scaled_grad.mT, values).mul_(pairs)
            to_state = self.buffers.matmul("state", scaled_grad, pairs)
            torch.mul(values, to_state, out=self.grads[0][..., columns])
            pair_grads = pair_grads.unflatten(1, (vectors[0].shape[1], vectors[1].shape[1]))
            torch.sum(pair_grads, 2, out=self.grads[1][..., columns])
            torch.sum(pair_grads, 1, out=self.grads[2][..., columns])


class Buffers:
    """Memory for matrix products: on a CPU an allocation takes longer than the product."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[Any, ...], Tensor] = {}

    def get(self, name: str, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A tensor of a shape; its content is that of its last use."""
        key = name, like.dtype, shape
        if key not in self._buffers:
            self._buffers[key] = like.new_empty(shape)
        return self._buffers[key]

    def matmul(
        self, name: str, x: Float[Tensor, "batch row k"], y: Float[Tensor, "batch k column"]
    ) -> Float[Tensor, "batch row column"]:
        """The product of two batches of matrices; the next call of this name overwrites it."""
        return torch.bmm(x, y, out=self.get(name, x, (*x.shape[:2], y.shape[2])))


class _Scores:
    """The scores of states and positions against the vocabulary, a few sentences at a time.

    The states and vectors are rows of one matrix, so that one product computes all scores.

    Args:
        sides: The states, then the vectors of each head's positions.
        weight: The output matrix.
        tokens: The target tokens.
        smoothing: Label smoothing: the weight of the mean of all scores in a token's score.
    """

    def __init__(
        self,
        sides: Sequence[Float[Tensor, "sentence row dim"]],
        weight: Float[Tensor, "vocab dim"],
        tokens: Int[Tensor, "sentence target"],
        smoothing: float = 0.0,
    ) -> None:
        self.tokens, self._counts = tokens, [side.shape[1] for side in sides]
        self.buffers = Buffers()
        rows = torch.cat([side.to(weight.dtype) for side in sides], 1)
        self._smoothing = smoothing
        self._means = full_precision(rows) @ full_precision(weight).mean(0) if smoothing else None
        # larger slices need fewer kernel launches
        self.slices = Slices(rows.flatten(0, 1), weight, sum(self._counts), CHUNK)

    def exponentials(
        self, rows: slice, logits_slice: Float[Tensor, "row vocab"], put_back: bool = False
    ) -> Iterator[tuple[slice, _Exponentials]]:
        """Yield the exponentials of a slice, a strip at a time, with the sentences of the strip.

        Args:
            rows: The rows of the slice.
            logits_slice: Its scores, in the dtype of the product.
            put_back: Whether the gradients that the caller writes replace the scores.
        """
        rows_per_sentence = sum(self._counts)
        # the gradient uses autocast's dtype if its range suffices for exponentials, as bfloat16's
        half_precision = put_back and logits_slice.dtype == torch.bfloat16
        upcast = self.slices.upcast(rows, logits_slice, put_back and not half_precision)
        for strip, scores in upcast:
            sentences = slice(strip.start // rows_per_sentence, strip.stop // rows_per_sentence)
            values = scores.unflatten(0, (-1, rows_per_sentence))
            tokens = self.tokens[sentences, None].expand(-1, rows_per_sentence, -1)
            token_scores = values.gather(-1, tokens)
            if self._means is not None:
                token_scores = token_scores.lerp(
                    self._means[sentences, :, None].expand_as(token_scores), self._smoothing
                )
            state_scores, *vector_scores = token_scores.split(self._counts, 1)
            maxima = values.amax(-1)
            exp_(values.sub_(maxima[..., None]))
            cast_values = grads = values.split(self._counts, 1)
            if half_precision:
                strip_rows = slice(strip.start - rows.start, strip.stop - rows.start)
                grads = logits_slice[strip_rows].view_as(values).split(self._counts, 1)
                # products in half precision need contiguous memory
                cast_values = [
                    self.buffers.get(f"side {side}", logits_slice, tuple(part.shape)).copy_(part)
                    for side, part in enumerate(cast_values)
                ]
            state_max, *vector_maxima = maxima.split(self._counts, 1)
            # a state predicts its own token alone, a position adds to the score of every token
            scores_of_states = state_scores.diagonal(dim1=1, dim2=2)
            yield (
                sentences,
                _Exponentials(
                    values.split(self._counts, 1),
                    outer_sum(state_max, [side[:, None] for side in vector_maxima]),
                    outer_sum(scores_of_states, [side.mT for side in vector_scores]),
                    cast_values,
                    grads,
                    self.buffers,
                ),
            )


def sum_products(
    states: Float[Tensor, "sentence target vocab"],
    *vectors: Float[Tensor, "sentence _ vocab"],
    buffers: Buffers | None = None,
) -> Float[Tensor, "sentence target *keys"]:
    """Sum over the vocabulary the product of a state's values and those of its positions.

    Of states that are fewer than positions, as while a sentence is decoded, the pairs are those of
    a state and a position: fewer than those of two positions.
    """
    if len(vectors) == 1:
        return states @ vectors[0].mT
    first, last = vectors
    # the product is symmetric in its three factors: the two smaller ones make the pairs
    if buffers is None and states.shape[1] < last.shape[1]:
        return sum_products(last, states, first).permute(0, 2, 3, 1)
    sums = states.new_zeros(len(states), states.shape[1], first.shape[1] * last.shape[1])
    for columns, pairs in _pairs(first, last, buffers):
        sums.baddbmm_(states[..., columns], pairs.mT)
    return sums.unflatten(2, (first.shape[1], last.shape[1]))


def weighted_products(
    weights: Float[Tensor, "sentence row *keys"], *vectors: Float[Tensor, "sentence _ vocab"]
) -> Float[Tensor, "sentence row vocab"]:
    """The weighted sum of the values of all positions, or of the products of each pair."""
    if len(vectors) == 1:
        return weights @ vectors[0]
    first, last = vectors
    sums = first.new_empty(*weights.shape[:2], first.shape[2])
    for columns in _columns(len(first) * weights.shape[1] * first.shape[1], first):
        # a matrix product for each row; products of pairs would be as many numbers as it adds
        of_first = (weights.flatten(1, 2) @ last[..., columns]).unflatten(1, weights.shape[1:3])
        sums[..., columns] = (of_first * first[:, None, :, columns]).sum(2)
    return sums


def _pairs(
    first: Float[Tensor, "sentence key vocab"],
    last: Float[Tensor, "sentence key vocab"],
    buffers: Buffers | None = None,
) -> Iterator[tuple[slice, Float[Tensor, "sentence pair few"]]]:
    """Yield the products of all pairs of positions' values, a few vocabulary entries at a time."""
    for columns in _columns(len(first) * first.shape[1] * last.shape[1], first):
        left, right = first[:, :, None, columns], last[:, None, :, columns]
        shape = len(first), first.shape[1], last.shape[1], left.shape[-1]
        out = None if buffers is None else buffers.get("pairs", first, shape)
        yield columns, torch.mul(left, right, out=out).flatten(1, 2)


def _columns(rows: int, like: Float[Tensor, "*batch vocab"]) -> Iterator[slice]:
    """Cut the vocabulary so that a buffer holds the entries of some rows."""
    size = PAIR_BUFFER_SIZE.get(like.device.type, PAIR_BUFFER_SIZE["cuda"])
    number = max(MIN_TOKENS, size // max(1, rows))
    for start in range(0, like.shape[-1], number):
        yield slice(start, start + number)


def outer_sum(
    first: Float[Tensor, "sentence target"], others: Sequence[Float[Tensor, "sentence *target key"]]
) -> Float[Tensor, "sentence target *keys"]:
    """Outer sum of values of states and of positions; the latter may depend on the state."""
    total = first[..., None] + others[0]
    return total if len(others) == 1 else total[..., None] + others[1][..., None, :]


def _add_token_gradient(
    input_grads: Sequence[Tensor],
    weight_grad: Tensor,
    grad: Float[Tensor, "sentence target *keys"],
    tokens: Int[Tensor, "sentence target"],
    weight: Tensor,
    inputs: Sequence[Tensor],
    smoothing: float,
) -> None:
    """Add the part of the gradient that comes from the scores of the target tokens."""
    dtype = weight_grad.dtype
    table = full_precision(weight)[tokens]
    if smoothing:
        table = table.lerp(full_precision(weight).mean(0).expand_as(table), smoothing)
    row_grads = grad.flatten(2).sum(-1)
    marginal_grads = [grad] if grad.ndim == 3 else [grad.sum(3), grad.sum(2)]
    rows = full_precision(inputs[0]) * row_grads[..., None]
    input_grads[0].add_(table * row_grads[..., None])
    for vector_grad, marginal_grad, vector in zip(
        input_grads[1:], marginal_grads, inputs[1:], strict=True
    ):
        vector_grad.add_(marginal_grad.mT.to(dtype) @ table)
        rows = rows + marginal_grad.to(dtype) @ full_precision(vector)
    # linear in the rows: a token's own row gets 1 - epsilon of it, all rows epsilon / V
    rows = rows.flatten(0, 1).to(dtype)
    if smoothing:
        weight_grad.add_(rows.sum(0) * (smoothing / len(weight)))
    weight_grad.index_add_(0, tokens.flatten(), rows, alpha=1 - smoothing)
