"""One distribution of heads of every form."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from latentheads.distributions import (
    CholeskyHeads,
    HeadContext,
    HeadVariable,
    InverseHeads,
    MaskedHeads,
    NormalHeads,
)
from latentheads.guides.autoregressive import MaskedMLP
from tests.tiny import HEADS, jiggle

Make = Callable[[HeadContext], HeadVariable]


def factor() -> Tensor:
    strict = torch.tensor([[0.0, 0.0, 0.0], [0.4, 0.0, 0.0], [-0.3, 0.6, 0.0]])
    return strict + torch.diag(torch.tensor([0.7, 1.2, 0.9]))


def conditioner(scores: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    torch.manual_seed(5)
    network = jiggle(MaskedMLP(HEADS, 2, 0.8).double(), 0.3)
    return lambda values: network(scores, values)


FORMS: dict[str, Make] = {
    "normal": lambda c: NormalHeads(c.scores + 0.3, c, 0.6),
    "normal a head": lambda c: NormalHeads(
        c.scores, c, torch.tensor([0.5, 1.1, 1.7])[:, None, None]
    ),
    "cholesky": lambda c: CholeskyHeads(c.scores - 0.2, c, factor()),
    "inverse": lambda c: InverseHeads(c.scores, c, conditioner(c.scores)),
    "masked": lambda c: MaskedHeads(c.scores, c, conditioner(c.scores)),
}
