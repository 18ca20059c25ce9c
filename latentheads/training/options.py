"""How to train: everything about the steps of stochastic variational inference but the steps."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypedDict

import torch
from annotated_types import Ge, Gt, Le, Lt
from pydantic import NonNegativeFloat, PositiveFloat
from torch import nn

from latentheads.options import Choice, Count, OptionError, Size, from_dict, options_class
from latentheads.training.losses import HeadELBOLoss, Loss
from latentheads.training.optimizers import NAG, make_adamw, make_muon
from latentheads.training.precision import PrecisionOption


@options_class()
class Optimizer(Choice, ABC):
    """How gradients move the weights.

    Attributes:
        weight_decay: Share of the learning rate by which weights shrink at each step, beside the
            gradient: ``p *= 1 - learning_rate * weight_decay``.
    """

    weight_decay: NonNegativeFloat = 0.0

    @classmethod
    def choices(cls) -> Mapping[str, type[Optimizer]]:
        return {
            "muon": MuonOptimizer,
            "adamw": AdamWOptimizer,
            "nag": NAGOptimizer,
        }

    @abstractmethod
    def make(self, module: nn.Module, learning_rate: float) -> Sequence[torch.optim.Optimizer]:
        """Makes PyTorch optimizers, of which each parameter of a module is in exactly one.

        The engine sets the learning rate of all groups anew at every step.
        """


@options_class()
class MuonOptimizer(Optimizer):
    """Muon for the matrices of hidden layers, AdamW for the rest; it needs fewer steps."""

    def make(self, module: nn.Module, learning_rate: float) -> Sequence[torch.optim.Optimizer]:
        """Muon and AdamW, or the one that has parameters."""
        return make_muon(module, learning_rate, self.weight_decay)


@options_class()
class AdamWOptimizer(Optimizer):
    """AdamW."""

    def make(self, module: nn.Module, learning_rate: float) -> Sequence[torch.optim.Optimizer]:
        """AdamW for all parameters."""
        return [make_adamw(list(module.parameters()), learning_rate, self.weight_decay)]


@options_class()
class NAGOptimizer(Optimizer):
    """Nesterov's accelerated gradient, as the papers train their language models.

    Attributes:
        momentum: Momentum.
    """

    momentum: Annotated[float, Ge(0), Lt(1)] = 0.99

    def make(self, module: nn.Module, learning_rate: float) -> Sequence[torch.optim.Optimizer]:
        """Nesterov's accelerated gradient for all parameters."""
        return [NAG(module.parameters(), learning_rate, self.momentum, self.weight_decay)]


@options_class()
class Schedule(Choice, ABC):
    """How the learning rate falls after the warm-up; ``description`` in words."""

    description: ClassVar[str]

    @classmethod
    def choices(cls) -> Mapping[str, type[Schedule]]:
        return {
            "linear": LinearSchedule,
            "inverse-sqrt": InverseSqrtSchedule,
            "cosine": CosineSchedule,
            "cosine-restarts": CosineRestartsSchedule,
        }

    @abstractmethod
    def factor(self, step: int, training: Training) -> float:
        """The factor of the learning rate at a step from the start of training, after the warm-up.

        Steps are counted from 0: the first after the warm-up is ``training.warmup``.
        """


@options_class()
class LinearSchedule(Schedule):
    """To 0 at the last step."""

    description = "linearly to 0"

    def factor(self, step: int, training: Training) -> float:
        """A straight line."""
        rest = max(1, training.steps - training.warmup)
        return max(0.0, (training.steps - step) / rest)


@options_class()
class InverseSqrtSchedule(Schedule):
    """By the inverse square root of the step."""

    description = "by the inverse square root of the step"

    def factor(self, step: int, training: Training) -> float:
        """1 at the end of the warm-up."""
        return math.sqrt(max(1, training.warmup) / (step + 1))


@options_class()
class CosineSchedule(Schedule):
    """Along half a cosine.

    Attributes:
        min_rate: The learning rate at the end.
    """

    description = "along the cosine"
    min_rate: NonNegativeFloat = 0.0

    def factor(self, step: int, training: Training) -> float:
        """One cycle over all steps that follow the warm-up."""
        length = float(max(1, training.steps - training.warmup))
        return _half_cosine(step - training.warmup, length, self.min_rate, training)


@options_class()
class CosineRestartsSchedule(Schedule):
    """Along half a cosine in each of several cycles.

    Attributes:
        period: Steps of the first cycle.
        growth: By which factor each cycle is longer than the one before.
        shrink: Factor of the largest and smallest rate from one cycle to the next.
        min_rate: The learning rate at the end of the first cycle.
    """

    description = "along a cosine with restarts"
    period: Count
    growth: Annotated[float, Ge(1)] = 1.0
    shrink: Annotated[float, Gt(0), Le(1)] = 1.0
    min_rate: NonNegativeFloat = 0.0

    def factor(self, step: int, training: Training) -> float:
        """The factor within the cycle that a step belongs to."""
        position, length = float(step - training.warmup), float(self.period)
        cycles = position // length if self.growth == 1 else 0.0  # the loop is for growing ones
        position, scale = position - cycles * length, self.shrink**cycles
        while position >= length:
            position, scale = position - length, scale * self.shrink
            length *= self.growth
        return scale * _half_cosine(position, length, self.min_rate, training)


