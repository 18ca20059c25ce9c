"""Validation during training: the ELBO, the best result so far, and early stopping."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from latentheads.batch import Batch
from latentheads.corpora.part import Part
from latentheads.guide import ModelGuide
from latentheads.inference.evaluation import Report, evaluate
from latentheads.model import HeadModel


@dataclass
class Best:
    """The best validation result so far.

    Attributes:
        value: Its metric; minus infinity before the first validation.
        stale: Number of validations since then.
    """

    value: float = -math.inf
    stale: int = 0

    def is_improved_by(self, value: float, model: HeadModel) -> bool:
        """Counts a validation; returns whether its weights replace the best ones.

        With an L0 penalty the latest weights are always kept: the number of open gates falls in
        training.
        """
        self.stale += 1
        is_better = value > self.value or model.l0_penalty is not None
        if is_better:
            self.value, self.stale = value, 0
        return is_better

    def should_stop(self, patience: int) -> bool:
        """Whether the last ``patience`` validations brought no improvement; 0: never."""
        return 0 < patience <= self.stale


def validate(
    model: HeadModel,
    guide: ModelGuide,
    valid: Part | Iterable[Batch],
    step: int,
    metric: str,
    seed: int,
) -> tuple[Report, float]:
    """Evaluates with one sample of the latents per sentence; returns the metric too.

    Raises:
        FloatingPointError: A term of the bound, or the metric, is not finite.
    """
    try:
        report = evaluate(model, guide, valid, seed=seed)
    except FloatingPointError as error:
        raise FloatingPointError(f"step {step}: on validation {error}") from None
    value = getattr(report, metric.replace("-", "_"))
    if not math.isfinite(value):
        raise FloatingPointError(f"step {step}: {metric} on validation is not finite")
    return report, value
