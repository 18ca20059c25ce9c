"""Registration of a module's parameters with Pyro, without its global parameter store."""

from __future__ import annotations

import weakref
from typing import Any

import pyro
from pyro.poutine.lift_messenger import LiftMessenger
from pyro.poutine.runtime import _PYRO_STACK, effectful
from pyro.poutine.substitute_messenger import SubstituteMessenger
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
    replaced = any(isinstance(h, LiftMessenger | SubstituteMessenger) for h in _PYRO_STACK)
    captured = any(isinstance(h, TraceMessenger) and h.param_only for h in _PYRO_STACK)
    for parameter_name, parameter in module.named_parameters():
        # a weight that torch.func.functional_call replaces by a sample is no parameter
        if parameter.requires_grad and parameter.is_leaf:
            full_name = f"{name}.{parameter_name}"
            parameter.unconstrained = _ParameterReference(parameter)  # type: ignore[attr-defined]
            value = _param(full_name, parameter, constraint=constraints.real, name=full_name)
            if replaced and value is not parameter:
                raise ValueError(
                    f"{full_name} is a weight, which poutine.lift and poutine.substitute do not "
                    "reach: replace it by torch.func.functional_call"
                )
            if not (captured or replaced):
                return
            pyro.get_param_store()._param_to_name[parameter] = full_name


def _value_of(name: str, parameter: nn.Parameter, **_: Any) -> Tensor:
    """The value of a ``param`` statement; a trace that has it can be pickled."""
    return parameter


_param = effectful(_value_of, type="param")
