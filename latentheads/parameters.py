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
    """A weak reference to a parameter; it is pickled as an empty set, which the next pass replaces.

    So ``torch.load`` opens parameters that were saved by ``torch.save``: it accepts few classes.
    """

    def __init__(self, parameter: nn.Parameter) -> None:
        self.reference = weakref.ref(parameter)

    def __call__(self) -> nn.Parameter | None:
        return self.reference()

    def __reduce__(self) -> tuple[type[set[Any]], tuple[()]]:
        return set, ()


def register_parameters(name: str, module: nn.Module) -> None:
    """Register a module's parameters with Pyro, without its global parameter store.

    ``SVI`` captures parameters by ``param`` statements, and ``Trace_ELBO`` computes gradients only
    if there is one. So there is always one, and one for each parameter under a handler that
    captures them: a loop with a torch optimiser registers one, and models with equal names never
    share a tensor. ``pyro.optim`` then finds the name of each, for options by name and its state.
    """
    # private members: Pyro has no public way to ask which handlers are active, nor to name a tensor
    # that is not in its global store; its own PyroModule writes names in the same way
    replaced = any(isinstance(h, LiftMessenger | SubstituteMessenger) for h in _PYRO_STACK)
    captured = any(isinstance(h, TraceMessenger) and h.param_only for h in _PYRO_STACK)
    for parameter_name, parameter in module.named_parameters():
        if parameter.requires_grad and parameter.is_leaf:  # no sample by torch.func.functional_call
            full_name = f"{name}.{parameter_name}"
            parameter.unconstrained = _ParameterReference(parameter)  # type: ignore[attr-defined]
            value = _param(full_name, parameter, constraint=constraints.real, name=full_name)
            if replaced and value is not parameter:
                reason = "lift and substitute do not reach weights: use torch.func.functional_call"
                raise ValueError(f"{full_name}: {reason}")
            if not (captured or replaced):
                return
            pyro.get_param_store()._param_to_name[parameter] = full_name


def _value_of(name: str, parameter: nn.Parameter, **_: Any) -> Tensor:
    return parameter  # not within a function: a trace that has it can be pickled


_param = effectful(_value_of, type="param")
