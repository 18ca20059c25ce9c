"""The checkpoints of a training run: saving and restoring.

They are the full training state, the best weights, those of the last validations, and their
average. Missing or damaged checkpoints are reported in one line, and training goes on without them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from latentheads.console import print_message
from latentheads.errors import UnfinishedError, naming
from latentheads.files import finite
from latentheads.runs.folder import START_ANEW, Folder
from latentheads.training import checkpoints
from latentheads.training.callbacks import Callback
from latentheads.training.checkpoints import weights
from latentheads.training.early_stopping import Best
from latentheads.training.engine import Engine


class CheckpointManager(Callback):
    """Saves and restores the checkpoints of a training run.

    Args:
        folder: The run folder.
        engine: The training engine.
        digest: Digest of the corpus.
        names: Contents, by file name, of the files that are needed to load the weights, besides the
            configuration.

    Attributes:
        best: The best value of the metric so far, and the number of validations since.
        reported: The step of the weights that are reported on; 0 before.
        is_own: Whether a state in the folder is of this run, and of none before.
        averaged: Number of checkpoints whose average is reported on; 0: a single one.
    """

    def __init__(
        self, folder: Folder, engine: Engine, digest: str, names: Mapping[str, str]
    ) -> None:
        self.folder, self.engine = folder, engine
        self.digest, self.names = digest, names
        self.best = Best()
        self.reported, self.averaged = 0, 0
        self.is_own = False

    def begin(self) -> None:
        """Creates the folder, or reopens it for resuming."""
        self.folder.begin(self.engine.step)
        for name, text in self.names.items():
            self.folder.write(name, text)

    def write_missing_files(self) -> None:
        """Writes files again that were removed during training: without them no run is opened."""
        texts = {"config.yaml": self.folder.configuration, **self.names}
        for name, text in texts.items():
            if not (self.folder.path / name).exists():
                self.folder.write(name, text)

    def on_train_begin(self, step: int, steps: int) -> None:
        """Saves the first weights: those made by a user cannot be made again from a seed."""
        self.is_own = True
        if step == 0:
            self.on_save()

    def on_evaluate(self, record: Mapping[str, Any], is_best: bool) -> None:
        """Appends the record to the folder's, and saves the weights if required."""
        training, step = self.engine.training, record["step"]
        self.folder.append(finite(record))
        if is_best:
            self._save(self.folder.best, step)
        number = max(training.keep, training.average)
        if number:
            self._save(self.folder.step_checkpoint(step), step)
            for path in self.folder.step_checkpoints[:-number]:
                path.unlink()

    def _save(self, path: Path, step: int) -> None:
        engine = self.engine
        checkpoints.save(path, weights(model=engine.model, guide=engine.guide), {"step": step})

    def on_save(self) -> None:
        """Saves the full training state; all processes take part, the main one writes."""
        tensors, metadata = self.engine.state()
        if self.engine.rank == 0:
            best_value = self.best.value if math.isfinite(self.best.value) else None
            metadata |= {"best": best_value, "stale": self.best.stale}
            metadata |= {"corpus": self.digest, "steps": self.engine.training.steps}
            checkpoints.save(self.folder.last, tensors, metadata)

    @property
    def saved(self) -> int | None:
        """The step of the last saved state; None without one.

        It is read from the file: a signal may come between writing that and a note of its step.
        """
        try:
            return checkpoints.load(self.folder.last)[1]["step"] if self.is_own else None
        except ValueError:
            return None

    def check(self) -> None:
        """Checks that training can resume from the last state."""
        self._read_state()

    def resume(self) -> None:
        """Resumes from the last state.

        Raises:
            ValueError: It is not possible; nothing is changed.
        """
        tensors, metadata, best = self._read_state()
        if metadata["steps"] < self.engine.training.steps:
            schedule = self._describe_schedule(metadata["step"], self.engine.training.steps)
            self._print_note(f"{self.folder.path}: {schedule}")
            metadata, best.stale = {**metadata, "stopped": False}, 0
        self.best = best
        self._restore(self.folder.last, tensors)
        self.engine.restore(tensors, metadata)
        self.is_own = True
        if self.engine.running and math.isfinite(self.best.value):
            self._reset_missing_best()

    def _read_state(self) -> tuple[dict[str, Any], dict[str, Any], Best]:
        """Reads the last state, and the best metric so far."""
        tensors, metadata = checkpoints.load(self.folder.last)
        with naming(f"cannot resume from {self.folder.last}"):
            self.engine.check(tensors, metadata)
        if metadata["corpus"] != self.digest:
            raise ValueError(
                f"{self.folder.last} was trained on another text: the corpus has changed since; "
                f"{START_ANEW}"
            )
        if metadata["steps"] < self.engine.training.steps:
            self._check_end(metadata)
        best = metadata["best"]
        value = -math.inf if best is None else best
        return tensors, metadata, Best(value, metadata["stale"])

    def _restore(self, path: Path, tensors: dict[str, Any]) -> None:
        checkpoints.restore(path, tensors, model=self.engine.model, guide=self.engine.guide)

    def _check_end(self, metadata: dict[str, Any]) -> None:
        """Checks that a run whose number of steps is increased has finished."""
        step, previous_steps = metadata["step"], metadata["steps"]
        if step < previous_steps and not metadata["stopped"]:
            raise ValueError(
                f"{self.folder.path} has done {step:,} of its {previous_steps:,} steps: more can "
                "be given to a finished run, so let it end first"
            )

    def _describe_schedule(self, step: int, steps: int) -> str:
        """Describes the learning rates of the additional steps."""
        training = self.engine.training
        first, last = (
            training.learning_rate * training.rate_factor(position)
            for position in (step, steps - 1)
        )
        phases = []
        if step < training.warmup:
            phases.append(f"grows until step {min(training.warmup, steps):,}")
        if training.warmup < steps:
            phases.append(f"falls {training.schedule.description} over all {steps:,}")
        return (
            f"{step:,} steps are done, and {steps - step:,} follow; the learning rate "
            f"{' and then '.join(phases)}, from {first:.3g} now to {last:.3g}"
        )

    def _reset_missing_best(self) -> None:
        """Resets the best metric if the best weights are missing or damaged."""
        try:
            checkpoints.load(self.folder.best)
        except ValueError as error:
            self._print_note(f"{error}; the search for the best weights restarts")
            self.best = Best()

    def _print_note(self, note: str) -> None:
        """Prints a note to standard error: standard output may be closed."""
        if self.engine.rank == 0:
            print_message(f"note: {note}", sys.stderr)

    @property
    def _reported_path(self) -> Path:
        """The path of the weights that are reported on: the best, or the average."""
        return self.folder.average if self.engine.training.average else self.folder.best

    def restore_reported(self) -> None:
        """Restores the weights of the report."""
        path = self._reported_path
        tensors, metadata = checkpoints.load(path)
        self._restore(path, tensors)
        self.reported, self.averaged = checkpoints.read_counts(metadata)

    def select_reported(self) -> None:
        """Restores the weights to report on.

        If the best weights are missing or damaged, or no checkpoint is there to average, it takes
        the current ones, and prints a line.

        Raises:
            UnfinishedError: One of several checkpoints that are averaged cannot be read.
        """
        average = self.engine.training.average
        try:
            if average:
                self._save_average(self.folder.step_checkpoints[-average:])
            self.restore_reported()
        except ValueError as error:
            self._print_note(f"{error}; the last weights are reported on")
            self._save(self._reported_path, self.engine.step)
            self.reported, self.averaged = self.engine.step, 0

    def _save_average(self, paths: Sequence[Path]) -> None:
        if not paths:
            raise ValueError("there is no checkpoint to average")
        try:
            tensors = checkpoints.average(paths)
        except ValueError as error:
            raise UnfinishedError(
                f"{error}; it belongs to the average: remove it to average the others"
            ) from error
        metadata = {"step": self.engine.step, "averaged": len(paths)}
        checkpoints.save(self.folder.average, tensors, metadata)
