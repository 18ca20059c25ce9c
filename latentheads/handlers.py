"""Effect handlers: the plug-in network, evaluation mode, and registration of parameters."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import pyro
from pyro import poutine
from pyro.distributions import MaskedDistribution
from pyro.poutine.messenger import Messenger
from pyro.poutine.runtime import _PYRO_STACK, effectful
from pyro.poutine.trace_messenger import TraceMessenger
from pyro.poutine.util import site_is_subsample
from torch import Tensor, nn
from torch.distributions import Independent, constraints

from latentheads.distributions import HeadVariable
from latentheads.latents.active_heads import Selection
from latentheads.names import SENTENCES, TARGET
from latentheads.passes import passes


def plug_in_value(distribution: Any) -> Tensor:
    """The value that a plug-in network uses: a mean, or the mode of a discrete distribution.

    Raises:
        ValueError: The distribution implements neither.
    """
    if isinstance(distribution, HeadVariable):
        return distribution.location
    if isinstance(distribution, Selection):
        return distribution.mode
    if isinstance(distribution, Independent | MaskedDistribution):
        return plug_in_value(distribution.base_dist)
    if distribution.support is constraints.boolean:  # its mode is NaN if both are equally likely
        return (distribution.mean > 0.5).to(distribution.mean.dtype)
    try:
        return distribution.mode if distribution.support.is_discrete else distribution.mean
    except NotImplementedError:
        raise ValueError(
            "a plug-in network uses the mode of discrete distributions and the mean of others: "
            f"{type(distribution).__name__} implements neither"
        ) from None


@contextmanager
def evaluation_mode(*modules: nn.Module) -> Iterator[None]:
    """Context of evaluation mode; restores the mode of every submodule."""
    modes = {submodule: submodule.training for module in modules for submodule in module.modules()}
    for module in modules:
        module.eval()
    try:
        with passes():
            yield
    finally:
        for submodule, mode in modes.items():
            submodule.training = mode


class PlugIn(Messenger):
    """Set every latent site to its prior's mean or mode: a deterministic network.

    Its likelihood is that of *another* model, and no bound on this one.

    Example:
        >>> with lh.PlugIn():
        ...     once, again = model.token_distribution(batch), model.token_distribution(batch)
        >>> once.log_prob(batch.target) == again.log_prob(batch.target)
        tensor([True, True])
    """

    def _pyro_sample(self, msg: Any) -> None:
        latent = not (msg["is_observed"] or site_is_subsample(msg) or msg["name"] == TARGET)
        if latent and msg["value"] is None:
            msg["value"] = plug_in_value(msg["fn"])
            msg["infer"]["unselected"] = isinstance(msg["fn"], Selection)

    def _pyro_post_sample(self, msg: Any) -> None:
        if msg["infer"].get("unselected"):
            raise ValueError(
                f"site {msg['name']!r}: the selection of heads comes from the guide; use the "
                "plug-in network under latentheads.guide.WithSelection(guide)"
            )


def blocked_from_tracers() -> Any:
    """Hide a pass from outer handlers, except for selections of heads."""
    return poutine.block(hide_fn=lambda site: not isinstance(site["fn"], Selection))


class SharedSamples(Messenger):
    """Sample latents that all sentences share once, and reuse them in all later passes.

    Args:
        values: Values by site, if known already.
    """

    def __init__(self, values: Mapping[str, Tensor] | None = None) -> None:
        super().__init__()
        self.values = dict(values or {})

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.values:
            msg["value"] = self.values[msg["name"]]

    def _pyro_post_sample(self, msg: Any) -> None:
        frames = {frame.name for frame in msg["cond_indep_stack"]}
        if not (SENTENCES in frames or msg["is_observed"] or site_is_subsample(msg)):
            self.values[msg["name"]] = msg["value"]


class FromPrior(Messenger):
    """Sample pairs without a latent from the prior, even if a guide has sampled them."""

    def _pyro_sample(self, msg: Any) -> None:
        distribution, proposed = msg["fn"], msg["value"]
        if (
            isinstance(distribution, HeadVariable)
            and proposed is not None
            and not msg["is_observed"]
        ):
            msg["value"] = distribution.complete(proposed)


class _ParameterReference:
    """A weak reference to a parameter; a pickled copy is empty until the next pass."""

    def __init__(self, parameter: nn.Parameter | None = None) -> None:
        self.reference = None if parameter is None else weakref.ref(parameter)

    def __call__(self) -> nn.Parameter | None:
        return None if self.reference is None else self.reference()

    def __reduce__(self) -> tuple[type[_ParameterReference], tuple[()]]:
        return _ParameterReference, ()


def register_parameters(name: str, module: nn.Module) -> None:
    """Register a module's parameters with Pyro, without its global parameter store.

    ``SVI`` captures parameters through ``param`` statements, and ``Trace_ELBO`` computes gradients
    only if there is one. So there is always one statement, and one for each parameter under a
    handler that captures parameters: a loop with a torch optimiser pays for one only, and two
    models with the same names never share a tensor. In the latter case ``pyro.optim`` also finds
    the name of each tensor, for options by name and for the optimiser's state.
    """
    # the one place that reads private members of Pyro, which has no public way to ask which
    # handlers are active, nor to name a tensor that is not in its global store; its own
    # PyroModule writes names in the same way
    captured = any(
        isinstance(handler, TraceMessenger) and handler.param_only for handler in _PYRO_STACK
    )
    for parameter_name, parameter in module.named_parameters():
        if parameter.requires_grad:
            parameter.unconstrained = _ParameterReference(parameter)  # type: ignore[attr-defined]
            _register_param(f"{name}.{parameter_name}", parameter)
            if not captured:
                return
            pyro.get_param_store()._param_to_name[parameter] = f"{name}.{parameter_name}"


def isolated_param_store() -> AbstractContextManager[None]:
    """Context with an empty Pyro parameter store.

    The store is global and keyed by name: the second of two Pyro guides would share the parameters
    of the first.
    """
    return cast(AbstractContextManager[None], pyro.get_param_store().scope())


class StrayParameters(Messenger):
    """Record the ``pyro.param`` statements that are no parameters of a module.

    They are not trained.

    Args:
        module: The module whose parameters are trained.

    Attributes:
        names: Names of the other parameters.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.names: list[str] = []

    def _pyro_post_param(self, msg: Any) -> None:
        value = msg["value"]
        parameter = value.unconstrained() if hasattr(value, "unconstrained") else value
        trained = self.module.parameters()
        if not any(
            parameter is other or parameter.data_ptr() == other.data_ptr() for other in trained
        ):
            self.names.append(msg["name"])


def _register_param(name: str, parameter: nn.Parameter) -> None:
    def value(*_: Any, **__: Any) -> Tensor:
        return parameter

    statement = effectful(value, type="param")
    statement(name, parameter, constraint=constraints.real, name=name)
