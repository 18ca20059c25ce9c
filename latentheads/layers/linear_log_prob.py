"""The log-softmax of products with a matrix at given tokens, without the whole matrix of logits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from latentheads.layers.numeric import (
    exp_,
    forbid_second_derivative,
    full_precision,
    has_overrides,
)
from latentheads.layers.output import ExpectedGradient, GivenLogits

CHUNK = {"cpu": 2**21, "cuda": 2**27}
"""Logits in memory at a time, in float32; in half precision twice as many."""

STRIP = {"cpu": 2**18, "cuda": 2**27}
"""Logits that are upcast at a time: on a CPU they fit into a core's cache."""


def linear_log_prob(
    states: Float[Tensor, "position dim"],
    weight: Float[Tensor, "vocab dim"],
    tokens: Int[Tensor, " position"],
    smoothing: float = 0.0,
    expected_gradient: ExpectedGradient = 1.0,
) -> Float[Tensor, " position"]:
    """Log-softmax of ``states weight^T`` at each token, without the matrix of logits.

    If it is known what gradient to expect, a CPU computes that of states and weight in the forward
    pass.

    A tensor subclass that records operations gets the plain formula.
    """
    if has_overrides(states):
        return GivenLogits().log_prob(F.linear(states, weight), tokens, smoothing)
    if isinstance(expected_gradient, Tensor):
        expected_gradient = expected_gradient.flatten()
    inputs = states, weight, tokens, None, smoothing, expected_gradient
    log_probs: Tensor = _LinearLogProb.apply(*inputs)
    return log_probs


def linear_log_mixture(
    states: Float[Tensor, "position dim"],
    weight: Float[Tensor, "vocab dim"],
    tokens: Int[Tensor, " position"],
    log_constant: Float[Tensor, " position"],
    smoothing: float = 0.0,
) -> tuple[Float[Tensor, " position"], Float[Tensor, " position"]]:
    r"""The log of ``softmax(states weight^T) + c`` at each token, and the log of the softmax.

    Its gradient weighs that of the log-softmax by :math:`p / (p + c)`, which is known before the
    logits are freed: on a CPU the forward pass computes the gradient of the sum over positions.
    """
    if has_overrides(states):
        logits = F.linear(states, weight)
        return GivenLogits().log_mixture(logits, tokens, log_constant, smoothing)
    inputs = states, weight, tokens, log_constant, smoothing, 1.0
    log_mixture, log_probs = _LinearLogProb.apply(*inputs)
    return log_mixture, log_probs


