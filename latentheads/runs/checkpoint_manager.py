"""The checkpoints of a training: written to its folder, and taken up again.

They are its whole state, the best weights, those of the last evaluations and their average. A line
tells which are lost or damaged, and how training goes on without them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from latentheads.errors import print_message
from latentheads.runs.folder import Folder
from latentheads.training import checkpoints
from latentheads.training.checkpoints import weights
from latentheads.training.early_stopping import Best, ValidationResult
from latentheads.training.engine import Engine

__all__ = ["CheckpointManager"]


class CheckpointManager:
    """Writes the checkpoints of a training, and takes them up again.

    Args:
        folder: The run folder.
        engine: What trains.
        digest: Tells the corpus from every other.
        names: Texts of the files beside the configuration that are needed to read the weights.

    Attributes:
        best: The best value of the metric so far, and the evaluations since.
        reported: The step whose weights are reported on; 0 before.
        saved: The step of the state that was saved last; None before.
        averaged: How many checkpoints the reported weights are the average of; 0: they are of one.
    """

    def __init__(
        self, folder: Folder, engine: Engine, digest: str, names: Mapping[str, str]
    ) -> None:
        self.folder, self.engine = folder, engine
        self.digest, self.names = digest, names
        self.best = Best()
        self.reported, self.averaged = 0, 0
        self.saved: int | None = None

    @property
    def main(self) -> bool:
        """Whether this process is the one that writes and speaks."""
        return self.engine.rank == 0

    def begin(self) -> None:
        """Makes the folder, or takes it up where training goes on."""
        self.folder.begin(self.engine.step)
        self._write_names()

    def _write_names(self) -> None:
        for name, text in self.names.items():
            self.folder.write(name, text)

    def mend_folder(self) -> None:
        """Writes again the files that were removed while this was training."""
        names = ["config.yaml", *self.names]
        gone = [name for name in names if not (self.folder.path / name).exists()]
        if gone:
            self.folder.write("config.yaml", self.folder.configuration)
            self._write_names()
            self._print_line(f"{self.folder.path} had lost {', '.join(gone)}: written again")

    def keep(self, found: ValidationResult) -> bool:
        """Keeps the weights of an evaluation where they are worth it; True: stop here."""
        training, step = self.engine.training, found.progress.step
        if self.best.is_improved_by(found, self.engine.model):
            self._save(self.folder.best, step)
        kept = max(training.keep, training.average)
        if kept:
            self._save(self.folder.at(step), step)
            for old in self.folder.kept[:-kept]:
                old.unlink()
        return self.best.should_stop(training.patience)

    def _save(self, path: Path, step: int) -> None:
        engine = self.engine
        checkpoints.save(path, weights(model=engine.model, guide=engine.guide), {"step": step})

    def save_state(self) -> None:
        """Saves everything to go on from; every process takes part, the first one writes."""
        tensors, facts = self.engine.state()
        if self.main:
            best = self.best.value if math.isfinite(self.best.value) else None
            facts |= {"best": best, "stale": self.best.stale}
            facts |= {"corpus": self.digest, "steps": self.engine.training.steps}
            checkpoints.save(self.folder.last, tensors, facts)
        self.saved = self.engine.step

    def check(self) -> None:
        """Refuses a last state that cannot be gone on from.

        Raises:
            ValueError: It says why.
        """
        self._read_state()

    def resume(self) -> None:
        """Goes on from the last state.

        Raises:
            ValueError: It cannot be gone on from; nothing is changed.
        """
        tensors, facts, best = self._read_state()
        if _read_steps(facts) < self.engine.training.steps:
            self._say_more(facts["step"])
            facts, best.stale = {**facts, "stopped": False}, 0
        self.best = best
        self._restore(self.folder.last, tensors)
        self.engine.restore(tensors, facts)
        self.saved = self.engine.step
        if self.engine.running and math.isfinite(self.best.value):
            self._forget_lost_best()

    def _read_state(self) -> tuple[dict[str, Any], dict[str, Any], Best]:
        """The last state, and the best metric so far.

        Raises:
            ValueError: It cannot be gone on from.
        """
        tensors, facts = checkpoints.load(self.folder.last)
        try:
            self.engine.check(tensors, facts)
            best = _read_best(facts)
            before = _read_steps(facts)
        except ValueError as reason:
            raise ValueError(f"{self.folder.last} cannot be gone on from: {reason}") from reason
        if facts.get("corpus") != self.digest:
            raise ValueError(
                f"{self.folder.last} was trained on another text: the corpus has changed since; "
                "choose another out or overwrite=True"
            )
        if before < self.engine.training.steps:
            self._check_end(facts, before)
        return tensors, facts, best

    def _restore(self, path: Path, tensors: dict[str, Any]) -> None:
        checkpoints.restore(path, tensors, model=self.engine.model, guide=self.engine.guide)

    def _check_end(self, facts: dict[str, Any], before: int) -> None:
        """Refuses more updates for a run that is not at the end of those that it was to have."""
        step = facts["step"]
        if step < before and not facts["stopped"]:
            raise ValueError(
                f"{self.folder.path} has done {step:,} of its {before:,} steps: more can be given "
                "to a finished run, so let it end first"
            )

    def _say_more(self, step: int) -> None:
        """Says how a finished run that is to have more updates goes on."""
        schedule = self._say_schedule(step, self.engine.training.steps)
        self._print_line(f"{self.folder.path}: {schedule}")

    def _say_schedule(self, step: int, steps: int) -> str:
        """Which learning rates hold where a run is given more updates."""
        training = self.engine.training
        first, last = (training.learning_rate * training.rate(at) for at in (step, steps - 1))
        course = []
        if step < training.warmup:
            course.append(f"grows until update {min(training.warmup, steps):,}")
        if training.warmup < steps:
            course.append(f"falls {training.schedule.description} over all {steps:,}")
        return (
            f"{step:,} updates are done, and {steps - step:,} follow; the learning rate "
            f"{' and then '.join(course)}, from {first:.3g} now to {last:.3g}"
        )

    def _forget_lost_best(self) -> None:
        """Forgets the best metric where the best weights are lost: the next ones are the best."""
        try:
            checkpoints.load(self.folder.best)
        except ValueError as reason:
            self._print_line(f"{reason}; the best weights are looked for anew")
            self.best = Best()

    def _print_line(self, line: str) -> None:
        """Tells a line beside the progress: standard output may have lost its reader."""
        if self.main:
            print_message(line, sys.stderr)

    @property
    def _reported(self) -> Path:
        """The weights that are reported on: the best, or the average of the last."""
        return self.folder.average if self.engine.training.average else self.folder.best

    def restore_reported(self) -> None:
        """Takes the weights that the figures of the folder are of."""
        path = self._reported
        tensors, facts = checkpoints.load(path)
        self._restore(path, tensors)
        self.reported = checkpoints.read_step(path, facts)
        self.averaged = checkpoints.read_averaged(path, facts)

    def choose(self) -> None:
        """Takes the weights to report on.

        Where those are lost, it takes the last ones, which it has, and says so.
        """
        average = self.engine.training.average
        try:
            if average:
                self._save_average(self._whole_ones(self.folder.kept[-average:]))
            self.restore_reported()
        except ValueError as reason:
            self._print_line(f"{reason}; the figures are of the last weights")
            self._save(self._reported, self.engine.step)
            self.reported, self.averaged = self.engine.step, 0

    def _save_average(self, kept: Sequence[Path]) -> None:
        facts = {"step": self.engine.step, "averaged": len(kept)}
        checkpoints.save(self.folder.average, checkpoints.average(kept), facts)

    def _whole_ones(self, paths: Sequence[Path]) -> list[Path]:
        """Those checkpoints that can be read; others are told."""
        found = []
        for path in paths:
            try:
                checkpoints.load(path)
            except ValueError as reason:
                self._print_line(f"{reason}; it is left out of the average")
            else:
                found.append(path)
        return found


def _read_best(facts: Mapping[str, Any]) -> Best:
    """The best value of the metric so far, and the evaluations since."""
    best, stale = facts.get("best"), facts.get("stale")
    if not isinstance(best, float | None) or type(stale) is not int:
        raise ValueError(f"best and stale must be numbers, got {best!r} and {stale!r}")
    return Best(-math.inf if best is None else best, stale)


def _read_steps(facts: Mapping[str, Any]) -> int:
    """The updates of the training that a state is of."""
    steps = facts.get("steps")
    if type(steps) is not int:
        raise ValueError(f"steps must be a whole number, got {steps!r}")
    return steps
