"""A fixed selection: each set of tasks, such as a family of languages, has H heads of its own.

It is the fixed counterpart of a latent selection, like the language-specific heads of Gong, Tang,
Pino and Li 2021, https://arxiv.org/abs/2106.10840.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.latents.network import Choice
from latentheads.latents.selection.selector import TaskSelector
from latentheads.latents.selector import choose_in_order
from latentheads.names import side_of


@dataclass(frozen=True)
class StaticSelector(TaskSelector):
    """Gives each set of tasks H heads of its own; there is no site and no posterior.

    Args:
        heads: H.
        attention_types: The attention types whose blocks select.
        sources: Number of tasks that the encoder distinguishes.
        targets: Number of tasks that the decoder distinguishes.
        source_sets: Index of the set of each of the encoder's tasks, from 0; empty: each task has
            its own set.
        target_sets: The same for the decoder.
    """

    source_sets: tuple[int, ...] = ()
    target_sets: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for side, sets, tasks in (
            ("source", self.source_sets, self.sources),
            ("target", self.target_sets, self.targets),
        ):
            if sets and (len(sets) != tasks or min(sets) < 0):
                raise ValueError(f"{side}_sets must name the set of each of {tasks} tasks")

    def num_candidates(self, attention_type: str) -> int:
        return self.heads * (max(self._sets_of(attention_type)) + 1)

    def _sets_of(self, attention_type: str) -> tuple[int, ...]:
        sets = self.source_sets if side_of(attention_type) == "encoder" else self.target_sets
        return sets or tuple(range(self.num_tasks(attention_type)))

    def prior(self, attention_type: str, like: Tensor) -> None:
        return None

    def sample(
        self, site: str, attention_type: str, like: Tensor
    ) -> Float[Tensor, "task candidate"]:
        owner = torch.arange(self.num_candidates(attention_type), device=like.device) // self.heads
        return torch.stack([owner == index for index in self._sets_of(attention_type)]).to(like)

    def make_choice(self, value: Float[Tensor, "*sentences candidate"]) -> Choice:
        """The heads of the set in ascending order."""
        return choose_in_order(value, self.heads)
