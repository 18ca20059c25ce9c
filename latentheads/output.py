"""From states to tokens: the output layer, and its log-likelihood without the matrix of logits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from latentheads.numeric import full_precision

__all__ = ["GivenLogits", "Output", "TableOutput"]

CHUNK = {"cpu": 2**20, "cuda": 2**27}
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
        found = _LinearLogProb.apply(flat, self.table.weight, tokens.flatten(), smoothing)
        return found.view(tokens.shape)


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
        x, w = _for_products(states, weight)
        normaliser, chosen = [], []
        for part, target in zip(_slices(x, w), _slices(tokens, w), strict=True):
            logits = full_precision(part @ w.T)
            normaliser.append(torch.logsumexp(logits, -1))
            chosen.append(logits.gather(-1, target[:, None]).squeeze(-1))
        total = torch.cat(normaliser)
        ctx.save_for_backward(states, weight, tokens, total)
        ctx.smoothing, ctx.kind = smoothing, w.dtype
        found = torch.cat(chosen) * (1 - smoothing) - total
        if smoothing:
            found = found + smoothing * (full_precision(x) @ full_precision(w).mean(0))
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        states, weight, tokens, normaliser = ctx.saved_tensors
        x, w = states.to(ctx.kind), weight.to(ctx.kind)
        grad = grad.to(normaliser.dtype)
        shift = normaliser - grad.abs().log()
        signed = x * grad.sign()[:, None].to(x.dtype)
        wide = normaliser.dtype
        to_weight = torch.zeros(weight.shape, dtype=wide, device=weight.device)
        to_states = torch.empty(states.shape, dtype=wide, device=states.device)
        spans = _slices(torch.arange(len(x), device=x.device), w)
        start = 0
        for span in spans:
            rows = slice(start, start + len(span))
            start = rows.stop
            logits = full_precision(x[rows] @ w.T)
            mass = logits.sub_(shift[rows, None]).exp_().to(w.dtype)
            to_states[rows] = mass @ w
            to_weight.addmm_(mass.T, signed[rows]) if mass.dtype == wide else to_weight.add_(
                mass.T @ signed[rows]
            )
        to_states.mul_(-grad.sign()[:, None])
        to_weight.neg_()
        sure = (1 - ctx.smoothing) * grad
        to_states.addcmul_(full_precision(w)[tokens], sure[:, None])
        to_weight.index_add_(0, tokens, full_precision(x) * sure[:, None])
        if ctx.smoothing:
            share = ctx.smoothing * grad
            to_states += share[:, None] * full_precision(w).mean(0)
            to_weight += (share @ full_precision(x)) / len(weight)
        return to_states.to(states.dtype), to_weight.to(weight.dtype), None, None


def _for_products(states: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the type that autocast multiplies in, or in the wider of their own."""
    device = states.device.type
    if torch.is_autocast_enabled(device):
        kind = torch.get_autocast_dtype(device)
    else:
        kind = torch.promote_types(states.dtype, weight.dtype)
    return states.to(kind), weight.to(kind)


def _slices(rows: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """Cuts rows so that one slice's logits fit."""
    limit = CHUNK.get(weight.device.type, CHUNK["cuda"])
    return rows.split(max(1, limit // len(weight)))
