r"""Hard Concrete gates that prune heads: one gate per head, shared by all sentences.

The output of a head is multiplied by its gate, as in Voita et al. (2019,
https://arxiv.org/abs/1905.09418). The gates are global latent variables: they are sampled once for
all sentences, every guide has a posterior of them, and their KL counts once for the data set.

The :math:`L_0` penalty is a training term, :math:`\Lambda \sum_h q(z_h > 0)` with
:math:`\Lambda = \lambda N` for N target tokens. Up to a constant it equals what a prior with
:math:`\mathrm{logit}\,\pi - \Lambda` adds to the KL, and is computed so. A reported bound uses the
prior :math:`\pi` itself.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.checks import check_fraction, check_positive, check_within
from latentheads.console import print_message
from latentheads.latents.gates.hard_concrete import HardConcrete
from latentheads.latents.l0_penalty import L0Penalty
from latentheads.latents.latent import HasPosteriors
from latentheads.latents.network import Choice
from latentheads.latents.selector import LatentSelector, SelectionFamily
from latentheads.training.callbacks import Callback

LARGEST_FLOAT = torch.finfo(torch.float32).max
"""Beyond it is infinity, in the precision of weights."""


@dataclass(frozen=True)
class Gating(LatentSelector):
    """Gates of a model's heads: each head has its own slot and a gate, for all tasks.

    Args:
        heads: H, the heads of a block, which are also its candidates.
        attention_types: The attention types whose heads are gated.
        gate_open: pi, the prior probability that a gate is open.
        gate_start: log alpha of every gate at initialisation.
        gate_temperature: beta.
        l0_penalty: The penalty of an open gate in training.
    """

    name: ClassVar[str] = "gates"
    is_foldable: ClassVar[bool] = True
    gain: ClassVar[float] = 30.0

    gate_open: float = 0.5
    gate_start: float = 3.0
    gate_temperature: float = 0.33
    l0_penalty: L0Penalty = field(default_factory=L0Penalty, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction("gate_open", self.gate_open)
        check_positive("gate_temperature", self.gate_temperature)
        if not abs(self.gate_start) < LARGEST_FLOAT:
            raise ValueError(f"gate_start must be finite, got {self.gate_start}")

    @property
    def penalty(self) -> L0Penalty:
        """The L0 penalty of an open gate; all blocks share it."""
        return self.l0_penalty

    def for_heads(self, heads: int) -> Gating:
        return self if heads == self.heads else replace(self, heads=heads)

    def num_candidates(self, attention_type: str) -> int:
        return self.heads

    def num_tasks(self, attention_type: str) -> int:
        """1: all tasks share the gates."""
        return 1

    def distribution(
        self, logits: Float[Tensor, "*batch candidate"], temperature: float | None = 1.0
    ) -> HardConcrete:
        """Makes the distribution of the gates, with its own temperature: it needs no relaxation."""
        return HardConcrete(logits, self.gate_temperature)

    def prior(self, attention_type: str, like: Tensor) -> HardConcrete:
        """Every gate is open with probability pi, or less by the L0 penalty in training."""
        logit = like.new_full((1, self.heads), math.log(self.gate_open / (1 - self.gate_open)))
        return HardConcrete.with_open(logit - self.l0_penalty(), self.gate_temperature)

    def initial_logits(self, attention_type: str, like: Tensor) -> Float[Tensor, "task candidate"]:
        """The same log alpha for every gate."""
        return like.new_full((1, self.heads), self.gate_start)

    def choose(
        self,
        value: Float[Tensor, "*sample task candidate"],
        task: Int[Tensor, " sentence"] | None,
        common: bool = False,
        num_samples: int = 1,
    ) -> Choice:
        if num_samples == 1:
            return super().choose(value, None, True)
        # samples are matched to sentences by their tasks, and gates have the row of a single task
        return super().choose(
            value, None if task is None else torch.zeros_like(task), False, num_samples
        )

    def make_choice(self, value: Float[Tensor, "*sentences candidate"]) -> Choice:
        return Choice(value)


class GateController(Callback):
    r"""Adapts the L0 penalty in training until a given number of gates is open: a Lagrangian.

    After every step the penalty increases if too many gates are open, and decreases if too few
    are,

    .. math:: \Lambda \leftarrow \max(0, \Lambda + r N (E[\text{open}] - H_t)),

    while the target :math:`H_t` decreases from all heads to ``gate_heads`` in the first half of
    training.

    Args:
        model: A model with gates.
        guide: Its guide.
        gate_heads: Target number of open gates.
        steps: Optimiser steps of the whole training.
        gate_rate: r, in nats per target token for one head too many.
        tokens: N, target tokens of the data set.
        quiet: Do not warn at the end of training if another number of gates is open.

    Raises:
        ValueError: ``gate_heads`` is below 1, or not less than the number of gates.
    """

    def __init__(
        self,
        model: Any,
        guide: HasPosteriors,
        gate_heads: int,
        steps: int,
        gate_rate: float,
        tokens: int,
        quiet: bool = False,
    ) -> None:
        self.l0_penalty: L0Penalty = model.selector.l0_penalty
        self.families = list(guide.find_posteriors(SelectionFamily).values())
        self.gated = sum(family.logits.numel() for family in self.families)
        check_within("gate_heads", gate_heads, 1, self.gated - 1)
        self.gate_heads, self.steps = gate_heads, steps
        self.gate_rate, self.tokens, self.quiet = gate_rate, tokens, quiet

    def target_heads(self, step: int) -> float:
        """The target number of open gates after some steps."""
        progress = min(1.0, 2 * step / self.steps)
        return self.gated + progress * (self.gate_heads - self.gated)

    @torch.no_grad()
    def expected_heads(self) -> Tensor:
        """The expected number of open gates."""
        return torch.stack([family().open.sum() for family in self.families]).sum()

    @torch.no_grad()
    def on_step_end(self, step: int) -> None:
        excess = self.expected_heads() - self.target_heads(step)
        self.l0_penalty.value += self.gate_rate * self.tokens * excess
        self.l0_penalty.value.clamp_(min=0)
        if step >= self.steps and not self.quiet:
            self._warn_missed()

    def _warn_missed(self) -> None:
        """Warns at the end of training if the number of open gates is not ``gate_heads``."""
        num_open = sum(int((family().mode > 0).sum()) for family in self.families)
        if num_open != self.gate_heads:
            print_message(
                f"note: {num_open} of {self.gated} gated heads stay open, not "
                f"{self.gate_heads}: train longer, on more text, or at another rate",
                sys.stderr,
            )
