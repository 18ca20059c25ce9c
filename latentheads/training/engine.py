"""The training loop: stochastic variational inference that can be resumed at any step."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, cast

import pyro
import torch
from pyro.infer import ELBO
from torch import Tensor, nn

from latentheads.batch import Batch
from latentheads.corpora.loader import LoaderState, PartLoader, Step, StepLoader
from latentheads.corpora.part import Part
from latentheads.families.family import Family
from latentheads.families.scale import HeadScale
from latentheads.guide import ModelGuide
from latentheads.handlers import isolated_param_store
from latentheads.inference.non_finite import describe_non_finite, describe_non_finite_gradient
from latentheads.inference.objective import Head_ELBO
from latentheads.model import HeadModel
from latentheads.noise import NoiseStream, kept_noise
from latentheads.passes import passes
from latentheads.training.callbacks import Callback
from latentheads.training.checkpoints import weights
from latentheads.training.graphs import SEEN, StepGraphs
from latentheads.training.loss_modules import (
    has_differentiable_loss,
    make_loss_module,
    validate_loss,
)
from latentheads.training.losses import HeadELBOLoss, RelaxedLoss
from latentheads.training.optimizers import Optimizers
from latentheads.training.options import Training
from latentheads.training.precision import ChosenPrecision, Precision, choose_precision

GUARD_EVERY = 20
"""Steps between checks for a finite objective on a GPU, since a check synchronises the device."""


@dataclass(frozen=True)
class Progress:
    """Training metrics since the last report.

    Attributes:
        step: Number of optimiser steps.
        epoch: The current epoch, counted from 0.
        objective: Training objective since the last report in nats per token, with label
            smoothing, KL weight and dropout, so it is not a bound.
        tokens_per_second: Target tokens per second, without evaluation and checkpoints.
        kl_weight: The factor of the KL at this step.
        learning_rate: The learning rate of this step.
        gradient_norm: The norm of its gradient before clipping; NaN on a GPU that does not clip.
    """

    step: int
    epoch: int
    objective: float
    tokens_per_second: float
    kl_weight: float
    learning_rate: float = math.nan
    gradient_norm: float = math.nan


class Engine:
    """Trains model and guide together.

    With the same seed the weights after a step are the same whether or not training was stopped,
    killed and resumed in between, and whatever is sampled outside :meth:`run`: on a CPU in float32
    bit for bit.

    Args:
        model: The model.
        guide: Its guide.
        source: The training data: a part of a corpus, or a loader of steps.
        training: The training options.
        seed: Seed of the data order and of the noise.
        accelerator: An ``accelerate.Accelerator``, for several processes; None for one.
        may_be_fixed: Accept a pair without trainable parameters, such as a tied guide of a frozen
            model: :meth:`run` then reports once.
        loss: The loss that ``training.loss`` names; made from these options by default.

    Raises:
        ValueError: There is nothing to train, or an option does not go with the model.
    """

    def __init__(
        self,
        model: HeadModel,
        guide: ModelGuide,
        source: Part | StepLoader,
        training: Training,
        seed: int = 0,
        accelerator: Any = None,
        may_be_fixed: bool = False,
        loss: ELBO | None = None,
    ) -> None:
        self.model, self.guide = model, guide
        self.training = training
        self.seed = seed
        self.accelerator = accelerator
        self.device = model.device
        self.elbo = make_loss(training, model) if loss is None else loss
        # the weight in an instance is its owner's
        self._sets_kl_weight = loss is None and isinstance(training.loss, HeadELBOLoss)
        check_compatible(training, model, self.elbo)
        self.is_fixed = not any(
            p.requires_grad for part in (model, guide) for p in part.parameters()
        )
        if self.is_fixed and not may_be_fixed:
            raise ValueError(
                "no parameter of model or guide needs a gradient: there is nothing to train"
            )
        self.processes = 1 if accelerator is None else accelerator.num_processes
        self.rank = 0 if accelerator is None else accelerator.process_index
        if training.graph and self.processes > 1:
            raise ValueError(f"graph captures steps of one process, got {self.processes}: drop it")
        self.loader = self._make_loader(source)
        self.objective = make_loss_module(self.elbo, model, guide)
        if isinstance(self.elbo, Head_ELBO):
            self.elbo.check_pair(model, guide)
        if training.noise_warmup_steps:
            check_noise_warmup(self.objective)
        self.optimizers = Optimizers(
            training.optimizer.make(self.objective, training.learning_rate)
        )
        parameters = list(self.objective.parameters())
        self.precision = choose_precision(training.precision, parameters, self.device)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision.name == "fp16")
        self.graphs = StepGraphs(parameters, self.device) if training.graph else None
        self.step = 0
        self.loader_state = LoaderState()
        self.stopped = self._checked = False
        self._loss = torch.zeros((), dtype=torch.float64, device=self.device)
        self._tokens = 0
        self._seconds = 0.0
        self._gradient_norm: Tensor | float = math.nan
        self.noise = NoiseStream(self.device, self._noise_seed(seed))

    def _noise_seed(self, seed: int) -> int:
        """A different seed for every process of every seed."""
        return (int(seed) * self.processes + self.rank) % 2**63

    def _make_loader(self, source: Part | StepLoader) -> StepLoader:
        if isinstance(source, StepLoader):
            return source
        return PartLoader(
            source,
            self.training.tokens,
            self.seed,
            self.training.accumulate,
            self.rank,
            self.processes,
            pin=self.device.type == "cuda",
        )

    def run(
        self,
        report: Callable[[Progress], bool | None],
        callbacks: Sequence[Callback] = (),
    ) -> None:
        """Trains up to the last step, or until a report returns True, with its own noise stream.

        Args:
            report: Called with the progress every ``report_every`` steps and at the end, in the
                first process only; it may evaluate. True stops training.
            callbacks: Called after each step, and when :meth:`state` should be saved.

        Raises:
            FloatingPointError: The objective, or on a CPU its gradient, is no longer finite; the
                message names the site or the parameter.
        """
        if self.is_fixed:
            self._report_once(report, callbacks)
            return
        training = self.training
        module = self.objective
        if self.accelerator is not None and self.processes > 1:
            module = self.accelerator.prepare_model(self.objective)
        # gradients of an earlier backward pass would update even frozen parameters
        self.optimizers.zero_grad()
        started, first = time.perf_counter(), self.step
        stream = closing(self.loader.prefetch(self.loader_state))
        with stream as steps, passes(), isolated_param_store():
            while self.running:
                # again for each step: a report or a callback may have set evaluation mode
                self.model.train()
                self.guide.train()
                with self.noise.active():  # also batches of a function, but not callbacks
                    self._update(module, next(steps))
                for callback in callbacks:
                    callback.on_step_end(self.step)
                last = self.step == training.steps
                is_report = last or self.step % training.report_interval == 0
                is_checkpoint = is_report
                if training.checkpoint_every:
                    is_checkpoint = last or self.step % training.checkpoint_every == 0
                if not (is_report or is_checkpoint):
                    continue
                self._check(self._loss, [])
                self._seconds += time.perf_counter() - started
                if is_report:
                    self.stopped = self._agreed(report, self._progress())
                if is_checkpoint or self.stopped:
                    for callback in callbacks:
                        callback.on_save()
                started = time.perf_counter()
        if self.graphs is not None and self.step > first and not self.graphs.replays:
            rare = f"no kind of batch came more than {SEEN} times"
            why = "products underflow in all of them" if self.graphs.captures else rare
            warnings.warn(f"graph replayed no step: {why}", stacklevel=2)

    def _report_once(
        self, report: Callable[[Progress], bool | None], callbacks: Sequence[Callback]
    ) -> None:
        """Reports on a pair without trainable parameters, as if training had ended."""
        if not self.running:
            return
        before, self.step = self.step, self.training.steps
        try:
            for callback in callbacks:
                callback.on_step_end(self.step)
            self.stopped = self._agreed(report, Progress(self.step, 0, math.nan, math.nan, 1.0))
            for callback in callbacks:
                callback.on_save()
        except BaseException:
            self.step = before
            raise

    @property
    def running(self) -> bool:
        """Whether training has not ended."""
        return self.step < self.training.steps and not self.stopped

    def _update(self, module: nn.Module, step_batches: Step) -> None:
        """One optimiser step; afterwards, also after an error, the noise has its full scale."""
        self._set_noise_factor(self.training.noise_factor(self.step))
        try:
            self._optimizer_step(module, step_batches)
        finally:
            self._set_noise_factor(1.0)

    def _optimizer_step(self, module: nn.Module, step_batches: Step) -> None:
        """Computes the gradient of a step, clips it, and updates parameters and progress."""
        step, training = self.step, self.training
        if self._sets_kl_weight:
            options = cast(HeadELBOLoss, training.loss)
            cast(Head_ELBO, self.elbo).kl_weight = options.kl_weight_at(step)
        self._set_progress()
        if self.guide.shared_posteriors:
            check_sizes(step_batches)
        if not self._checked:  # also where training goes on: Pyro's first pass may draw noise
            self._check_sites(step_batches.micro_batches[0][0].to(self.device))
            self._checked = True
        loss = self._backward(module, step_batches)
        # before the weights change, so that the fault is found in those that caused it
        self._guard(loss, step_batches)
        if step == 0:
            self._warn_untrained_guide()
        self._clip()
        for group in self.optimizers.param_groups:
            group["lr"] = training.learning_rate * training.rate_factor(step)
        self.scaler.step(cast(Any, self.optimizers))
        self.scaler.update()
        self.optimizers.zero_grad()
        self._loss += loss
        self._tokens += step_batches.tokens
        self.step += 1
        self.loader_state = step_batches.next_state

    def _backward(self, module: nn.Module, step_batches: Step) -> Tensor:
        """Sums the gradients of the micro-batches; returns their loss in nats."""
        loss = torch.zeros((), dtype=torch.float64, device=self.device)
        last = len(step_batches.micro_batches) - 1
        for index, (micro_batch, weight) in enumerate(step_batches.micro_batches):
            differentiate = partial(self._differentiate, module, weight)
            # DistributedDataParallel takes the mean over processes of what is summed here
            factor = self.processes / step_batches.tokens
            with ExitStack() as contexts:
                if index < last and module is not self.objective:
                    contexts.enter_context(self.accelerator.no_sync(module))
                # the first step validates every site; a check of values synchronises with a GPU
                contexts.enter_context(pyro.validation_enabled(False))
                if self.graphs is None:
                    loss += differentiate(micro_batch.to(self.device), factor)
                else:
                    numbers = weight, *self._numbers()
                    loss += self.graphs.run(differentiate, micro_batch, factor, numbers)
        return loss

    def _differentiate(
        self, module: nn.Module, weight: float, batch: Batch, factor: Tensor | float
    ) -> Tensor:
        """Adds the gradient of a micro-batch's loss times a factor; returns the loss in nats."""
        with self._autocast():
            # the loss is of the whole corpus, as in Pyro: this is the share of the micro-batch
            nats: Tensor = module(batch) * (weight * len(batch) / batch.size)
        # a captured step reads the factor from a tensor
        factor = factor.to(nats.dtype) if isinstance(factor, Tensor) else factor
        self.scaler.scale(nats * factor).backward()
        return nats.detach()

    def _numbers(self) -> Iterator[Hashable]:
        """What Python reads in a step besides its batch, and may be another number in the next."""
        yield self.training.noise_factor(self.step)
        for part in (self.elbo, *self.model.latents.values(), *self.guide.posteriors.values()):
            for name, value in vars(part).items():
                if isinstance(value, int | float | None):
                    yield name, value

    def check_loss(self, batch: Batch) -> None:
        """Raises an error if the loss cannot train the pair, before anything is written or trained.

        ``Head_ELBO`` is checked in the first step instead.
        """
        if not (self.is_fixed or isinstance(self.elbo, Head_ELBO)):
            self._set_progress()
            with passes(), isolated_param_store():
                self._check_sites(batch.to(self.device))

    def _check_sites(self, batch: Batch) -> None:
        """Runs Pyro's validation of every site in a pass that leaves the random state unchanged."""
        with kept_noise(self.device), pyro.validation_enabled(True), self._autocast():
            validate_loss(self.objective, batch)

    def _set_progress(self) -> None:
        """Sets the temperature of relaxations; Pyro's losses relax nothing."""
        steps, loss = self.training.steps, self.training.loss
        for posterior in self.guide.posteriors.values():
            posterior.set_progress(self.step, steps, getattr(self.elbo, "relaxes", False))
        for latent in self.model.latents.values():
            if isinstance(loss, RelaxedLoss) and latent.temperature is not None:
                latent.temperature = loss.temperature_at(self.step, steps)

    def _set_noise_factor(self, noise_factor: float) -> None:
        if self.training.noise_warmup_steps:
            for module in self.objective.modules():
                if isinstance(module, HeadScale):
                    module.noise_factor = noise_factor

    def _autocast(self) -> AbstractContextManager[Any]:
        kind = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
        dtype = kind[self.precision.name]
        return nullcontext() if dtype is None else torch.autocast(self.device.type, dtype=dtype)

    def _guard(self, loss: Tensor, step_batches: Step) -> None:
        """Raises an error for a non-finite loss; on a GPU at most ``GUARD_EVERY`` steps later.

        Nothing non-finite is reported or saved there, either.
        """
        if self.device.type == "cpu":
            self._check(loss, [batch for batch, _ in step_batches.micro_batches])
        elif self.step % GUARD_EVERY == 0:
            self._check(self._loss, [])

    def _warn_untrained_guide(self) -> None:
        """Warns of a guide whose parameters have no gradient: it returns every prior unchanged."""
        trainable = [p for p in self.guide.parameters() if p.requires_grad]
        if self.rank == 0 and trainable and all(p.grad is None for p in trainable):
            warnings.warn(
                f"guide {type(self.guide).__name__} is not trained: none of its parameters has a "
                "gradient, as if it had no posterior of any latent of this model",
                stacklevel=2,
            )

    def _clip(self) -> None:
        """Clips the gradient norm; on a CPU raises an error for a non-finite gradient."""
        clip, on_cpu = self.training.clip, self.device.type == "cpu"
        if not (clip or on_cpu):
            return
        # the norm is that of unscaled gradients; scaler.step() does not unscale them again
        self.scaler.unscale_(cast(Any, self.optimizers))
        parameters = list(self.objective.parameters())
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        self._gradient_norm = norm
        non_finite = on_cpu and not math.isfinite(float(norm))
        if non_finite and (where := describe_non_finite_gradient(self.model, self.guide)):
            raise FloatingPointError(f"step {self.step + 1}: {where}")
        if clip:
            nn.utils.clip_grads_with_norm_(parameters, clip, norm)

    def _check(self, loss: Tensor, batches: list[Batch]) -> None:
        """Raises an error if the loss of this step, or since the last report, is not finite."""
        if not math.isfinite(float(loss)):
            where = describe_non_finite(self.model, self.guide, batches)
            raise FloatingPointError(f"step {self.step + bool(batches)}: {where}")

    def _progress(self) -> Progress:
        """Returns the metrics since the last report and resets their sums."""
        objective, speed = -float(self._summed()) / self._tokens, self._tokens / self._seconds
        self._loss, self._tokens, self._seconds = torch.zeros_like(self._loss), 0, 0.0
        last_step = self.step - 1  # rates count steps from 0, before they are taken
        return Progress(
            self.step,
            self.loader_state.epoch,
            objective,
            speed,
            kl_weight=getattr(self.elbo, "kl_weight", 1.0),
            learning_rate=self.training.learning_rate * self.training.rate_factor(last_step),
            gradient_norm=float(self._gradient_norm),
        )

    def _agreed(self, report: Callable[[Progress], bool | None], progress: Progress) -> bool:
        """Reports in the first process; returns in all processes whether to stop."""
        stop = torch.zeros((), device=self.device)
        if self.rank == 0:
            stop += bool(report(progress))
        if self.processes > 1:
            stop = self.accelerator.reduce(stop, "sum")
        return bool(stop)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that is needed to resume training: tensors, and facts for JSON.

        With several processes all of them must call it.
        """
        tensors = weights(model=self.model, guide=self.guide)
        for name, values in self._moments():
            tensors |= {f"optimiser.{name}.{key}": value for key, value in values.items()}
        tensors["loss"] = self._summed()
        tensors |= self._noise()
        facts = {
            "step": self.step,
            "place": asdict(self.loader_state),
            "stopped": self.stopped,
            "tokens": self._tokens,
            "seconds": self._seconds,
            "processes": self.processes,
            "precision": self.precision.name,
            "scaler": self.scaler.state_dict(),
        }
        return tensors, facts

    def _summed(self) -> Tensor:
        """The loss of all processes since the last report."""
        return self._loss if self.processes == 1 else self.accelerator.reduce(self._loss, "sum")

    def _moments(self) -> Iterator[tuple[str, dict[str, Tensor]]]:
        """The optimizers' tensors by the name of their parameter."""
        for name, parameter in self.objective.named_parameters():
            for optimizer in self.optimizers:
                if parameter in optimizer.state:
                    state = optimizer.state[parameter]
                    yield name, {k: v for k, v in state.items() if isinstance(v, Tensor)}

    def _noise(self) -> dict[str, Tensor]:
        """The state of every process's random numbers, one row per process."""
        states = {f"noise.{kind}": state for kind, state in self.noise.states.items()}
        if self.processes > 1:
            gather = self.accelerator.gather
            return {n: gather(s[None].to(self.device)).cpu() for n, s in states.items()}
        return {name: state[None] for name, state in states.items()}

    def check(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Raises an error for a file without a state, as best weights that were copied there."""
        if not {"place", "precision", "scaler"} <= facts.keys() or "loss" not in tensors:
            raise ValueError("it holds weights, and no state of a training")

    def restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Restores a state that :meth:`check` accepts.

        Model and guide must have been restored before. With another number of processes or on
        another device the noise is seeded anew.
        """
        names = {parameter: name for name, parameter in self.objective.named_parameters()}
        for optimizer in self.optimizers:
            state = optimizer.state_dict()
            # a state dict counts parameters through all groups
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            for index, parameter in enumerate(parameters):
                prefix = f"optimiser.{names[parameter]}."
                state_values = {
                    k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)
                }
                if state_values:
                    state["state"][index] = state_values
            optimizer.load_state_dict(state)
        self.step, self.loader_state = facts["step"], LoaderState(**facts["place"])
        self.stopped = facts["stopped"]
        # the loss of all processes was saved as one sum: the first process alone goes on from it
        self._loss = tensors["loss"].to(self.device) * (self.rank == 0)
        self._tokens, self._seconds = facts["tokens"], facts["seconds"]
        self.precision = self._precision_of(facts)
        self.scaler.load_state_dict(facts["scaler"])
        self._restore_noise(tensors, facts["processes"])

    def _precision_of(self, facts: Mapping[str, Any]) -> ChosenPrecision:
        """The precision in which a training goes on: ``auto`` is chosen once, at its start."""
        if self.training.precision != "auto":
            return self.precision
        return ChosenPrecision(cast(Precision, facts["precision"]), "this training began in it")

    def _restore_noise(self, tensors: dict[str, Tensor], processes: int) -> None:
        kinds = self.noise.states.keys()
        saved_kinds = {kind for kind in ("cpu", "cuda") if f"noise.{kind}" in tensors}
        if processes != self.processes or kinds != saved_kinds:
            self.noise.seed(self._noise_seed(self.seed + self.step))
            return
        self.noise.set({kind: tensors[f"noise.{kind}"][self.rank] for kind in kinds})


