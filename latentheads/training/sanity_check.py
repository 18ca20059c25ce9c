"""Checks before the first step: the pair has a bound, and an optimizer finds its parameters."""

from __future__ import annotations

from torch import Tensor, nn

from latentheads.batch import Batch
from latentheads.handlers import StrayParameters, isolated_param_store
from latentheads.inference.bound import Terms, terms
from latentheads.inference.evaluation import eval_no_grad
from latentheads.noise import fixed_noise
from latentheads.training.engine import Engine


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
