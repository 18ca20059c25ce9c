r"""Gates that may close heads for good: one Hard Concrete gate a head, shared by all sentences.

What a head says is multiplied by its gate, as Voita et al. (2019,
https://arxiv.org/abs/1905.09418) do. The gates are a global latent
of the model: drawn once for all sentences, with a posterior of their own in every guide, and a KL
that is counted once for the data set.

Pressure on the gates is a training term, :math:`\Lambda \sum_h q(z_h > 0)` with
:math:`\Lambda = \lambda N` for N target tokens: the :math:`L_0` penalty. Up to a constant it is
what a prior of :math:`\mathrm{logit}\,\pi - \Lambda` adds to the KL, and so it is
computed. A reported bound counts the KL from the prior :math:`\pi` itself.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from latentheads.errors import print_message
from latentheads.selection.hard_concrete import HardConcrete
from latentheads.selection.selector import Choice, LatentSelector

__all__ = ["GateController", "Gating", "L0Penalty"]


class L0Penalty(nn.Module):
    """What an open gate costs while training, in nats for the whole data set; kept with the model.

    Args:
        value: Where it starts.
    """

    value: Tensor

    def __init__(self, value: float = 0.0) -> None:
        super().__init__()
        self.register_buffer("value", torch.tensor(float(value)))

    def forward(self) -> float | Tensor:
        """The pressure; none in evaluation."""
        return self.value if self.training else 0.0


@dataclass(frozen=True)
class Gating(LatentSelector):
    """How a model's heads are gated: each has a place of its own and a gate in it, for all tasks.

    Args:
        heads: H, the heads of a block, and its candidates too.
        chains: The chains whose heads are gated.
        gate_open: pi, the prior probability that a gate is open.
        gate_start: log alpha, where every gate starts.
        gate_temperature: beta.
        pressure: What an open gate costs while training.
    """

    gain: ClassVar[float] = 30.0

    gate_open: float = 0.5
    gate_start: float = 3.0
    gate_temperature: float = 0.33
    pressure: L0Penalty = field(default_factory=L0Penalty)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.gate_open < 1:
            raise ValueError(f"gate_open must lie between 0 and 1, got {self.gate_open}")
        if not self.gate_temperature > 0:
            raise ValueError(f"gate_temperature must be positive, got {self.gate_temperature}")
        if not math.isfinite(self.gate_start):
            raise ValueError(f"gate_start must be finite, got {self.gate_start}")

    def for_heads(self, heads: int) -> Gating:
        """The same gates for a block with a number of heads, under the same pressure."""
        return self if heads == self.heads else replace(self, heads=heads)

    def num_candidates(self, attention_type: str) -> int:
        """Every head has a gate."""
        return self.heads

    def tasks(self, attention_type: str) -> int:
        """All tasks share the gates."""
        return 1

    def distribution(
        self, logits: Float[Tensor, "*batch candidate"], temperature: float | None = 1.0
    ) -> HardConcrete:
        """The law of the gates, with a temperature of its own: it needs no relaxation."""
        return HardConcrete(logits, self.gate_temperature)

    def prior(self, attention_type: str, like: Tensor) -> HardConcrete:
        """Every gate open with probability pi, less under pressure."""
        logit = like.new_full((1, self.heads), math.log(self.gate_open / (1 - self.gate_open)))
        return HardConcrete.with_open(logit - self.pressure(), self.gate_temperature)

    def start(self, attention_type: str, like: Tensor) -> Float[Tensor, "task candidate"]:
        """Where a posterior starts: every gate at the same place."""
        return like.new_full((1, self.heads), self.gate_start)

    def choose(
        self,
        value: Float[Tensor, "*draw task candidate"],
        task: Int[Tensor, " sentence"] | None,
        common: bool = False,
        num_samples: int = 1,
    ) -> Choice:
        """The gates, whatever the task."""
        if num_samples == 1:
            return super().choose(value, None, True)
        # several draws need to know the sentences, but a draw has the row of one task alone
        return super().choose(
            value, None if task is None else torch.zeros_like(task), False, num_samples
        )

    def make_choice(self, value: Float[Tensor, "*sentences candidate"]) -> Choice:
        """Every head stands in its own place, behind its gate."""
        return Choice(value)


class GateController:
    r"""Closes gates while training, until a given number is open: a Lagrangian.

    After every update the pressure grows where too many gates are open, and shrinks where too few
    are,

    .. math:: \Lambda \leftarrow \max(0, \Lambda + r N (E[\text{open}] - H_t)),

    while the wanted number :math:`H_t` falls from all heads to ``gate_heads`` in the first half of
    training.

    Args:
        model: A model with gates.
        guide: Its guide.
        gate_heads: Heads that stay open.
        steps: Updates of the whole training.
        gate_rate: r, in nats a target token for one head too many.
        tokens: N, target tokens of the data set.
        quiet: Do not note at the end that another number is open.

    Raises:
        ValueError: ``gate_heads`` is no number of gated heads.
    """

    def __init__(
        self,
        model: Any,
        guide: Any,
        gate_heads: int,
        steps: int,
        gate_rate: float,
        tokens: int,
        quiet: bool = False,
    ) -> None:
        self.pressure: L0Penalty = model.selector.pressure
        self.families = list(guide.selections.values())
        self.gated = sum(family.logits.numel() for family in self.families)
        if not 0 <= gate_heads < self.gated:
            raise ValueError(f"gate_heads must lie in 0 ... {self.gated - 1}, got {gate_heads}")
        self.gate_heads, self.steps = gate_heads, steps
        self.gate_rate, self.tokens, self.quiet = gate_rate, tokens, quiet

    def target_heads(self, step: int) -> float:
        """Heads that are to be open after some updates."""
        share = min(1.0, 2 * step / self.steps)
        return self.gated + share * (self.gate_heads - self.gated)

    @torch.no_grad()
    def expected(self) -> Tensor:
        """Heads that are open on average."""
        return torch.stack([family().open.sum() for family in self.families]).sum()

    @torch.no_grad()
    def __call__(self, step: int) -> None:
        """Moves the pressure after an update."""
        excess = self.expected() - self.target_heads(step)
        self.pressure.value += self.gate_rate * self.tokens * excess
        self.pressure.value.clamp_(min=0)
        if step >= self.steps and not self.quiet:
            self._warn_missed()

    def _warn_missed(self) -> None:
        """Notes at the end of training that another number of heads is open than was wanted."""
        num_open = sum(int((family().mode > 0).sum()) for family in self.families)
        if num_open != self.gate_heads:
            print_message(
                f"note: {num_open} of {self.gated} gated heads stay open, where gate_heads wanted "
                f"{self.gate_heads}: train longer, on more text, or with another gate_rate",
                sys.stderr,
            )
