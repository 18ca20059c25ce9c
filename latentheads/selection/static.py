"""Heads that are given, not drawn: tasks of one set, such as a family of languages, have H each.

The fixed counterpart of a latent selection, as the language-specific heads of Gong, Tang, Pino and
Li 2021, https://arxiv.org/abs/2106.10840.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.layers.numeric import as_tensor_like
from latentheads.names import side_of
from latentheads.selection.selector import Choice, TaskSelector, choose_in_order

__all__ = ["StaticSelector"]


@dataclass(frozen=True)
class StaticSelector(TaskSelector):
    """Gives tasks of one set H heads of their own; there is no site, and no posterior.

    Args:
        heads: H.
        chains: The chains whose blocks select.
        sources: Tasks that the encoder tells apart.
        targets: Tasks that the decoder tells apart.
        source_sets: The set of each of the encoder's tasks, counted from 0; each its own when not
            given.
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
        """H for every set."""
        return self.heads * (max(self._sets_of(attention_type)) + 1)

    def _sets_of(self, attention_type: str) -> tuple[int, ...]:
        sets = self.source_sets if side_of(attention_type) == "encoder" else self.target_sets
        return sets or tuple(range(self.tasks(attention_type)))

    def prior(self, attention_type: str, like: Tensor) -> None:
        """Nothing is drawn."""
        return None

    def posterior(self, attention_type: str, like: Tensor) -> None:
        """Nothing is drawn."""
        return None

    def sample(
        self, site: str, attention_type: str, like: Tensor
    ) -> Float[Tensor, "task candidate"]:
        """Ones at the heads of each task's set, without a site."""
        owner = torch.arange(self.num_candidates(attention_type), device=like.device) // self.heads
        set_index = as_tensor_like(self._sets_of(attention_type), owner)
        return (set_index[:, None] == owner).to(like.dtype)

    def make_choice(self, value: Float[Tensor, "*sentences candidate"]) -> Choice:
        """The heads of the set, in their order."""
        return choose_in_order(value, self.heads)