def check_compatible(training: Training, model: HeadModel, loss: ELBO) -> None:
    """Raises an error if training options are incompatible with model, loss or device."""
    _check_precision(training.precision, list(model.parameters()))
    for latent in model.latents.values():
        latent.check_loss(model, loss)
    options = training.loss if isinstance(training.loss, HeadELBOLoss) else HeadELBOLoss()
    _check_penalty(options, model, loss)
    if training.precision == "fp16" and not has_differentiable_loss(loss):
        raise ValueError(
            f"precision fp16 scales a loss before its gradients, which {type(loss).__name__} takes "
            "itself: use bf16 or fp32"
        )
    _check_objective(options, model)
    if training.graph:
        _check_graph(training, model, loss)


def _check_graph(training: Training, model: HeadModel, loss: ELBO) -> None:
    """Raises an error if a step of the model cannot be captured."""
    if model.device.type == "cpu":
        raise ValueError("graph captures steps of a GPU, and this network is on the CPU: drop it")
    if type(loss) is not Head_ELBO:
        raise ValueError(f"graph needs loss Head_ELBO, got {type(loss).__name__}")
    if training.precision == "fp16":
        raise ValueError("graph does not go with precision fp16: use bf16 or fp32")
    for module in model.modules():
        if getattr(module, "synchronises", False):
            raise ValueError(
                f"graph captures no step with {type(module).__name__}, which waits for the GPU: "
                "drop graph"
            )


