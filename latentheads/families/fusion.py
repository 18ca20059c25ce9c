"""The fusion: a small MLP over the heads of every (query, key) pair, with recomputed activations.

It is the sigma of Zheng, Wu and Kong 2021, App. A, https://aclanthology.org/2021.acl-long.45.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import has_torch_function_unary

from latentheads.layers.numeric import forbid_second_derivative

LEAK = 0.2

CHUNK = {"cpu": 2**17, "cuda": 2**25}
"""Hidden activations in memory at a time, by device: on a CPU they fit into a core's cache."""

_leaky_backward = torch.ops.aten.leaky_relu_backward.grad_input


class Fusion(nn.Module):
    """A small MLP over the heads, the same at every (query, key) pair.

    The paper's sigma (App. A): ``layers=2``, LeakyReLU, hidden width ``alpha * H``. The released
    code: ``layers=3``, ``hidden=4``, ``24 H^2 + 9 H`` parameters.

    Hidden activations are ``alpha`` times as large as the logits. They are never all in memory:
    one slice of pairs at a time passes through all layers, and the backward pass recomputes its
    activations. On a CPU this is also four times as fast as storing them (at 512 tokens).

    Args:
        heads: Number of heads H.
        hidden: Hidden units for each head, the paper's alpha.
        layers: Number of linear layers.
        zero: Initialise the output at zero, so that a posterior starts at its prior.

    Attributes:
        store_activations: Store all hidden activations for the gradient; only for comparison.
    """

    store_activations = False

    def __init__(self, heads: int, hidden: int = 4, layers: int = 2, zero: bool = False) -> None:
        super().__init__()
        if hidden < 1:
            raise ValueError(f"hidden must be at least 1, got {hidden}")
        if layers < 2:
            raise ValueError(f"layers must be at least 2, got {layers}")
        widths = [heads, *[hidden * heads] * (layers - 1), heads]
        linear = [nn.Linear(inputs, outputs) for inputs, outputs in pairwise(widths)]
        for layer in linear:
            nn.init.xavier_uniform_(layer.weight, gain=2**-0.5)
            nn.init.zeros_(layer.bias)
        if zero:
            nn.init.zeros_(linear[-1].weight)
        self.layers = nn.ModuleList(linear)

    def forward(
        self,
        logits: Float[Tensor, "*batch head query key"],
        link: bool = False,
        on_squares: Callable[[Float[Tensor, "*batch query key"]], object] | None = None,
    ) -> Float[Tensor, "*batch head query key"]:
        """Mixes the heads at every pair, in full precision: in the type of the logits.

        Args:
            logits: The logits.
            link: Add the logits to the result, ``z + MLP(z)``.
            on_squares: Called with the squares of the result, summed over the heads of every pair.
        """
        *batch, heads, queries, keys = logits.shape
        with torch.autocast(logits.device.type, enabled=False):
            x = logits.reshape(math.prod(batch), heads, queries * keys)
            layers = [cast(nn.Linear, layer) for layer in self.layers]
            own_parameters = (
                parameter for layer in layers for parameter in (layer.weight, layer.bias)
            )
            parameters = [parameter.to(x.dtype) for parameter in own_parameters]
            unsliced = self.store_activations or has_torch_function_unary(x)
            mixed, squares = (_fuse_unsliced if unsliced else _Fuse.apply)(x, link, *parameters)
        if on_squares is not None:
            on_squares(squares.view(*batch, queries, keys))
        return mixed.view(logits.shape)

    def forward_and_squares(
        self, logits: Float[Tensor, "*batch head query key"], link: bool = False
    ) -> tuple[Float[Tensor, "*batch head query key"], Float[Tensor, "*batch query key"]]:
        """Mixes the heads, and sums the squares of the result over the heads of every pair.

        A KL that is computed from these squares stores no copy of the result for its gradient.
        """
        squares: list[Tensor] = []
        mixed = self(logits, link, squares.append)
        return mixed, squares[0]


def _fuse_unsliced(x: Tensor, link: bool, *parameters: Tensor) -> tuple[Tensor, Tensor]:
    """What :class:`_Fuse` computes, by plain operations that autograd or a tracer can record."""
    mlp = _MLP(parameters[::2], parameters[1::2], link)
    y = mlp.output(x, mlp.hidden(x)[-1])
    return y, y.square().sum(1, keepdim=True)


