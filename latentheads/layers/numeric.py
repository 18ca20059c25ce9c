"""Numerics: full-precision densities, fast softmax and dropout, memory-saving weighted sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import _get_current_function_mode_stack, has_torch_function_variadic
from torch.utils._device import DeviceContext

FEW = 2**10
"""Elements below which a further operation costs more than vector registers save."""

NAIVE = 400
"""Products below which PyTorch multiplies two matrices without vector registers."""


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Context of operations in the types of their tensors; costs nothing without autocast."""
    if not torch.is_autocast_enabled(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def full_precision(x: Tensor) -> Tensor:
    """Widens a half-precision tensor to float32; densities are never computed in less."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def has_overrides(*tensors: Tensor) -> bool:
    """Whether functions of PyTorch are overridden, by a tensor subclass or a context as relevance.

    ``torch.set_default_device`` is such a context too, which leaves functions of tensors alone.
    """
    if not has_torch_function_variadic(*tensors):
        return False
    # private members: PyTorch has no public way to ask which contexts are active
    are_plain = {type(tensor) for tensor in tensors} <= {Tensor, nn.Parameter}
    modes = _get_current_function_mode_stack()
    return not (are_plain and all(isinstance(mode, DeviceContext) for mode in modes))


def version_of(x: Tensor) -> int:
    """How often a tensor was changed in place; 0 in inference mode and compiled code."""
    return 0 if torch.compiler.is_compiling() or x.is_inference() else x._version


def forbid_second_derivative(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a hand-written ``backward`` raise an error when it is itself differentiated.

    ``torch.autograd.function.once_differentiable`` raises only if the incoming gradient requires
    grad. That of a sum does not, so that a Hessian would silently lack a term.
    """

    @wraps(backward)
    def checked_backward(ctx: Any, *gradients: Tensor | None) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "a network of heads has no second derivatives, since its backward passes are "
                "hand-written: drop create_graph, and what takes a Hessian"
            )
        return backward(ctx, *gradients)

    return checked_backward


def as_tensor_like(values: Sequence[Any] | np.ndarray, like: Tensor) -> Tensor:
    """Makes a tensor of Python numbers with the dtype and device of another tensor.

    ``torch.tensor(values, device=...)`` and indexing by a list synchronise with a GPU; this does
    not.
    """
    return torch.as_tensor(values, dtype=like.dtype).to(like.device, non_blocking=True)


