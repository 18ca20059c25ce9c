"""Adapters: a small residual layer for each task, in a network that all tasks share.

Bapna and Firat 2019, https://arxiv.org/abs/1909.08478, who have one on top of each layer. Here a
layer has two, after self-attention and after feed-forward.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.batch import SentenceTasks


@dataclass(frozen=True)
class Adapters:
    """Adapters after the self-attention and after the feed-forward sub-layer of every layer.

    Args:
        width: Hidden width of each.
        sources: Number of tasks that the encoder distinguishes.
        targets: Number of tasks that the decoder distinguishes.
    """

    width: int
    sources: int = 1
    targets: int = 1

    def make(self, side: str, width: int) -> nn.ModuleList:
        """Makes the two adapters of a layer of the encoder or decoder."""
        tasks = self.sources if side == "encoder" else self.targets
        return nn.ModuleList(Adapter(tasks, width, self.width) for _ in range(2))


class Adapter(nn.Module):
    r"""For a sentence of task t, :math:`x + W^t_2\, \mathrm{ReLU}(W^t_1\, \mathrm{norm}_t(x))`.

    It is initialised as the identity.

    Args:
        tasks: Number of tasks.
        width: Model width.
        hidden: Hidden width.
    """

    def __init__(self, tasks: int, width: int, hidden: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(tasks, width))
        self.inner = nn.Parameter(torch.empty(tasks, width, hidden))
        self.inner_bias = nn.Parameter(torch.zeros(tasks, hidden))
        self.outer = nn.Parameter(torch.zeros(tasks, hidden, width))
        self.outer_bias = nn.Parameter(torch.zeros(tasks, width))
        for weight in self.inner:
            nn.init.xavier_uniform_(weight)

    def forward(
        self, x: Float[Tensor, "*batch token dim"], task: SentenceTasks | None
    ) -> Float[Tensor, "*batch token dim"]:
        """Adapts every position.

        Args:
            x: States; sentences are the last dimension before tokens.
            task: The task of every sentence; None: all have the first.
        """
        parts = (self.scale, self.inner, self.inner_bias, self.outer, self.outer_bias)
        if task is None or task.common:
            scale, inner, inner_bias, outer, outer_bias = (
                _of_first_task(part, task) for part in parts
            )
        else:
            scale, inner, inner_bias, outer, outer_bias = (part[task.ids] for part in parts)
            rows = (scale, inner_bias, outer_bias)
            scale, inner_bias, outer_bias = (row.unsqueeze(-2) for row in rows)
        normalised = F.layer_norm(x, x.shape[-1:]) * scale
        hidden = F.relu(torch.matmul(normalised, inner.to(normalised.dtype)) + inner_bias)
        return x + (torch.matmul(hidden, outer.to(hidden.dtype)) + outer_bias)


def _of_first_task(part: Float[Tensor, task * shape], task: SentenceTasks | None) -> Tensor:
    """Selects the parameters of the batch's single task; the index stays on the device."""
    return part[0] if task is None else part.index_select(0, task.ids[:1])[0]
