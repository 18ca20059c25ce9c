"""How a selection of heads is learned: the estimators of its gradient, by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from latentheads.latents.relaxation import Relaxation
from latentheads.options import Choice, options_class


@options_class()
class SelectionGradient(Choice, ABC):
    """An estimator of the gradient of a selection in the loss ``Head_ELBO``."""

    @classmethod
    def choices(cls) -> Mapping[str, type[SelectionGradient]]:
        """The estimators by name."""
        kinds: list[tuple[str, type[SelectionGradient]]] = [
            ("straight-through", StraightThrough),
            ("score", ScoreFunction),
            ("enumerate", Enumeration),
        ]
        return dict(kinds)

    @abstractmethod
    def temperature_at(self, step: int, steps: int) -> float | None:
        """The temperature at a step counted from 0; None where nothing is relaxed."""


@options_class()
class StraightThrough(Relaxation, SelectionGradient):
    """Straight through a relaxation: cheap and biased."""


@options_class()
class ScoreFunction(SelectionGradient):
    """By the scores of two draws a batch: unbiased, at twice the work of the network."""

    def temperature_at(self, step: int, steps: int) -> None:
        """None: nothing is relaxed."""
        return


@options_class()
class Enumeration(SelectionGradient):
    """From all choices of all blocks: exact, where they are few."""

    def temperature_at(self, step: int, steps: int) -> None:
        """None: nothing is relaxed."""
        return


DEFAULT_GRADIENT = StraightThrough()
