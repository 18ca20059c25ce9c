"""Validation during training: the ELBO, the best result so far, and early stopping."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor, nn

from latentheads.batch import Batch
from latentheads.corpora.part import Part
from latentheads.guide import ModelGuide
from latentheads.handlers import StrayParameters, isolated_param_store
from latentheads.inference.bound import Terms, terms
from latentheads.inference.evaluation import Report, eval_no_grad, evaluate
from latentheads.model import HeadModel
from latentheads.noise import fixed_noise
from latentheads.training.engine import Engine


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


def check_bound_exists(engine: Engine, batch: Batch) -> Terms:
    """Computes the ELBO of one batch, so that an invalid guide or loss fails before training.

    Returns:
        Its terms.

    Raises:
        ValueError: The guide has no bound, or there are parameters that no optimizer would update,
            plain tensors or made in a forward pass, or the loss cannot train the pair.
    """
    model, guide = engine.model, engine.guide
    for part, module in (("model", model), ("guide", guide)):
        _check_parameters(part, module)
    modules, noise = nn.ModuleList([model, guide]), fixed_noise(engine.seed, model.device)
    before, stray = set(map(id, modules.parameters())), StrayParameters(modules)
    with eval_no_grad(model, guide), noise, isolated_param_store(), stray:
        computed = terms(model, guide, batch.to(model.device))
    registered = [
        name for name, parameter in guide.named_parameters() if id(parameter) not in before
    ]
    if names := [*stray.names, *registered]:
        raise ValueError(
            f"parameter {names[0]!r} is made in a pass, where no optimiser finds it: make it in "
            "__init__, an nn.Parameter or a PyroParam, in the place of pyro.param"
        )
    engine.check_loss(batch)
    return computed


def _check_parameters(part: str, module: nn.Module) -> None:
    """Raises an error for a tensor that needs a gradient, and is no parameter of its module."""
    for path, child in module.named_modules(prefix=part):
        for name, value in vars(child).items():
            is_plain = isinstance(value, Tensor) and not isinstance(value, nn.Parameter)
            if is_plain and value.is_leaf and value.requires_grad:
                raise ValueError(
                    f"{path}.{name} is a tensor that needs a gradient, where no optimiser finds "
                    "it: make it an nn.Parameter"
                )


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
        report = evaluate(model, guide, valid, 1, seed)
    except FloatingPointError as error:
        raise FloatingPointError(f"step {step}: on validation {error}") from None
    value = getattr(report, metric.replace("-", "_"))
    if not math.isfinite(value):
        raise FloatingPointError(f"step {step}: {metric} on validation is not finite")
    return report, value