class _LinearLogProb(torch.autograd.Function):
    r"""``log softmax(x W^T)`` at the token, a slice of positions at a time.

    The logits of a slice are freed after use and recomputed for the gradient:
    :math:`\partial / \partial z_v = [v = y](1 - \epsilon) + \epsilon / V - \mathrm{softmax}(z)_v`.
    Products run in autocast's dtype, all else in float32 or wider.

    With a constant c the outputs are :math:`\log(p + c)`, whose gradient is that of :math:`\log p`
    times :math:`p / (p + c)`, and :math:`\log p`.

    On a CPU the forward pass also computes the expected gradient of the first output; the
    backward pass uses it if the incoming gradient is that one times a factor.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        tokens: Tensor,
        log_constant: Tensor | None,
        smoothing: float,
        expected_gradient: ExpectedGradient,
    ) -> Tensor | tuple[Tensor, Tensor]:
        x, w = cast_for_matmul(states, weight)
        slices = Slices(x, w)
        normaliser = torch.empty(len(x), dtype=slices.wide, device=x.device)
        total, log_probs = torch.empty_like(normaliser), torch.empty_like(normaliser)
        log_odds = torch.full_like(normaliser, torch.inf)  # of p against c
        mean_row = full_precision(w).mean(0) if smoothing else None
        wants_grad = any(ctx.needs_input_grad[:2])
        is_expected = expected_gradient is not None
        grad_in_forward = is_expected and x.device.type == "cpu" and wants_grad
        gradients = Gradients(slices) if grad_in_forward else None
        expected = expected_gradient if isinstance(expected_gradient, Tensor) else None
        for rows, logits_slice in slices:
            for strip, logits in slices.upcast(rows, logits_slice, put_back=grad_in_forward):
                log_probs[strip] = logits.gather(-1, tokens[strip, None]).squeeze(-1)
                maximum = logits.amax(-1, keepdim=True)
                torch.sum(exp_(logits.sub_(maximum)), -1, out=total[strip])
                normaliser[strip] = maximum.squeeze(-1)  # the log-normaliser, once total is known
            normaliser[rows] += total[rows].log()
            log_probs[rows] = log_probs[rows] * (1 - smoothing) - normaliser[rows]
            if mean_row is not None:
                log_probs[rows] += smoothing * (full_precision(x[rows]) @ mean_row)
            if log_constant is not None:
                log_odds[rows] = log_probs[rows] - log_constant[rows]
            if gradients:
                weights = log_odds[rows].sigmoid()
                if expected is not None:
                    weights *= expected[rows]
                # the slice holds exponentials by now, which total makes probabilities
                gradients.subtract_mean(rows, logits_slice, weights / total[rows])
        cached_grads: Sequence[Tensor] = ()
        if gradients:
            weights = log_odds.sigmoid()
            if expected is not None:
                weights *= expected
            cached_grads = gradients.of(tokens, weights, smoothing)
        ctx.smoothing, ctx.kind = smoothing, w.dtype
        ctx.set_materialize_grads(False)
        saved = states, weight, tokens, normaliser, log_odds, expected, *cached_grads
        ctx.save_for_backward(*saved)
        if log_constant is None:
            return log_probs
        return torch.logaddexp(log_probs, log_constant), log_probs

    @staticmethod
    @forbid_second_derivative
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        states, weight, tokens, normaliser, log_odds, expected, *cached_grads = ctx.saved_tensors
        grad, *others = (None if g is None else g.to(normaliser.dtype) for g in grads)
        needs_states, needs_weight, _, needs_constant, *_ = ctx.needs_input_grad
        grad_constant = None
        if needs_constant and grad is not None:
            grad_constant = grad * (-log_odds).sigmoid()  # c / (p + c)
        if all(value is None for value in grads) or not (needs_states or needs_weight):
            return None, None, None, grad_constant, None, None
        # the expected gradient is that of the first output alone
        is_cached = len(tokens) > 0 and bool(cached_grads) and all(g is None for g in others)
        factors = None
        if grad is not None and is_cached:
            factors = _factors(grad, expected, same=needs_weight)
        if factors is not None:
            grad_states = cached_grads[0] * factors[:, None]
            grad_weight = cached_grads[1] * factors[:1]
        else:
            weighted = None if grad is None else grad * log_odds.sigmoid()  # p / (p + c)
            summands = [value for value in (weighted, *others) if value is not None]
            slices = Slices(states.to(ctx.kind), weight.to(ctx.kind))
            grad_states, grad_weight = _linear_gradients(
                slices, tokens, normaliser, torch.stack(summands).sum(0), ctx.smoothing
            )
        grad_inputs = grad_states.to(states.dtype), grad_weight.to(weight.dtype)
        return *grad_inputs, None, grad_constant, None, None


def _factors(grad: Tensor, expected: Tensor | None, same: bool) -> Tensor | None:
    """The ratio of a gradient to the expected one at each position; None if that is unsuitable.

    Args:
        grad: The gradient.
        expected: What was expected; None: the same value at all positions.
        same: Whether the ratios have to be one number.
    """
    if expected is not None:
        factor = factor_between(grad, expected)
        return None if factor is None else factor.expand_as(grad)
    return grad if not same or torch.equal(grad, grad[:1].expand_as(grad)) else None


def factor_between(grad: Tensor, expected: Tensor) -> Tensor | None:
    """The ratio of two gradients, up to rounding; None if they are not proportional."""
    factor = grad.sum() / expected.sum()
    tolerance = 256 * torch.finfo(grad.dtype).eps * factor.abs() * expected.abs().max()
    difference = torch.addcmul(grad, expected, factor, value=-1)
    return factor if (difference.abs_() <= tolerance).all() else None


def _linear_gradients(
    slices: Slices, tokens: Tensor, normaliser: Tensor, grad: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """The gradients of states and weights, from logits that are computed again."""
    gradients = Gradients(slices)
    for rows, logits_slice in slices:
        for strip, logits in slices.upcast(rows, logits_slice, put_back=True):
            exp_(logits.sub_(normaliser[strip, None]))
        gradients.subtract_mean(rows, logits_slice, grad[rows])
    return gradients.of(tokens, grad, smoothing)


class Gradients:
    """Accumulates the gradients of a weighted sum of log-probabilities, for states and weights."""

    def __init__(self, slices: Slices) -> None:
        self.slices = slices
        x, w = slices.x, slices.w
        self.states = torch.empty(x.shape, dtype=slices.wide, device=x.device)
        self.table = torch.zeros(w.shape, dtype=slices.wide, device=w.device)
        self._product, self._upcast_buffer = torch.empty_like(w), torch.empty_like(self.table)

    def subtract_mean(
        self, rows: slice, probabilities: Tensor, scale: Tensor | None = None
    ) -> None:
        """Subtracts the expectation under a slice's softmax probabilities, times a scale."""
        x, w = self.slices.x[rows], self.slices.w
        # the scale is applied to the narrower factor: there are more tokens than dimensions
        if scale is None:
            self.states[rows] = -(probabilities @ w)
        else:
            torch.mul(probabilities @ w, -scale[:, None], out=self.states[rows])
            x = (x * scale[:, None]).to(x.dtype)
        self.table -= self._upcast_buffer.copy_(torch.mm(probabilities.T, x, out=self._product))

    def of(self, tokens: Tensor, weights: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        """Adds the terms of the tokens and of the smoothing, and returns both gradients."""
        x, w = full_precision(self.slices.x), full_precision(self.slices.w)
        token_weights = (1 - smoothing) * weights
        self.states.addcmul_(w[tokens], token_weights[:, None])
        self.table.index_add_(0, tokens, x * token_weights[:, None])
        if smoothing:
            smoothing_weights = smoothing * weights
            self.states += smoothing_weights[:, None] * w.mean(0)
            self.table += (smoothing_weights @ x) / len(w)
        return self.states, self.table


class Slices:
    """Computes the logits ``x W^T`` slice by slice of the positions, in one buffer.

    Args:
        x: States.
        w: Weights, of the same dtype.
        unit: Number of consecutive states that no slice or strip may separate.
        strip: Logits that are upcast at a time, by device type.
    """

    def __init__(
        self, x: Tensor, w: Tensor, unit: int = 1, strip: Mapping[str, int] = STRIP
    ) -> None:
        self.x, self.w, self._unit = x, w, unit
        self.wide = torch.promote_types(x.dtype, torch.float32)
        self.same = self.wide == x.dtype
        self._height = self._rows(CHUNK) * (1 if self.same else 2)
        self._strip = min(self._rows(strip), self._height)
        self._narrow = x.new_empty(min(self._height, max(1, len(x))), len(w))
        self._wide = x.new_empty(0 if self.same else self._strip, len(w), dtype=self.wide)

    def _rows(self, limit: Mapping[str, int]) -> int:
        """Number of positions whose logits fit a limit."""
        entries = self._unit * len(self.w)
        return self._unit * max(1, limit.get(self.w.device.type, limit["cuda"]) // entries)

    def __iter__(self) -> Iterator[tuple[slice, Tensor]]:
        for start in range(0, len(self.x), self._height):
            rows = slice(start, min(start + self._height, len(self.x)))
            logits_slice = self._narrow[: rows.stop - start]
            yield rows, torch.mm(self.x[rows], self.w.T, out=logits_slice)

    def upcast(
        self, rows: slice, logits_slice: Tensor, put_back: bool
    ) -> Iterator[tuple[slice, Tensor]]:
        """Yields a slice in float32 or wider, strip by strip.

        Args:
            rows: The positions of the slice.
            logits_slice: Its logits.
            put_back: Whether the strip, after changes by the caller, is copied back.
        """
        for index, part in enumerate(logits_slice.split(self._strip)):
            start = rows.start + index * self._strip
            wide = part if self.same else self._wide[: len(part)].copy_(part)
            yield slice(start, start + len(part)), wide
            if put_back and not self.same:
                part.copy_(wide)


def cast_for_matmul(states: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Casts both to autocast's dtype or, without autocast, to the wider of their dtypes."""
    device = states.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    else:
        dtype = torch.promote_types(states.dtype, weight.dtype)
    return states.to(dtype), weight.to(dtype)
