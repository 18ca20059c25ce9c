"""Training: steps of stochastic variational inference, with the true bound watched beside them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import pyro
import torch
from torch import Tensor, nn

from latentheads.batch import Batch
from latentheads.objective import Head_ELBO

__all__ = ["Progress", "Training", "train"]


@dataclass(frozen=True)
class Training:
    """How to train.

    Attributes:
        steps: Updates.
        tokens: Most tokens of a batch on either side, padding included.
        learning_rate: Adam's, at the end of the warm-up.
        warmup_steps: Updates of linear growth of the learning rate.
        decay: How the learning rate falls afterwards: to 0 at the last step (linear), or by the
            inverse square root of the step (inverse-sqrt).
        weight_decay: Adam's L2 penalty.
        clip: Largest norm of the gradient; 0 for none.
        kl_warmup_steps: Updates over which the weight of the KL grows.
        min_kl_weight: Where that weight starts.
        max_kl_weight: Where it ends; other than 1 trains something else than the bound.
        free_bits: No site's KL is pushed below this many nats per target token.
        kl: Closed-form KLs where there are any (analytic), or all of them sampled.
        precision: float32, or bfloat16 autocast with densities in float32.
        report_every: Updates between two evaluations of the bound on validation.
    """

    steps: int = 3000
    tokens: int = 1024
    learning_rate: float = 3e-3
    warmup_steps: int = 200
    decay: Literal["linear", "inverse-sqrt"] = "linear"
    weight_decay: float = 0.0
    clip: float = 1.0
    kl_warmup_steps: int = 0
    min_kl_weight: float = 0.0
    max_kl_weight: float = 1.0
    free_bits: float = 0.0
    kl: Literal["analytic", "sampled"] = "analytic"
    precision: Literal["fp32", "bf16"] = "fp32"
    report_every: int = 250

    def __post_init__(self) -> None:
        for name in ("steps", "tokens", "report_every"):
            _require(name, getattr(self, name), at_least=1)
        for name in ("warmup_steps", "kl_warmup_steps", "min_kl_weight", "max_kl_weight"):
            _require(name, getattr(self, name), at_least=0)
        for name in ("weight_decay", "clip", "free_bits"):
            _require(name, getattr(self, name), at_least=0)
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate}")

    def rate(self, step: int) -> float:
        """The factor of the learning rate at a step counted from 0."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.decay == "linear":
            return max(0.0, (self.steps - step) / max(1, self.steps - self.warmup_steps))
        return math.sqrt(max(1, self.warmup_steps) / (step + 1))

    def kl_weight(self, step: int) -> float:
        """The factor of the KL at a step counted from 0."""
        if step >= self.kl_warmup_steps:
            return self.max_kl_weight
        grown = step / self.kl_warmup_steps
        return self.min_kl_weight + (self.max_kl_weight - self.min_kl_weight) * grown


def _require(name: str, value: float, at_least: float) -> None:
    if not value >= at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value}")


@dataclass(frozen=True)
class Progress:
    """What is known after a stretch of training.

    Attributes:
        step: Updates done.
        objective: Training objective since the last report in nats a token: smoothed, weighted
            and with dropout, so not a bound.
        tokens_per_second: Target tokens trained on, a second, evaluation not counted.
        kl_weight: The factor of the KL at this step.
    """

    step: int
    objective: float
    tokens_per_second: float
    kl_weight: float


def train(
    model: nn.Module,
    guide: nn.Module,
    data: Iterator[Batch],
    training: Training,
    report: Callable[[Progress], None],
) -> None:
    """Trains model and guide together, and reports in regular stretches and at the end.

    Args:
        model: The model.
        guide: Its guide.
        data: An endless stream of batches.
        training: How to train.
        report: Called with the progress; it may evaluate.

    Raises:
        FloatingPointError: The objective is no longer finite.
    """
    device = next(model.parameters()).device
    elbo = Head_ELBO(free_bits=training.free_bits, analytic=training.kl == "analytic")
    objective = elbo(model.train(), guide.train())
    optimiser = torch.optim.Adam(
        objective.parameters(),
        lr=training.learning_rate,
        betas=(0.9, 0.98),
        weight_decay=training.weight_decay,
        fused=device.type == "cuda",
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, training.rate)
    stretch = _Stretch(device)
    for step in range(training.steps):
        batch = next(data).to(device)
        elbo.kl_weight = training.kl_weight(step)
        with pyro.validation_enabled(step == 0), _precision(training, device):
            loss = objective(batch)
        tokens = batch.target_valid.sum()
        (loss * (len(batch) / batch.size / tokens)).backward()
        if training.clip:
            torch.nn.utils.clip_grad_norm_(objective.parameters(), training.clip)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad(set_to_none=True)
        stretch.add(loss.detach() * (len(batch) / batch.size), tokens)
        if (step + 1) % training.report_every == 0 or step + 1 == training.steps:
            report(stretch.close(step + 1, elbo.kl_weight))
            stretch.open()


def _precision(training: Training, device: torch.device) -> AbstractContextManager[Any]:
    if training.precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


class _Stretch:
    """Sums of a stretch of steps, kept on the device until it is closed."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.open()

    def open(self) -> None:
        """Begins a new stretch."""
        self.loss = torch.zeros((), dtype=torch.float64, device=self.device)
        self.tokens = torch.zeros((), dtype=torch.float64, device=self.device)
        self.start = time.perf_counter()

    def add(self, loss: Tensor, tokens: Tensor) -> None:
        """Adds one step."""
        self.loss += loss
        self.tokens += tokens

    def close(self, step: int, kl_weight: float) -> Progress:
        """Reads the sums."""
        tokens, loss = float(self.tokens), float(self.loss)
        seconds = time.perf_counter() - self.start
        if not math.isfinite(loss):
            raise FloatingPointError(f"the objective is {loss} at or before step {step}")
        return Progress(step, -loss / tokens, tokens / seconds, kl_weight)
