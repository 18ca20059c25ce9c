"""Selectors that give each task its own heads: the bases of all selection strategies.

A strategy is one file in this folder: its distribution and its selector; ``strategies.py`` has the
table of their names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from latentheads.latents.latent import LatentModel
from latentheads.latents.selection.gradients import DEFAULT_GRADIENT, SelectionGradient
from latentheads.latents.selector import LatentSelector, Selector
from latentheads.names import side_of


@dataclass(frozen=True)
class TaskSelector(Selector):
    """Selects heads for each task, such as a language or a domain.

    Args:
        heads: H.
        attention_types: The attention types whose blocks select.
        sources: Number of tasks that the encoder distinguishes.
        targets: Number of tasks that the decoder distinguishes.
    """

    has_candidates: ClassVar[bool] = True

    sources: int = 1
    targets: int = 1

    def for_heads(self, heads: int) -> TaskSelector:
        """Returns the selector itself; all blocks must have the same number of heads."""
        if heads != self.heads:
            raise ValueError(
                f"heads are selected for {self.heads} slots in every block: "
                f"ngram_heads must be {self.heads} too, got {heads}"
            )
        return self

    def num_tasks(self, attention_type: str) -> int:
        return self.sources if side_of(attention_type) == "encoder" else self.targets


@dataclass(frozen=True)
class CandidateSelector(TaskSelector, LatentSelector):
    """A latent selection among H' candidates, each with its own queries, keys and values.

    The selected heads fill the H slots of a block, so that the output projection, and all that uses
    logits, are the same as without selection.

    Args:
        heads: H.
        attention_types: The attention types whose blocks select.
        sources: Number of tasks that the encoder distinguishes.
        targets: Number of tasks that the decoder distinguishes.
        candidates: H', more than H.
        gradient: How the selection is learned.
    """

    candidates: int = 0
    gradient: SelectionGradient = DEFAULT_GRADIENT

    def __post_init__(self) -> None:
        if self.candidates <= self.heads:
            raise ValueError(
                f"candidates must be more than the {self.heads} heads, got {self.candidates}"
            )
        super().__post_init__()

    @property
    def objective(self) -> type[Any] | None:
        return self.gradient.objective

    def check_loss(self, model: LatentModel, loss: object) -> None:
        self.gradient.check_loss(loss, model.is_summed_out)

    def temperature_at(self, step: int, steps: int) -> float | None:
        return self.gradient.temperature_at(step, steps)

    def num_candidates(self, attention_type: str) -> int:
        return self.candidates

    def initial_logits(self, attention_type: str, like: Tensor) -> Float[Tensor, "task candidate"]:
        """Zeros: all candidates are equally probable."""
        return like.new_zeros(self.num_tasks(attention_type), self.candidates)
