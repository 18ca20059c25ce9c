"""Priors of copy heads: what the choice of a position is conditioned on, a class each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.latents.alignments.jumps import JumpsAfterNull
from latentheads.latents.alignments.priors import Reach
from latentheads.layers.numeric import full_precision
from latentheads.options import Choice, options_class

CopyPriorName = Literal["independent", "chain"]
"""The names of the priors."""


class JumpsOfHeads(JumpsAfterNull):
    """Scores of jumps between the choices of several heads: by position, and by head.

    Args:
        max_jump: The largest jump with a score of its own.
        heads: Number of heads.
    """

    def __init__(self, max_jump: int, heads: int) -> None:
        super().__init__(max_jump)
        self.heads = heads
        self.changes = nn.Parameter(torch.zeros(heads, heads))

    def forward(self, keys: int) -> Float[Tensor, "before choice"]:
        """The score of every pair of choices; the first is generate."""
        choices = torch.arange(keys, device=self.changes.device)
        positions = (choices + self.heads - 1) // self.heads
        scores = super().forward(1 + (keys - 1) // self.heads)[positions][:, positions]
        head = choices[:-1] % self.heads
        return scores + F.pad(full_precision(self.changes)[head][:, head], (1, 0, 1, 0))


@options_class()
class CopyPrior(Choice, ABC):
    """The prior of copy heads: what the choice of a position is conditioned on."""

    chained: ClassVar[bool] = False
    """Whether a token's choice is conditioned on that of the token before."""

    @classmethod
    def choices(cls) -> Mapping[str, type[CopyPrior]]:
        return {"independent": IndependentCopyPrior, "chain": ChainCopyPrior}

    @abstractmethod
    def make_jumps(self, heads: int) -> JumpsAfterNull | None:
        """Makes the scores of jumps between the choices of two neighbouring tokens, if any."""


@options_class()
class IndependentCopyPrior(CopyPrior):
    """A choice is conditioned on the states alone."""

    def make_jumps(self, heads: int) -> None:
        return None


@options_class()
class ChainCopyPrior(CopyPrior):
    """A choice is also conditioned on that of the token before.

    Attributes:
        reach: Each jump between the positions of two tokens has a learned score up to this length;
            longer ones have that of this length.
    """

    chained: ClassVar[bool] = True

    reach: Reach = 3

    def make_jumps(self, heads: int) -> JumpsAfterNull:
        return JumpsAfterNull(self.reach) if heads == 1 else JumpsOfHeads(self.reach, heads)
