"""How a selection of heads is learned: the estimators of its gradient, by name."""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from latentheads.latents.relaxation import Relaxation
from latentheads.options import Choice, name_of_class, options_class

GRADIENTS = {
    "straight-through": "latentheads.latents.selection.gradients:StraightThrough",
    "score": "latentheads.latents.selection.objectives:ScoreFunction",
    "enumerate": "latentheads.latents.selection.objectives:Enumeration",
}
"""The estimators by name; those with an objective of their own stand beside it."""


@options_class()
class SelectionGradient(Choice, ABC):
    """An estimator of the gradient of a selection in the loss ``Head_ELBO``.

    Attributes:
        objective: The class of the objective that it is of; None: ``Head_ELBO`` itself.
    """

    objective: ClassVar[type[Any] | None] = None

    @classmethod
    def choices(cls) -> Mapping[str, type[SelectionGradient]]:
        return {name: pkgutil.resolve_name(path) for name, path in GRADIENTS.items()}

    @abstractmethod
    def temperature_at(self, step: int, steps: int) -> float | None:
        """The temperature at a step counted from 0; None where nothing is relaxed."""

    def is_of(self, loss: object) -> bool:
        """Whether a loss takes this gradient."""
        if self.objective is None:
            return bool(getattr(loss, "relaxes", False))
        return isinstance(loss, self.objective)

    def check_loss(self, loss: object, is_summed_out: bool) -> None:
        """Raises an error for a loss that takes a gradient of its own.

        Args:
            loss: The loss.
            is_summed_out: Whether another latent of the model is summed out.
        """
        name = name_of_class(self)
        if is_summed_out and self.objective is not None:
            raise ValueError(
                f"selection.strategy.gradient {name} weighs selections by sampled sentences, and a "
                "latent is summed out: use straight-through"
            )
        if self != DEFAULT_GRADIENT and not self.is_of(loss):
            own = "Head_ELBO" if self.objective is None else self.objective.__name__
            raise ValueError(
                f"selection.strategy.gradient {name} is of {own}, and {type(loss).__name__} takes "
                "its own gradient: drop one of them"
            )


@options_class()
class StraightThrough(Relaxation, SelectionGradient):
    """Straight through a relaxation: cheap and biased."""


DEFAULT_GRADIENT = StraightThrough()
