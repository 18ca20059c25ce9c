"""Effects around a pass: the plug-in network, evaluation mode, parameters told to Pyro."""

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

from latentheads.alignment.distribution import Alignments
from latentheads.distributions import HeadVariable
from latentheads.names import SENTENCES, TARGET
from latentheads.passes import passes
from latentheads.selection.distribution import Selection

__all__ = [
    "FromPrior",
    "PlugIn",
    "SharedSamples",
    "StrayParameters",
    "blocked_from_tracers",
    "evaluation_mode",
    "own_parameters",
    "plug_in_value",
    "register_parameters",
]


def plug_in_value(law: Any) -> Tensor:
    """The value a plug-in network uses: a location, or the likeliest of what is discrete.

    Raises:
        ValueError: The law knows no such value.
    """
    if isinstance(law, HeadVariable):
        return law.location
    if isinstance(law, Selection | Alignments):
        return law.mode
    if isinstance(law, Independent | MaskedDistribution):
        return plug_in_value(law.base_dist)
    if law.support is constraints.boolean:  # whose mode is no number where both are as likely
        return (law.mean > 0.5).to(law.mean.dtype)
    try:
        return law.mode if law.support.is_discrete else law.mean
    except NotImplementedError:
        raise ValueError(
            "a plug-in network takes the mode of what is discrete and the mean of what is not: "
            f"{type(law).__name__} knows it not"
        ) from None


@contextmanager
def evaluation_mode(*modules: nn.Module) -> Iterator[None]:
    """Puts modules in evaluation mode, and every sub-module back in the mode it was in."""
    modes = {part: part.training for module in modules for part in module.modules()}
    for module in modules:
        module.eval()
    try:
        with passes():
            yield
    finally:
        for part, mode in modes.items():
            part.training = mode


class PlugIn(Messenger):
    """Sets every latent site to its prior's plug-in value: a deterministic network.

    Its likelihood is the exact one of *another* model, never a bound on this one.

    Example:
        >>> with lh.PlugIn():
        ...     once, again = model.law(batch), model.law(batch)
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
                f"site {msg['name']!r}: which heads speak is its guide's to say; use the plug-in "
                "network under latentheads.guide.WithSelection(guide)"
            )


def blocked_from_tracers() -> Any:
    """Hides a pass from tracers outside it, which can still set a selection."""
    return poutine.block(hide_fn=lambda site: not isinstance(site["fn"], Selection))


class SharedSamples(Messenger):
    """Draws what all sentences share once and gives it back in all further passes.

    Args:
        values: What is known from the start, by site.
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
    """Draws pairs without a latent from the prior, also where a guide has drawn them itself."""

    def _pyro_sample(self, msg: Any) -> None:
        law, proposed = msg["fn"], msg["value"]
        if isinstance(law, HeadVariable) and proposed is not None and not msg["is_observed"]:
            msg["value"] = law.complete(proposed)


class _Itself:
    """Gives a parameter when called; a pickled copy is empty until a pass sets it anew."""

    def __init__(self, parameter: nn.Parameter | None = None) -> None:
        self.reference = None if parameter is None else weakref.ref(parameter)

    def __call__(self) -> nn.Parameter | None:
        return None if self.reference is None else self.reference()

    def __reduce__(self) -> tuple[type[_Itself], tuple[()]]:
        return _Itself, ()


def register_parameters(name: str, module: nn.Module) -> None:
    """Tells Pyro of a module's parameters, without its global parameter store.

    ``SVI`` captures parameters through ``param`` statements, and ``Trace_ELBO`` takes gradients
    only where it meets one. So one statement is made always, and all of them under a tracer that
    captures parameters: a loop with a torch optimiser pays for one, and two models with the same
    names in one process never share a tensor. Such a tracer also finds each tensor's name where
    ``pyro.optim`` looks for it, for options by name and for the optimiser's state.
    """
    captured = any(isinstance(h, TraceMessenger) and h.param_only for h in _PYRO_STACK)
    for parameter_name, parameter in module.named_parameters():
        if parameter.requires_grad:
            parameter.unconstrained = _Itself(parameter)  # type: ignore[attr-defined]
            _state_parameter(f"{name}.{parameter_name}", parameter)
            if not captured:
                return
            pyro.get_param_store()._param_to_name[parameter] = f"{name}.{parameter_name}"


def own_parameters() -> AbstractContextManager[None]:
    """Lets a module of Pyro's have its own parameters, and not another's of the same names.

    Pyro keeps them by name in one store: the second of two guides would take the first one's.
    """
    return cast(AbstractContextManager[None], pyro.get_param_store().scope())


class StrayParameters(Messenger):
    """Notes what ``pyro.param`` gives in a pass, where that is no parameter of a module.

    Training moves those of the module alone.

    Args:
        module: Whose parameters are trained.

    Attributes:
        found: The names of the others.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.found: list[str] = []

    def _pyro_post_param(self, msg: Any) -> None:
        value = msg["value"]
        given = value.unconstrained() if hasattr(value, "unconstrained") else value
        own = self.module.parameters()
        if not any(given is each or given.data_ptr() == each.data_ptr() for each in own):
            self.found.append(msg["name"])


def _state_parameter(name: str, parameter: nn.Parameter) -> None:
    def value(*_: Any, **__: Any) -> Tensor:
        return parameter

    statement = effectful(value, type="param")
    statement(name, parameter, constraint=constraints.real, name=name)
