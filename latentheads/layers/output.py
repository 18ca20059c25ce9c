"""From states to tokens: the output layer, and its log-likelihood without the matrix of logits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.overrides import has_torch_function_unary

from latentheads.layers.numeric import full_precision

__all__ = ["CHUNK", "GivenLogits", "Output", "TableOutput", "for_products", "linear_log_prob"]

CHUNK = {"cpu": 2**21, "cuda": 2**27}
"""Logits that are in memory at a time: on a CPU they stay in its cache."""


class Output(nn.Module, ABC):
    """The law of one token given a state."""

    @abstractmethod
    def forward(self, states: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch vocab"]:
        """Scores the vocabulary."""

    @abstractmethod
    def log_prob(
        self,
        states: Float[Tensor, "*batch dim"],
        tokens: Int[Tensor, "*batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, "*batch"]:
        r"""Log-probability of each token, in float32 or wider.

        With smoothing :math:`\epsilon` it is the stand-in
        :math:`(1 - \epsilon) \log p(y) + \tfrac{\epsilon}{V} \sum_v \log p(v)`, no density.
        """


class GivenLogits(Output):
    """The states are the logits themselves."""

    def forward(self, states: Float[Tensor, "*batch vocab"]) -> Float[Tensor, "*batch vocab"]:
        """Returns them."""
        return states

    def log_prob(
        self,
        states: Float[Tensor, "*batch vocab"],
        tokens: Int[Tensor, "*batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, "*batch"]:
        """Log-probability of each token; see :class:`Output`."""
        flat = full_precision(states).flatten(0, -2)
        losses = F.cross_entropy(
            flat, tokens.flatten(), reduction="none", label_smoothing=smoothing
        )
        return -losses.view(tokens.shape)


class TableOutput(Output):
    """Softmax over the products with a table of embeddings, which may be the input's own.

    Args:
        table: One row a type.
    """

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        self.table = table

    def forward(self, states: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch vocab"]:
        """Scores the vocabulary."""
        return F.linear(states, self.table.weight)

    def log_prob(
        self,
        states: Float[Tensor, "*batch dim"],
        tokens: Int[Tensor, "*batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, "*batch"]:
        """Log-probability of each token; see :class:`Output`."""
        flat = states.flatten(0, -2)
        found = linear_log_prob(flat, self.table.weight, tokens.flatten(), smoothing)
        return found.view(tokens.shape)


def linear_log_prob(
    states: Float[Tensor, "position dim"],
    weight: Float[Tensor, "vocab dim"],
    tokens: Int[Tensor, " position"],
    smoothing: float = 0.0,
) -> Float[Tensor, " position"]:
    """Log-softmax of ``states weight^T`` at each token, without the matrix of logits.

    A tensor that records what is done to it is shown the plain formula.
    """
    if has_torch_function_unary(states):
        return GivenLogits().log_prob(F.linear(states, weight), tokens, smoothing)
    found: Tensor = _LinearLogProb.apply(states, weight, tokens, smoothing)
    return found


class _LinearLogProb(torch.autograd.Function):
    r"""``log softmax(x W^T)`` at the token, a slice of positions at a time.

    The logits of a slice are made, read and forgotten, and made again for the gradient:
    :math:`\partial / \partial z_v = [v = y](1 - \epsilon) + \epsilon / V - \mathrm{softmax}(z)_v`.
    Only the normaliser of each position is kept. Products run in autocast's type, all else in
    float32 or wider.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, tokens: Tensor, smoothing: float
    ) -> Tensor:
        x, w = for_products(states, weight)
        slices = _Slices(x, w)
        normaliser = torch.empty(len(x), dtype=slices.wide, device=x.device)
        chosen = torch.empty_like(normaliser)
        for rows, logits in slices:
            chosen[rows] = logits.gather(-1, tokens[rows, None]).squeeze(-1)
            top = logits.amax(-1, keepdim=True)
            normaliser[rows] = logits.sub_(top).exp_().sum(-1).log_() + top.squeeze(-1)
        ctx.save_for_backward(states, weight, tokens, normaliser)
        ctx.smoothing, ctx.kind = smoothing, w.dtype
        found = chosen * (1 - smoothing) - normaliser
        if smoothing:
            found = found + smoothing * (full_precision(x) @ full_precision(w).mean(0))
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        states, weight, tokens, normaliser = ctx.saved_tensors
        x, w = states.to(ctx.kind), weight.to(ctx.kind)
        slices = _Slices(x, w)
        grad = grad.to(slices.wide)
        shift = (normaliser - grad.abs().log())[:, None]
        sign = grad.sign()[:, None]
        signed = x * sign.to(x.dtype)
        to_states = torch.empty(states.shape, dtype=slices.wide, device=states.device)
        to_weight = torch.zeros(weight.shape, dtype=slices.wide, device=weight.device)
        product, widened = torch.empty_like(w), torch.empty_like(to_weight)
        for rows, logits in slices:
            mass = slices.narrowed(logits.sub_(shift[rows]).exp_())
            to_states[rows] = mass @ w
            to_weight -= widened.copy_(torch.mm(mass.T, signed[rows], out=product))
        to_states.mul_(-sign)
        sure = (1 - ctx.smoothing) * grad
        to_states.addcmul_(full_precision(w)[tokens], sure[:, None])
        to_weight.index_add_(0, tokens, full_precision(x) * sure[:, None])
        if ctx.smoothing:
            share = ctx.smoothing * grad
            to_states += share[:, None] * full_precision(w).mean(0)
            to_weight += (share @ full_precision(x)) / len(weight)
        return to_states.to(states.dtype), to_weight.to(weight.dtype), None, None


class _Slices:
    """The logits ``x W^T`` of one slice of positions after the other, in the same memory.

    Args:
        x: States.
        w: Weights, of the same type.
    """

    def __init__(self, x: Tensor, w: Tensor) -> None:
        self.x, self.w = x, w
        self.wide = torch.promote_types(x.dtype, torch.float32)
        limit = CHUNK.get(w.device.type, CHUNK["cuda"])
        self.height = min(max(1, limit // len(w)), max(1, len(x)))
        self._narrow = x.new_empty(self.height, len(w))
        same = self.wide == x.dtype
        self._wide = self._narrow if same else torch.empty_like(self._narrow, dtype=self.wide)

    def __iter__(self) -> Iterator[tuple[slice, Tensor]]:
        for start in range(0, len(self.x), self.height):
            rows = slice(start, min(start + self.height, len(self.x)))
            narrow = self._narrow[: rows.stop - start]
            torch.mm(self.x[rows], self.w.T, out=narrow)
            wide = self._wide[: rows.stop - start]
            yield rows, wide if wide.dtype == narrow.dtype else wide.copy_(narrow)

    def narrowed(self, wide: Tensor) -> Tensor:
        """A slice in the type of the products."""
        narrow = self._narrow[: len(wide)]
        return wide if wide.dtype == narrow.dtype else narrow.copy_(wide)


def for_products(states: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the type that autocast multiplies in, or in the wider of their own."""
    device = states.device.type
    if torch.is_autocast_enabled(device):
        kind = torch.get_autocast_dtype(device)
    else:
        kind = torch.promote_types(states.dtype, weight.dtype)
    return states.to(kind), weight.to(kind)