def _check_precision(precision: str, parameters: Sequence[nn.Parameter]) -> None:
    """Raises an error if the network cannot be trained in this precision."""
    if precision == "fp16" and parameters[0].device.type == "cpu":
        raise ValueError("precision fp16 needs a GPU: use bf16 or fp32")
    if precision in ("bf16", "fp16") and any(p.dtype == torch.float64 for p in parameters):
        raise ValueError(
            f"precision {precision} is of a network in float32, and this one is in "
            "float64: use fp32, which leaves it as it is, or make the network float32"
        )


def _check_penalty(options: HeadELBOLoss, model: HeadModel, loss: ELBO) -> None:
    """Raises an error if the L0 penalty of a latent is no part of the loss as it is."""
    penalised = next((name for name, latent in model.latents.items() if latent.has_penalty), "")
    if penalised and (options.kl_warmup is not None or options.kl_weight != 1):
        set_options = "kl_warmup" if options.kl_warmup is not None else "kl_weight"
        raise ValueError(
            f"{penalised} need a KL of weight 1, which their penalty is a part of: drop "
            f"loss.{set_options}"
        )
    if penalised and not isinstance(loss, Head_ELBO):
        raise ValueError(
            f"{penalised} are learned by the closed form of their KL: use loss Head_ELBO"
        )


