"""A look at a training: the bound on validation, as a record and as a line, and the best so far."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from latentheads.batch import Batch
from latentheads.corpora import Part
from latentheads.guide import ModelGuide
from latentheads.handlers import StrayParameters, isolated_param_store
from latentheads.inference.bound import terms
from latentheads.inference.evaluation import Report, eval_no_grad, evaluate
from latentheads.latents.selection.sharing import selection_probabilities
from latentheads.model import HeadModel
from latentheads.noise import fixed_noise
from latentheads.training.engine import Progress

__all__ = ["Best", "ValidationResult", "check_bound_exists", "validate"]


@dataclass(frozen=True)
class ValidationResult:
    """An evaluation on validation after a stretch of training.

    Attributes:
        progress: How far training has come.
        report: The bound, dropout off.
        value: The metric that says which weights are best.
        selection: The posterior probability of every candidate to speak, by block.
    """

    progress: Progress
    report: Report
    value: float
    selection: dict[str, list[Any]]

    @property
    def record(self) -> dict[str, Any]:
        """All of it by names, ready for JSON."""
        figures = {"valid": dict(self.report.scores()), "kl_by_site": self.report.kl_by_site}
        selection = {"selection": self.selection} if self.selection else {}
        return {**asdict(self.progress), **figures, **selection}

    @property
    def line(self) -> str:
        """The bound and its two terms, and the speed."""
        report, speed = self.report, self.progress.tokens_per_second
        fast = "" if math.isnan(speed) else f", {speed:,.0f} tokens/s"
        return (
            f"bound {report.elbo:.4f} = log-likelihood {report.log_likelihood:.4f} "
            f"- KL {report.kl:.4f} nats/token{fast}"
        )


@dataclass
class Best:
    """The best look so far, and how long ago it was.

    Attributes:
        value: Its metric; minus infinity before the first look.
        stale: Looks since.
    """

    value: float = -math.inf
    stale: int = 0

    def is_improved_by(self, result: ValidationResult, model: HeadModel) -> bool:
        """Counts a look; True: its weights are to be kept in the place of the best ones.

        Args:
            found: The look.
            model: The model: with an L0 penalty a later network is a smaller one.
        """
        self.stale += 1
        better = found.value > self.value or model.l0_penalty is not None
        if better:
            self.value, self.stale = result.value, 0
        return better

    def should_stop(self, patience: int) -> bool:
        """Whether so many looks, where there is a limit, have found nothing better."""
        return 0 < patience <= self.stale


def check_bound_exists(model: HeadModel, guide: ModelGuide, batch: Batch, seed: int) -> None:
    """Computes the bound of one batch: a guide that has none is refused before training.

    Raises:
        ValueError: It has none, or makes parameters in a pass, which no optimiser would move.
    """
    modules = nn.ModuleList([model, guide])
    before, stray = set(map(id, modules.parameters())), StrayParameters(modules)
    with eval_no_grad(model, guide), fixed_noise(seed, model.device), isolated_param_store(), stray:
        terms(model, guide, batch.to(model.device))
    registered = [
        name for name, parameter in guide.named_parameters() if id(parameter) not in before
    ]
    if names := [*stray.names, *registered]:
        raise ValueError(
            f"parameter {names[0]!r} is made in a pass, where no optimiser finds it: make it in "
            "__init__, an nn.Parameter or a PyroParam, in the place of pyro.param"
        )


def validate(
    model: HeadModel,
    guide: ModelGuide,
    valid: Part | Iterable[Batch],
    progress: Progress,
    metric: str,
    seed: int,
) -> ValidationResult:
    """Evaluates model and guide, one draw of the latents a sentence.

    Args:
        model: The model.
        guide: Its guide.
        valid: What they are evaluated on.
        progress: How far training has come.
        metric: The figure that says which weights are best: elbo or plug-in.
        seed: Of the noise, the same at every look.

    Raises:
        FloatingPointError: The metric is not finite.
    """
    report = evaluate(model, guide, valid, 1, seed)
    value = getattr(report, metric.replace("-", "_"))
    if not math.isfinite(value):
        raise FloatingPointError(f"step {progress.step}: {metric} on validation is not finite")
    selection = {name: p.tolist() for name, p in selection_probabilities(guide).items()}
    return ValidationResult(progress, report, value, selection)
