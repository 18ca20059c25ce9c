"""Callbacks of one function."""

from __future__ import annotations

from collections.abc import Callable

from latentheads.training.callbacks import Callback


class AfterStep(Callback):
    """Calls a function after each step."""

    def __init__(self, function: Callable[[int], object]) -> None:
        self.function = function

    def on_step_end(self, step: int) -> None:
        """Calls it with the number of steps."""
        self.function(step)


class OnSave(Callback):
    """Calls a function where the state should be saved."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function

    def on_save(self) -> None:
        """Calls it."""
        self.function()
