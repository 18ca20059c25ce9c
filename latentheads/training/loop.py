"""The loop of every training, in memory or with a folder: steps, evaluations, callbacks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from latentheads.batch import Batch
from latentheads.corpora.part import Part
from latentheads.inference.evaluation import Report
from latentheads.latents.selection.sharing import selection_probabilities
from latentheads.training.callbacks import Callback
from latentheads.training.early_stopping import Best, validate
from latentheads.training.engine import Engine, Progress
from latentheads.training.progress import (
    ProgressBar,
    ProgressDisplay,
    note_long_warmup,
    note_precision,
)


class Loop:
    """Trains a model and its guide up to the last step, or until they get no better.

    Args:
        engine: Makes the steps.
        valid: What the best weights are selected by.
        seed: Of the noise of evaluations.
        callbacks: Called after steps and evaluations, in this order.
        best: The best evaluation of earlier steps.
        quiet: Show no progress.

    Attributes:
        report: The bound and its terms at the best evaluation; None before.
        step: The steps that the best weights have seen.
        history: The record of each evaluation.
    """

    def __init__(
        self,
        engine: Engine,
        valid: Part | Iterable[Batch],
        seed: int,
        callbacks: Sequence[Callback],
        best: Best | None = None,
        quiet: bool = False,
    ) -> None:
        self.engine, self.valid, self.seed = engine, valid, seed
        self.callbacks = [*callbacks]
        self.best = Best() if best is None else best
        self.quiet = quiet
        self.report: Report | None = None
        self.step = 0
        self.history: list[dict[str, Any]] = []

    def run(self) -> None:
        """Trains; the model has the last weights then."""
        engine, training = self.engine, self.engine.training
        if not self.quiet:
            note_long_warmup(training)
            note_precision(engine.precision)
        # the headline of the run states that there is nothing to train
        is_hidden = self.quiet or engine.is_fixed
        with ProgressDisplay(training.steps, engine.step, is_hidden) as display:
            self.callbacks.append(ProgressBar(display))
            for callback in self.callbacks:
                callback.on_train_begin(engine.step, training.steps)
            engine.run(self.evaluate, self.callbacks)
            for callback in self.callbacks:
                callback.on_train_end()

    def evaluate(self, progress: Progress) -> bool:
        """Evaluates on validation and calls the callbacks; returns whether to stop."""
        engine, training, step = self.engine, self.engine.training, progress.step
        report, value = validate(
            engine.model, engine.guide, self.valid, step, training.metric, self.seed
        )
        is_best = self.best.is_improved_by(value, engine.model)
        if is_best:
            self.step, self.report = step, report
        record = asdict(progress) | {
            "valid": dict(report.scores()),
            "kl_by_site": report.kl_by_site,
        }
        if selection := selection_probabilities(engine.guide):
            record["selection"] = {name: p.tolist() for name, p in selection.items()}
        self.history.append(record)
        is_stop = [callback.on_evaluate(record, is_best) for callback in self.callbacks]
        return self.best.should_stop(training.patience) or any(is_stop)