def _half_cosine(step: float, length: float, min_rate: float, training: Training) -> float:
    """The factor of the learning rate at a step, or between two, of a cycle."""
    low = min_rate / training.learning_rate
    return low + (1 - low) * 0.5 * (1 + math.cos(math.pi * step / length))


@options_class()
class Training:
    """How to train.

    Attributes:
        steps: Optimiser steps.
        tokens: Most tokens of a batch on either side, padding included, all processes together.
        accumulate: Batches whose gradients are summed for one step.
        optimizer: How gradients move the weights.
        learning_rate: At the end of the warm-up.
        warmup_steps: Steps of linear growth of the learning rate; not given: a tenth of all, at
            most 200.
        schedule: How the learning rate falls after the warm-up.
        clip: Largest norm of the gradient; 0 for none.
        noise_warmup_steps: Steps over which the noise of priors and guides grows to its scale;
            it acts on every ``HeadScale``.
        loss: What is minimised: Head_ELBO, the negative evidence lower bound with alignments summed
            out; or a loss of Pyro's. Of alignments alone: log p(y | x) itself, and the guide's
            bound beside it (marginal); the guide's bound from one sample, measured against soft
            attention (sampled); the bound of several samples together (iwae); or model and guide
            each fitted to weighted samples (rws). Of Bernoulli heads also by gates between 0 and 1
            (relaxed), which is no bound.
        precision: float32, or autocast to bfloat16 or (on a GPU) float16 with densities in float32;
            auto: bfloat16 where the processor multiplies it itself, else float32.
        graph: On a GPU, capture forward and backward pass as a CUDA graph for each shape of batches
            that comes again, and replay it without Python.
        report_every: Steps between two evaluations on validation; not given: a tenth of all, at
            most 250.
        checkpoint_every: Steps between two checkpoints to resume from; 0: at every evaluation.
        metric: What the best weights are selected by on validation: the bound (elbo) or the
            likelihood of the plug-in network (plug-in, as the papers do).
        patience: Evaluations without a better metric after which training stops; 0: it does not.
        keep: How many of the last evaluations keep their weights on disk, besides the best.
        average: How many of these are averaged and reported rather than the best; 0: the best.
    """

    steps: Count = 1000
    tokens: Count = 1024
    accumulate: Count = 1
    optimizer: Optimizer = MuonOptimizer()
    learning_rate: PositiveFloat = 4e-3
    warmup_steps: Size | None = None
    schedule: Schedule = LinearSchedule()
    clip: NonNegativeFloat = 1.0
    noise_warmup_steps: Size = 0
    loss: Loss = HeadELBOLoss()
    precision: PrecisionOption = "fp32"
    graph: bool = False
    report_every: Count | None = None
    checkpoint_every: Size = 0
    metric: Literal["elbo", "plug-in"] = "elbo"
    patience: Size = 0
    keep: Size = 0
    average: Size = 0

    def __post_init__(self) -> None:
        if 0 < self.keep < self.average:
            raise OptionError(
                "keep", f" must be at least average, {self.average}, or 0, got {self.keep}"
            )
        low, rate = getattr(self.schedule, "min_rate", 0.0), self.learning_rate
        if low > rate:
            reason = f" must be at most learning_rate, {rate:g}, got {low:g}"
            raise OptionError("schedule.min_rate", reason)

    @property
    def warmup(self) -> int:
        """Optimiser steps of the warm-up."""
        return min(200, self.steps // 10) if self.warmup_steps is None else self.warmup_steps

    @property
    def report_interval(self) -> int:
        """Optimiser steps between two evaluations on validation."""
        if self.report_every is None:
            return min(250, max(1, self.steps // 10))
        return self.report_every

    def rate_factor(self, step: int) -> float:
        """The factor of the learning rate at a step counted from 0."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        return self.schedule.factor(step, self)

    def noise_factor(self, step: int) -> float:
        """The factor of the noise at a step counted from 0."""
        return min(1.0, (step + 1) / max(1, self.noise_warmup_steps))


class FitKwargs(TypedDict, total=False):
    """The options of :class:`Training` that act without a run folder, but its loss."""

    steps: int
    tokens: int
    accumulate: int
    optimizer: Optimizer | str | Mapping[str, Any]
    learning_rate: float
    warmup_steps: int | None
    schedule: Schedule | str | Mapping[str, Any]
    clip: float
    noise_warmup_steps: int
    precision: PrecisionOption
    graph: bool
    report_every: int | None
    metric: Literal["elbo", "plug-in"]
    patience: int


class TrainerKwargs(FitKwargs, total=False):
    """All options of :class:`Training` but its loss."""

    checkpoint_every: int
    keep: int
    average: int


def make_training(options: Mapping[str, Any]) -> Training:
    """The options of training by their names; an optimizer or a schedule may be a name itself."""
    return from_dict(Training, options)
