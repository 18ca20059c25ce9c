r"""Optimizers: AdamW, Nesterov's accelerated gradient, and Muon beside AdamW.

Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) replaces the momentum of a
matrix by the nearest orthogonal matrix, :math:`U V^T` of its SVD :math:`U S V^T`, so that every
direction of the matrix moves by the same amount. Five Newton-Schulz steps come near enough. Only
the matrices of hidden layers are trained so; tables of embeddings, biases, gains and scales keep
AdamW. Updates are scaled to the size of AdamW's (Liu et al. 2025,
https://arxiv.org/abs/2502.16982), so that one learning rate serves both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from latentheads.layers.output import Output

PROJECTIONS = ("in_weight", "in_proj_weight")
"""Names of matrices that hold the queries', keys' and values' projections of attention."""


class Muon(torch.optim.Muon):
    """``torch.optim.Muon``, with matrices of one shape orthogonalised together.

    A network has dozens of matrices of few shapes. One at a time they cost a CPU up to three times
    as much, and a GPU a kernel each.
    """

    # a GradScaler then gives its scale and what it found, and does not wait to read them
    _step_supports_amp_scaling = True

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Takes one step; see ``torch.optim.Muon``."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            same_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    same_shape[parameter.shape].append(parameter)
            for parameters in same_shape.values():
                self._update(parameters, group)
        return loss

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Updates matrices of one shape."""
        buffers = []
        for parameter in parameters:
            state = self.state[parameter]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            buffers.append(state["momentum_buffer"])
        gradients = torch.stack([p.grad for p in parameters if p.grad is not None])
        momenta = torch.stack(buffers)
        if (grad_scale := getattr(self, "grad_scale", None)) is not None:
            gradients = gradients / grad_scale
        step_factor: Tensor | float = 1.0
        if (found_inf := getattr(self, "found_inf", None)) is not None:
            gradients = torch.where(found_inf > 0, momenta, gradients)
            step_factor = 1 - found_inf
        momentum, rate = group["momentum"], float(group["lr"])
        momenta = momenta.lerp(gradients, 1 - momentum)
        torch._foreach_copy_(buffers, list(momenta.unbind()))
        updates = orthogonalise(
            gradients.lerp(momenta, momentum),
            group["ns_coefficients"],
            group["ns_steps"],
            group["eps"],
        )
        # the root mean square of AdamW's updates is about 0.2
        scale = 0.2 * max(parameters[0].shape) ** 0.5
        changes = updates.to(momenta.dtype) * (-rate * scale * step_factor)
        for parameter, change in zip(parameters, changes.unbind(), strict=True):
            parameter.mul_(1 - rate * group["weight_decay"] * step_factor).add_(change)


class NAG(torch.optim.SGD):
    r"""Nesterov's accelerated gradient with decoupled weight decay, as in AdamW.

    .. math:: v \leftarrow \mu v + g, \qquad
              p \leftarrow (1 - \eta \lambda) p - \eta (g + \mu v)

    The decay of ``torch.optim.SGD`` is a part of g, so that momentum multiplies it by up to
    :math:`1 / (1 - \mu)`.

    Args:
        parameters: What is trained.
        lr: :math:`\eta`.
        momentum: :math:`\mu`; 0: plain gradient descent.
        weight_decay: :math:`\lambda`; in groups ``decoupled_weight_decay``.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], lr: float, momentum: float, weight_decay: float
    ) -> None:
        super().__init__(parameters, lr, momentum, nesterov=momentum > 0, fused=True)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = weight_decay

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Takes one step; see ``torch.optim.SGD``."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        found_inf = getattr(self, "found_inf", None)
        step_factor: Tensor | float = 1.0 if found_inf is None else 1 - found_inf
        for group in self.param_groups:
            shrinkage = float(group["lr"]) * group["decoupled_weight_decay"]
            if shrinkage:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.mul_(1 - shrinkage * step_factor)
        super().step()
        return loss


class Optimizers:
    """Several optimizers of one training, as a ``GradScaler`` takes one.

    So a gradient of one parameter that is not finite keeps all of them from moving, not those alone
    that share its optimizer.

    Args:
        optimizers: Those of the training.
    """

    _step_supports_amp_scaling = True

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self.optimizers = optimizers

    def __iter__(self) -> Iterator[torch.optim.Optimizer]:
        return iter(self.optimizers)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all."""
        return [group for optimizer in self for group in optimizer.param_groups]

    def step(self) -> None:
        """Takes a step of each, with what a scaler has found in all gradients."""
        scaling = {name: getattr(self, name, None) for name in ("grad_scale", "found_inf")}
        for optimizer in self:
            for name, value in scaling.items():
                if value is not None:
                    setattr(optimizer, name, value)
            try:
                optimizer.step()
            finally:
                for name, value in scaling.items():
                    if value is not None:
                        delattr(optimizer, name)

    def zero_grad(self) -> None:
        """Clears the gradients of all."""
        for optimizer in self:
            optimizer.zero_grad(set_to_none=True)


def orthogonalise(
    matrices: Float[Tensor, "matrix row column"],
    coefficients: tuple[float, float, float],
    steps: int,
    eps: float,
) -> Float[Tensor, "matrix row column"]:
    r"""Nearly the orthogonal factor of each matrix, by Newton-Schulz steps in bfloat16.

    .. math:: X \leftarrow a X + (b X X^T + c (X X^T)^2) X, \qquad
              X_0 = M / \lVert M \rVert_F

    Args:
        matrices: Of one shape.
        coefficients: :math:`a, b, c`.
        steps: How many.
        eps: The least norm that is divided by.
    """
    a, b, c = coefficients
    x = matrices.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def hidden_matrices(module: nn.Module) -> Iterator[nn.Parameter]:
    """The matrices of linear layers and attention, but for tables of embeddings and the output."""
    tables: set[int] = set()
    for part in module.modules():
        if isinstance(part, nn.Embedding | Output):
            tables |= {id(parameter) for parameter in part.parameters()}
        head = getattr(part, "get_output_embeddings", None)  # of a network of transformers
        if callable(head) and (output := head()) is not None:
            tables |= {id(parameter) for parameter in output.parameters()}
    for part in module.modules():
        linear = isinstance(part, nn.Linear) or type(part).__name__ == "Conv1D"  # that of GPT-2
        for name, parameter in part.named_parameters(recurse=False):
            matrix = name in PROJECTIONS or (linear and name == "weight")
            if matrix and parameter.ndim == 2 and id(parameter) not in tables:
                yield parameter


def make_adamw(
    parameters: Sequence[nn.Parameter], learning_rate: float, weight_decay: float
) -> torch.optim.AdamW:
    """AdamW, with the betas of Vaswani et al. 2017, https://arxiv.org/abs/1706.03762."""
    return torch.optim.AdamW(
        parameters, learning_rate, (0.9, 0.98), weight_decay=weight_decay, fused=True
    )


def make_muon(
    module: nn.Module, learning_rate: float, weight_decay: float
) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of hidden layers, and AdamW for all other parameters."""
    matrices = {id(matrix): matrix for matrix in hidden_matrices(module)}
    rest = [p for p in module.parameters() if id(p) not in matrices]
    adamw = [make_adamw(rest, learning_rate, weight_decay)] if rest else []
    if not matrices:
        return [*adamw]
    return [Muon(matrices.values(), learning_rate, weight_decay=weight_decay), *adamw]
