"""How to train: everything about the steps of stochastic variational inference but the steps."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from torch import nn

from latentheads.checks import MAX_SAMPLES, check_least, check_most
from latentheads.options import from_dict
from latentheads.training.losses import BY_OPTIONS, check_loss
from latentheads.training.optimizers import StateNames, make_adamw, make_muon, make_nag
from latentheads.values import convert_fields, make_group


@dataclass(frozen=True)
class Optimizer(ABC):
    """How gradients move the weights.

    Attributes:
        weight_decay: Share of the learning rate by which weights shrink at each step, beside the
            gradient: ``p *= 1 - learning_rate * weight_decay``.
    """

    weight_decay: float = 0.0

    @classmethod
    def choices(cls) -> Mapping[str, type[Optimizer]]:
        """The optimizers by name."""
        kinds: list[tuple[str, type[Optimizer]]] = [
            ("muon", MuonOptimizer),
            ("adamw", AdamWOptimizer),
            ("nag", NAGOptimizer),
        ]
        return dict(kinds)

    def __post_init__(self) -> None:
        convert_fields(self)
        check_least(vars(self), weight_decay=0.0)

    @abstractmethod
    def make(self, module: nn.Module, learning_rate: float) -> StateNames:
        """Makes PyTorch optimizers, of which each parameter of a module is in exactly one.

        The engine sets the learning rate of all groups anew at every step.

        Returns:
            The optimizers, each with the names of the tensors that it keeps for a parameter: a run
            resumes only from a checkpoint that has these.
        """


@dataclass(frozen=True)
class MuonOptimizer(Optimizer):
    """Muon for the matrices of hidden layers, AdamW for the rest; it needs fewer steps."""

    def make(self, module: nn.Module, learning_rate: float) -> StateNames:
        """Muon and AdamW, or the one that has parameters."""
        return make_muon(module, learning_rate, self.weight_decay)


@dataclass(frozen=True)
class AdamWOptimizer(Optimizer):
    """AdamW."""

    def make(self, module: nn.Module, learning_rate: float) -> StateNames:
        """AdamW for all parameters."""
        return make_adamw(list(module.parameters()), learning_rate, self.weight_decay)


@dataclass(frozen=True)
class NAGOptimizer(Optimizer):
    """Nesterov's accelerated gradient, as the papers train their language models.

    Attributes:
        momentum: Momentum.
    """

    momentum: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must lie in [0, 1), got {self.momentum}")

    def make(self, module: nn.Module, learning_rate: float) -> StateNames:
        """Nesterov's accelerated gradient for all parameters."""
        parameters = list(module.parameters())
        return make_nag(parameters, learning_rate, self.weight_decay, self.momentum)


@dataclass(frozen=True)
class Schedule(ABC):
    """How the learning rate falls after the warm-up; ``description`` in words."""

    description: ClassVar[str]

    @classmethod
    def choices(cls) -> Mapping[str, type[Schedule]]:
        """The schedules by name."""
        kinds: list[tuple[str, type[Schedule]]] = [
            ("linear", LinearSchedule),
            ("inverse-sqrt", InverseSqrtSchedule),
            ("cosine", CosineSchedule),
        ]
        return dict(kinds)

    @abstractmethod
    def factor(self, step: int, training: Training) -> float:
        """The factor of the learning rate at a step from the start of training, after the warm-up.

        Steps are counted from 0: the first after the warm-up is ``training.warmup``.
        """


@dataclass(frozen=True)
class LinearSchedule(Schedule):
    """To 0 at the last step."""

    description = "linearly to 0"

    def factor(self, step: int, training: Training) -> float:
        """A straight line."""
        rest = max(1, training.steps - training.warmup)
        return max(0.0, (training.steps - step) / rest)


@dataclass(frozen=True)
class InverseSqrtSchedule(Schedule):
    """By the inverse square root of the step."""

    description = "by the inverse square root of the step"

    def factor(self, step: int, training: Training) -> float:
        """1 at the end of the warm-up."""
        return math.sqrt(max(1, training.warmup) / (step + 1))


@dataclass(frozen=True)
class CosineSchedule(Schedule):
    """Along half a cosine, in one cycle or in several.

    Attributes:
        period: Steps of the first cycle; 0: all that follow the warm-up.
        growth: By how much each cycle is longer than the one before.
        shrink: Factor of the largest and smallest rate from one cycle to the next.
        min_rate: The learning rate at the end of the first cycle.
    """

    description = "along the cosine"
    period: int = 0
    growth: float = 1.0
    shrink: float = 1.0
    min_rate: float = 0.0

    def __post_init__(self) -> None:
        convert_fields(self)
        check_least(vars(self), period=0, growth=1.0, min_rate=0.0)
        if not 0 < self.shrink <= 1:
            raise ValueError(f"shrink must lie in (0, 1], got {self.shrink}")

    def factor(self, step: int, training: Training) -> float:
        """The factor within the cycle that a step belongs to."""
        step -= training.warmup
        length, scale = float(self.period or max(1, training.steps - training.warmup)), 1.0
        while step >= length:
            step, scale = int(step - length), scale * self.shrink
            length *= self.growth
        low = self.min_rate / training.learning_rate
        return scale * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * step / length)))


OF_HEAD_ELBO = (
    *("kl", "kl_warmup_steps", "min_kl_weight", "max_kl_weight", "free_bits"),
    *("select_gradient", "temperature", "least_temperature", "loss_samples"),
)
"""Options that parametrise Head_ELBO and its losses of alignments, and no other loss."""


