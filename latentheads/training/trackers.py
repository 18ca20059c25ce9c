"""Trackers of experiments, by name: TensorBoard, trackio, wandb and others of accelerate.

See `accelerate's guide <https://huggingface.co/docs/accelerate/usage_guides/tracking>`_.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from latentheads.checks import check_choice, check_list
from latentheads.packages import MissingPackageError
from latentheads.training.callbacks import Callback

PROJECT = "latentheads"
"""The project that runs belong to, and the folder of TensorBoard within that of a run."""


def check_trackers(names: Sequence[str]) -> None:
    """Raises an error unless accelerate has all trackers and their packages are installed."""
    check_list("trackers", names)
    if not names:
        return
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers

    available = {str(tracker) for tracker in get_available_trackers()}
    for name in names:
        check_choice("tracker", name, LOGGER_TYPE_TO_CLASS)
        if name not in available:
            raise MissingPackageError(f"tracker {name} needs its package: pip install {name}")


class Tracking(Callback):
    """Hands every number of an evaluation to the trackers of an accelerator."""

    def __init__(self, accelerator: Any) -> None:
        self.accelerator = accelerator

    def on_train_begin(self, step: int, steps: int) -> None:
        """Starts the trackers, in the place of those of an earlier call."""
        self.accelerator.trackers.clear()
        self.accelerator.init_trackers(PROJECT)

    def on_evaluate(self, record: Mapping[str, Any], is_best: bool) -> None:
        """Hands on progress, scores and the KL of every site."""
        groups = {"valid": record["valid"], "kl": record["kl_by_site"]}
        groups["train"] = {name: value for name, value in record.items() if name != "step"}
        values = {
            f"{group}/{name}": value
            for group, numbers in groups.items()
            for name, value in numbers.items()
            if isinstance(value, int | float)
        }
        self.accelerator.log(values, step=record["step"])