def softmax(x: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch key"]:
    """``torch.softmax`` over the last dimension; three times as fast for short rows on a CPU."""
    return torch.softmax(_fill_vectors(x), -1)[..., : x.shape[-1]]


def log_softmax(x: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch key"]:
    """``torch.log_softmax`` over the last dimension; see :func:`softmax`."""
    return _fill_vectors(x).log_softmax(-1)[..., : x.shape[-1]]


def _fill_vectors(x: Tensor) -> Tensor:
    """Pads rows that are shorter than a vector register of 512 bits by logits of -inf.

    PyTorch does not vectorise a softmax over rows that do not fill a register. For a few numbers
    that is cheaper than to pad them.
    """
    missing = 64 // x.element_size() - x.shape[-1]
    if x.device.type != "cpu" or missing <= 0 or x.numel() <= FEW:
        return x
    return F.pad(x, (0, missing), value=-math.inf)


def exp(x: Tensor) -> Tensor:
    """``x.exp()``, on a CPU as a power of two.

    MKL's exponential takes up to thirty times as long where the result is denormal or 0; elsewhere
    the power of two takes between a third of its time and three times as long, by processor.
    """
    return (x * (1 / math.log(2))).exp2() if x.device.type == "cpu" else x.exp()


def exp_(x: Tensor) -> Tensor:
    """``x.exp_()``, on a CPU as a power of two; see :func:`exp`."""
    return x.mul_(1 / math.log(2)).exp2_() if x.device.type == "cpu" else x.exp_()


def dropout(x: Tensor, probability: float, training: bool) -> Tensor:
    """``F.dropout``, on a CPU from 16 random bits an element: several times as fast.

    The probability is rounded to a multiple of 2^-16 between 0 and 1, and what is kept is scaled
    by the rounded one; in half precision that factor is itself rounded.
    """
    if not training or not probability:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, probability)
    return x * _dropout_factors(x, *_sample_keep_mask(x, probability))


def _sample_keep_mask(x: Tensor, probability: float) -> tuple[Shaped[Tensor, ...], float]:
    """Samples a keep mask, whole numbers 0 or 1; also returns the scale of kept elements."""
    if x.device.type != "cpu":
        kept = torch.empty_like(x, dtype=torch.bool).bernoulli_(1 - probability)
        return kept, 1 / (1 - probability)
    threshold = min(max(1, round(probability * 2**16)), 2**16 - 1)
    size = x.numel()
    random_words = torch.empty((size + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    bits = random_words.view(torch.int16)
    bits = (bits[:size] if size % 4 else bits).view(x.shape)
    below = threshold - 2**15 - 1
    # bits > below, as 0 or 1: a comparison and the conversion of booleans cost far more
    kept = bits.clamp_(below, below + 1).sub_(below)
    return kept, 2**16 / (2**16 - threshold)


def _dropout_factors(x: Tensor, kept: Shaped[Tensor, ...], factor: float) -> Tensor:
    """0 for dropped elements, the factor for kept ones, in the dtype of ``x``."""
    if x.dtype == torch.get_default_dtype():
        return kept * factor
    return kept.to(x.dtype).mul_(factor)


def weighted_sum(
    weights: Float[Tensor, "*batch query key"],
    values: Float[Tensor, "*values key dim"],
    probability: float = 0.0,
    training: bool = False,
) -> Float[Tensor, "*out query dim"]:
    """``dropout(weights) values``, multiplied in the dtype of the values.

    For the gradient it stores the weights, which a softmax stores anyway, and the keep mask, one
    byte per element. The weights after dropout are recomputed.
    """
    if not probability or not training:
        kept, factor = None, 1.0
    else:
        kept, factor = _sample_keep_mask(weights, probability)
        kept = kept.to(torch.int8)
    no_dropout_or_cast = kept is None and weights.dtype == values.dtype
    is_special = has_overrides(weights, values)
    if no_dropout_or_cast and not is_special and _is_small(weights, values):
        return (weights.mT * values).sum(-2, keepdim=True)
    if no_dropout_or_cast or is_special:
        return torch.matmul(_dropped_weights(weights, values, kept, factor), values)
    result: Tensor = _WeightedSum.apply(weights, values, kept, factor)
    return result


def _is_small(weights: Tensor, values: Tensor) -> bool:
    """Whether PyTorch would multiply them number by number: one query with few keys, on a CPU."""
    few = weights.shape[-2] == 1 and weights.shape[-1] * values.shape[-1] < NAIVE
    return few and values.device.type == "cpu"


def _dropped_weights(weights: Tensor, values: Tensor, kept: Tensor | None, factor: float) -> Tensor:
    """The weights after dropout, in the dtype of the values."""
    if kept is not None:
        weights = weights * _dropout_factors(weights, kept, factor)
    return weights.to(values.dtype)


class _WeightedSum(torch.autograd.Function):
    """``(weights * kept * factor) values``; the product in brackets is not saved."""

    @staticmethod
    def forward(
        ctx: Any, weights: Tensor, values: Tensor, kept: Tensor | None, factor: float
    ) -> Tensor:
        ctx.save_for_backward(weights, values, kept)
        ctx.factor = factor
        return torch.matmul(_dropped_weights(weights, values, kept, factor), values)

    @staticmethod
    @forbid_second_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        weights, values, kept = ctx.saved_tensors
        grad_weights = torch.matmul(grad, values.mT).to(weights.dtype)
        dropped = weights
        if kept is not None:
            factors = _dropout_factors(weights, kept, ctx.factor)
            grad_weights *= factors
            dropped = factors.mul_(weights)
        grad_values = torch.matmul(dropped.to(values.dtype).mT, grad)
        return (
            grad_weights.sum_to_size(weights.shape),
            grad_values.sum_to_size(values.shape),
            None,
            None,
        )
