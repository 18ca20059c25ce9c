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

from latentheads.checks import check_least
from latentheads.layers.numeric import forbid_second_derivative, has_overrides, without_autocast

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
        check_least({"hidden": hidden, "layers": layers}, hidden=1, layers=2)
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
        with without_autocast(logits.device):
            x = logits.reshape(math.prod(batch), heads, queries * keys)
            layers = cast(list[nn.Linear], [*self.layers])
            own_parameters = [p for layer in layers for p in (layer.weight, layer.bias)]
            parameters = [parameter.to(x.dtype) for parameter in own_parameters]
            unsliced = self.store_activations or has_overrides(x)
            fuse = _fuse_unsliced if unsliced else _Fuse.apply
            mixed, squares = fuse(x, link, on_squares is not None, *parameters)
        if on_squares is not None and squares is not None:
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


def _fuse_unsliced(
    x: Tensor, link: bool, wants_squares: bool, *parameters: Tensor
) -> tuple[Tensor, Tensor | None]:
    """What :class:`_Fuse` computes, by plain operations that autograd or a tracer can record."""
    return _MLP(parameters[::2], parameters[1::2], link).mix(x, wants_squares)


class _Fuse(torch.autograd.Function):
    """``x -> y = MLP(x)`` or ``x + MLP(x)``, and ``sum_h y_h^2``, a slice of pairs at a time.

    Only the input and the parameters are saved. Weights and biases alternate in ``parameters``.
    What fits in one slice is copied nowhere.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, link: bool, wants_squares: bool, *parameters: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        mlp = _MLP(parameters[::2], parameters[1::2], link)
        ctx.save_for_backward(x, *parameters)
        ctx.link = link
        ctx.set_materialize_grads(False)
        if mlp.is_one_slice(x):
            return mlp.mix(x, wants_squares)
        mixed = x.new_empty(x.shape)
        squares = x.new_empty(x.shape[0], 1, x.shape[2]) if wants_squares else None
        for pairs in mlp.slices(x):
            mixed[pairs], squares_of_slice = mlp.mix(x[pairs], wants_squares)
            if squares is not None and squares_of_slice is not None:
                squares[pairs] = squares_of_slice
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
        with without_autocast(x.device):
            if mlp.is_one_slice(x):
                grad_x, *parameter_grads = mlp.backward(x, grad_mixed, grad_squares)
                return grad_x, None, None, *parameter_grads
            grad_x = x.new_empty(x.shape)
            sums: list[Tensor] = []
            for pairs in mlp.slices(x):
                squares = None if grad_squares is None else grad_squares[pairs]
                grad_x[pairs], *grads = mlp.backward(x[pairs], grad_mixed[pairs], squares)
                sums = [a.add_(b) for a, b in zip(sums, grads, strict=True)] if sums else grads
        return grad_x, None, None, *sums


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
        run = self._run(x)
        group = max(1, run // max(1, pairs))
        for first in range(0, sentences, group):
            for start in range(0, pairs, run):
                yield slice(first, first + group), slice(None), slice(start, start + run)

    def is_one_slice(self, x: Float[Tensor, "batch head pair"]) -> bool:
        """Whether all sentences fit in one slice."""
        return x.shape[0] * x.shape[2] <= self._run(x)

    def _run(self, x: Tensor) -> int:
        """The most pairs of a slice."""
        return max(1, CHUNK.get(x.device.type, CHUNK["cuda"]) // self.biases[0].shape[0])

    def mix(
        self, x: Float[Tensor, "batch head pair"], wants_squares: bool
    ) -> tuple[Float[Tensor, "batch head pair"], Float[Tensor, "batch 1 pair"] | None]:
        """Applies all layers; also returns the squares summed over heads, if they are wanted."""
        y = self.output(x, self.hidden(x)[-1])
        return y, y.square().sum(1, keepdim=True) if wants_squares else None

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
        grad: Float[Tensor, "batch head pair"],
        grad_squares: Float[Tensor, "batch 1 pair"] | None,
    ) -> tuple[Tensor, ...]:
        """The gradients of the input, and of weights and biases in turn."""
        hidden = self.hidden(x)
        if grad_squares is not None:
            y = self.output(x, hidden[-1])
            grad = torch.addcmul(grad, y, grad_squares, value=2)  # of y^2
        grads = [_sum_over_pairs(grad, hidden[-1]), grad.sum((0, 2))]
        grad_hidden = torch.bmm(grad.mT, _expand_to(self.weights[-1], x))
        for layer in range(len(hidden) - 1, 0, -1):
            # True: by the sign of the output, which took the place of the input
            _leaky_backward(grad_hidden, hidden[layer], LEAK, True, grad_input=grad_hidden)
            weight_grad = grad_hidden.flatten(0, 1).T @ hidden[layer - 1].flatten(0, 1)
            grads = [weight_grad, grad_hidden.sum((0, 1)), *grads]
            grad_hidden = grad_hidden @ self.weights[layer]
        _leaky_backward(grad_hidden, hidden[0], LEAK, True, grad_input=grad_hidden)
        grads = [_sum_over_pairs(x, grad_hidden).T, grad_hidden.sum((0, 1)), *grads]
        grad_x = torch.bmm(_expand_to(self.weights[0].T, x), grad_hidden.mT)
        return (grad_x.add_(grad) if self.link else grad_x), *grads


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
    return weight.expand(x.shape[0], -1, -1)
