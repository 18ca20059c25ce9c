"""Callbacks: methods that training calls, for checkpoints, progress and trackers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentheads.checks import check_instance, check_list


class Callback:
    """Methods that training calls; a subclass overrides those that it needs, all do nothing here.

    With several processes each has its own callbacks, and only the first process evaluates. Random
    numbers that a callback samples are the caller's: training has a stream of its own.

    Attributes:
        quiet: Print nothing.

    Example:
        >>> class Bounds(Callback):
        ...     def on_evaluate(self, record, is_best):
        ...         print(record["step"], is_best, "elbo" in record["valid"])
        >>> options = {"steps": 2, "warmup_steps": 1, "quiet": True}
        >>> fitted = lh.fit(model, guide, [batch], callbacks=[Bounds()], **options)
        1 True True
        2 True True
    """

    quiet: bool = False

    def on_train_begin(self, step: int, steps: int) -> None:
        """Is called before the first step.

        Args:
            step: Steps that were done before.
            steps: Steps of the whole training.
        """

    def on_step_end(self, step: int) -> None:
        """Is called after each step; it must not wait for another thread that runs a model.

        Args:
            step: Steps done.
        """

    def on_evaluate(self, record: Mapping[str, Any], is_best: bool) -> bool | None:
        """Is called after each evaluation on validation; if it returns True, training stops.

        Args:
            record: Its step, ``objective``, ``learning_rate``, ``gradient_norm`` and speed, the
                scores of ``valid``, and ``kl_by_site``: a line of ``metrics.jsonl``.
            is_best: Whether these weights are the best so far.
        """

    def on_save(self) -> None:
        """Is called by every process where the state of the training should be saved."""

    def on_train_end(self) -> None:
        """Is called when training has ended; not if it was interrupted."""


def list_callbacks(callbacks: Any) -> list[Callback]:
    """Lists callbacks, after a check that they are some."""
    check_list("callbacks", callbacks)
    listed = list(callbacks)
    for callback in listed:
        check_instance("callbacks", callback, Callback, "objects of classes derived from Callback")
    return listed