@dataclass(frozen=True)
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
        kl_warmup_steps: Steps over which the weight of the KL grows.
        min_kl_weight: Where that weight starts.
        max_kl_weight: Where it ends; other than 1 trains something else than the bound.
        noise_warmup_steps: Steps over which the noise of priors and guides grows to its scale;
            it acts on every ``HeadScale``.
        select_gradient: How a selection of heads is learned: straight through a relaxation,
            cheap and biased; by the scores of two draws a batch (score), at twice the work of
            the network; or from all choices of all blocks (enumerate), exact, where they are few.
        temperature: Of the relaxation that gives the straight-through gradient of a selection, and
            of the loss relaxed.
        least_temperature: Where it has fallen to, geometrically, at the last step; 0: it stays.
        free_bits: No site's KL is pushed below this many nats per target token, in the part of a
            batch that one process computes: it acts less on smaller parts.
        loss: What is minimised: Head_ELBO, the negative evidence lower bound with alignments summed
            out; or a loss of Pyro's: Trace_ELBO, TraceMeanField_ELBO, TraceGraph_ELBO,
            TraceEnum_ELBO or RenyiELBO, with arguments as in "Trace_ELBO(num_particles=2)". Of
            alignments alone: log p(y | x) itself, and the guide's bound beside it (marginal); the
            guide's bound from one sample, measured against soft attention (sampled); the bound of
            several samples together (iwae); or model and guide each fitted to weighted samples
            (rws). Of Bernoulli heads also by gates between 0 and 1 (relaxed), which is no bound.
        loss_samples: Samples of iwae and rws.
        kl: Closed-form KLs where there are any (analytic), or all of them sampled.
        precision: float32, or autocast to bfloat16 or (on a GPU) float16 with densities in float32.
        report_every: Steps between two evaluations on validation; not given: a tenth of all, at
            most 250.
        checkpoint_every: Steps between two checkpoints to resume from; 0: at every evaluation.
        metric: What says on validation which weights are best: the bound (elbo) or the likelihood
            of the plug-in network (plug-in, as the papers do).
        patience: Evaluations without a better metric after which training stops; 0: it does not.
        keep: How many of the last evaluations keep their weights on disk, besides the best.
        average: How many of these are averaged and reported rather than the best; 0: the best.
    """

    steps: int = 1000
    tokens: int = 1024
    accumulate: int = 1
    optimizer: Optimizer = MuonOptimizer()
    learning_rate: float = 4e-3
    warmup_steps: int | None = None
    schedule: Schedule = LinearSchedule()
    clip: float = 1.0
    kl_warmup_steps: int = 0
    min_kl_weight: float = 0.0
    max_kl_weight: float = 1.0
    noise_warmup_steps: int = 0
    select_gradient: Literal["straight-through", "score", "enumerate"] = "straight-through"
    temperature: float = 1.0
    least_temperature: float = 0.0
    free_bits: float = 0.0
    loss: str = "Head_ELBO"
    loss_samples: int = 5
    kl: Literal["analytic", "sampled"] = "analytic"
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    report_every: int | None = None
    checkpoint_every: int = 0
    metric: Literal["elbo", "plug-in"] = "elbo"
    patience: int = 0
    keep: int = 0
    average: int = 0

    def __post_init__(self) -> None:
        convert_fields(self)
        self._check_loss()
        options = vars(self)
        check_least(options, steps=1, tokens=1, accumulate=1, loss_samples=2)
        check_most(options, loss_samples=MAX_SAMPLES)
        check_least(
            {"report_every": self.report_interval, "warmup_steps": self.warmup},
            report_every=1,
            warmup_steps=0,
        )
        check_least(options, kl_warmup_steps=0, min_kl_weight=0.0, max_kl_weight=0.0)
        check_least(options, clip=0.0, free_bits=0.0, noise_warmup_steps=0)
        check_least(options, checkpoint_every=0, patience=0, keep=0, average=0)
        for name in ("learning_rate", "temperature"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {getattr(self, name)}")
        if not 0 <= self.least_temperature <= self.temperature:
            raise ValueError(
                f"least_temperature must lie in 0 ... {self.temperature}, the temperature, "
                f"got {self.least_temperature}"
            )

    def _check_loss(self) -> None:
        """Validates the loss; beside one of Pyro's, options of Head_ELBO are an error."""
        check_loss(self.loss)
        if self.loss in BY_OPTIONS:
            return
        defaults = {option.name: option.default for option in fields(self)}
        changed = [name for name in OF_HEAD_ELBO if getattr(self, name) != defaults[name]]
        if changed:
            raise ValueError(
                f"{', '.join(changed)}: only the losses {', '.join(BY_OPTIONS)}, by their names, "
                f"have such options, not {self.loss}"
            )

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

    def temperature_at(self, step: int) -> float | None:
        r"""The temperature at a step counted from 0; None where nothing is relaxed.

        .. math:: \tau_0 (\tau_{\min} / \tau_0)^{\text{step} / \text{steps}}
        """
        if self.select_gradient != "straight-through":
            return None
        if not self.least_temperature:
            return self.temperature
        share = self.least_temperature / self.temperature
        return self.temperature * share ** (step / self.steps)

    def kl_weight(self, step: int) -> float:
        """The factor of the KL at a step counted from 0."""
        if step >= self.kl_warmup_steps:
            return self.max_kl_weight
        grown = step / self.kl_warmup_steps
        return self.min_kl_weight + (self.max_kl_weight - self.min_kl_weight) * grown


def make_training(options: Mapping[str, Any]) -> Training:
    """The options of training by their names; an optimizer or a schedule may be a name itself."""
    values = dict(options)
    kinds: dict[str, type] = {"optimizer": Optimizer, "schedule": Schedule}
    for name, kind in kinds.items():
        if isinstance(value := options.get(name), str | Mapping):
            values[name] = from_dict(kind, value, path=name)
    return make_group(Training, values)
