"""Registration of a module's parameters with Pyro, without its global parameter store."""

from __future__ import annotations

import weakref
from typing import Any

import pyro
from pyro.poutine.runtime import _PYRO_STACK, effectful
from pyro.poutine.trace_messenger import TraceMessenger
from torch import Tensor, nn
from torch.distributions import constraints


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


def _register_param(name: str, parameter: nn.Parameter) -> None:
    def value(*_: Any, **__: Any) -> Tensor:
        return parameter

    statement = effectful(value, type="param")
    statement(name, parameter, constraint=constraints.real, name=name)