class _Fuse(torch.autograd.Function):
    """``x -> y = MLP(x)`` or ``x + MLP(x)``, and ``sum_h y_h^2``, a slice of pairs at a time.

    Only the input and the parameters are saved. Weights and biases alternate in ``parameters``.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, link: bool, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        mlp = _MLP(parameters[::2], parameters[1::2], link)
        mixed = x.new_empty(x.shape)
        squares = x.new_empty(x.shape[0], 1, x.shape[2])
        for pairs in mlp.slices(x):
            y = mlp.output(x[pairs], mlp.hidden(x[pairs])[-1])
            mixed[pairs] = y
            squares[pairs] = y.square().sum(1, keepdim=True)
        ctx.save_for_backward(x, *parameters)
        ctx.link = link
        ctx.set_materialize_grads(False)
        return mixed, squares

    @staticmethod
    @forbid_second_derivative
    def backward(
        ctx: Any, grad_mixed: Tensor | None, grad_squares: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        x, *parameters = ctx.saved_tensors
        mlp = _MLP(parameters[::2], parameters[1::2], ctx.link)
        if grad_mixed is None:
            grad_mixed = x.new_zeros(()).expand(x.shape)
        grad_x = x.new_empty(x.shape)
        parameter_grads = [torch.zeros_like(parameter) for parameter in parameters]
        with torch.autocast(x.device.type, enabled=False):
            for pairs in mlp.slices(x):
                hidden, grad = mlp.hidden(x[pairs]), grad_mixed[pairs]
                if grad_squares is not None:
                    y = mlp.output(x[pairs], hidden[-1])
                    grad = torch.addcmul(grad, y, grad_squares[pairs], value=2)
                grad_x[pairs] = mlp.backward(x[pairs], hidden, grad, parameter_grads)
        return grad_x, None, *parameter_grads


@dataclass(frozen=True, slots=True)
class _MLP:
    """The layers, applied to one slice.

    Hidden activations are laid out ``pair unit``: such products are nearly twice as fast.

    Attributes:
        weights: The weight of every layer, ``output input``.
        biases: The bias of every layer.
        link: Whether the input is added to the output.
    """

    weights: Sequence[Tensor]
    biases: Sequence[Tensor]
    link: bool

    def slices(self, x: Float[Tensor, "batch head pair"]) -> Iterator[tuple[slice, slice, slice]]:
        """Cuts long sentences into runs of pairs, and groups short sentences."""
        sentences, _, pairs = x.shape
        limit = CHUNK.get(x.device.type, CHUNK["cuda"])
        run = max(1, limit // len(self.biases[0]))
        group = max(1, run // max(1, pairs))
        for first in range(0, sentences, group):
            for start in range(0, pairs, run):
                yield slice(first, first + group), slice(None), slice(start, start + run)

    def hidden(self, x: Float[Tensor, "batch head pair"]) -> list[Float[Tensor, "batch pair unit"]]:
        """Computes the activations of every hidden layer."""
        first = torch.baddbmm(self.biases[0], x.mT, _expand_to(self.weights[0].T, x))
        activations = [F.leaky_relu_(first, LEAK)]
        for weight, bias in zip(self.weights[1:-1], self.biases[1:-1], strict=True):
            activations.append(F.leaky_relu_(F.linear(activations[-1], weight, bias), LEAK))
        return activations

    def output(
        self, x: Float[Tensor, "batch head pair"], hidden: Float[Tensor, "batch pair unit"]
    ) -> Float[Tensor, "batch head pair"]:
        """Applies the last layer and the residual link."""
        y = torch.baddbmm(self.biases[-1][:, None], _expand_to(self.weights[-1], x), hidden.mT)
        return y.add_(x) if self.link else y

    def backward(
        self,
        x: Float[Tensor, "batch head pair"],
        hidden: list[Float[Tensor, "batch pair unit"]],
        grad: Float[Tensor, "batch head pair"],
        parameter_grads: list[Tensor],
    ) -> Float[Tensor, "batch head pair"]:
        """Returns the gradient of the input; adds to those of the parameters."""
        weight_grads, bias_grads = parameter_grads[::2], parameter_grads[1::2]
        weight_grads[-1] += _sum_over_pairs(grad, hidden[-1])
        bias_grads[-1] += grad.sum((0, 2))
        grad_hidden = torch.bmm(grad.mT, _expand_to(self.weights[-1], x))
        for layer in range(len(hidden) - 1, 0, -1):
            _leaky_backward(grad_hidden, hidden[layer], LEAK, True, grad_input=grad_hidden)
            weight_grads[layer] += grad_hidden.flatten(0, 1).T @ hidden[layer - 1].flatten(0, 1)
            bias_grads[layer] += grad_hidden.sum((0, 1))
            grad_hidden = grad_hidden @ self.weights[layer]
        _leaky_backward(grad_hidden, hidden[0], LEAK, True, grad_input=grad_hidden)
        weight_grads[0] += _sum_over_pairs(x, grad_hidden).T
        bias_grads[0] += grad_hidden.sum((0, 1))
        grad_x = torch.bmm(_expand_to(self.weights[0].T, x), grad_hidden.mT)
        return grad_x.add_(grad) if self.link else grad_x


def _sum_over_pairs(
    x: Float[Tensor, "batch head pair"], y: Float[Tensor, "batch pair unit"]
) -> Float[Tensor, "head unit"]:
    """Sums the products of all heads with all units over pairs and sentences."""
    if x.device.type == "cpu":
        return torch.bmm(x, y).sum(0)
    # one product over all sentences: for a batch of products with few rows and 262,144 terms cuBLAS
    # picks a kernel that is 25 times as slow
    return torch.einsum("bhp,bpu->hu", x, y)


def _expand_to(
    weight: Float[Tensor, "rows columns"], x: Tensor
) -> Float[Tensor, "batch rows columns"]:
    """Expands a matrix to the sentences of a slice."""
    return weight.expand(len(x), -1, -1)