def _check_objective(options: HeadELBOLoss, model: HeadModel) -> None:
    """Raises an error if the model has no latent of the kind that an objective is of."""
    has_relaxation = any(latent.temperature is not None for latent in model.latents.values())
    if isinstance(options, RelaxedLoss) and not has_relaxation:
        raise ValueError("loss relaxed needs gates between 0 and 1, such as bernoulli-heads")
    if options.objective != "bound" and not model.is_summed_out:
        raise ValueError(
            f"loss {options.name} needs a latent that is summed out, such as alignments"
        )


def check_sizes(step_batches: Step) -> None:
    """Raises an error for batches without ``corpus_size``: it scales the KL of shared latents."""
    if not all(batch.corpus_size for batch, _ in step_batches.micro_batches):
        raise ValueError(
            "batches of a function must say corpus_size, the sentences of their corpus, where "
            "latents are shared by all sentences: model.batch(..., corpus_size=N)"
        )


def make_loss(training: Training, model: HeadModel) -> ELBO:
    """Makes the loss of a model that the training options name."""
    objectives = (latent.objective for latent in model.latents.values())
    return training.loss.make(next(filter(None, objectives), Head_ELBO))


def check_noise_warmup(module: nn.Module) -> None:
    """Raises an error for families whose noise cannot be warmed up, or if there is no noise."""
    for family in module.modules():
        noisy = isinstance(family, Family) and family.has_noise
        if noisy and not any(isinstance(part, HeadScale) for part in family.modules()):
            raise ValueError(
                f"noise_warmup_steps acts on every HeadScale: {type(family).__name__} has none"
            )
    if not any(isinstance(part, HeadScale) for part in module.modules()):
        raise ValueError("noise_warmup_steps acts on noise, and neither model nor guide has any")
