"""The loss that training minimises: Head_ELBO, or any other ``pyro.infer.ELBO``.

A loss is named by the text that makes it, such as ``Trace_ELBO(num_particles=2)``; one of a class
of the reader's own by ``module:Class``, which is a name alone: nothing is imported by it.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from inspect import Parameter, signature
from typing import Any

import pyro.infer
from pyro.infer import ELBO

from latentheads.checks import MAX_PARTICLES, check_most
from latentheads.errors import shown
from latentheads.inference.objective import Head_ELBO

BY_OPTIONS = ("Head_ELBO", "marginal", "sampled", "iwae", "rws", "relaxed")
"""The losses that the options of training parametrise; all but the first sum latents out."""

OF_PYRO = ("Trace_ELBO", "TraceMeanField_ELBO", "TraceGraph_ELBO", "TraceEnum_ELBO", "RenyiELBO")

LOSSES = (*BY_OPTIONS, *OF_PYRO)
"""The names of all losses."""

CLASSES: dict[str, type[ELBO]] = {
    "Head_ELBO": Head_ELBO,
    **{name: getattr(pyro.infer, name) for name in OF_PYRO},
}

COUNTS = ("num_particles", "objective_draws", "max_plate_nesting", "max_iarange_nesting")
"""Arguments that count something."""

UNNAMED = ("max_plate_nesting", "max_iarange_nesting")
"""Arguments that no name has: Pyro guesses the one, and has given up the other."""


def check_loss(loss: str) -> None:
    """Validates the name of a loss."""
    if loss not in LOSSES and not _is_own(loss):
        make_named_loss(loss)


def make_named_loss(loss: str) -> ELBO:
    """Makes the loss that a text says, such as ``RenyiELBO(alpha=0.5)``.

    Raises:
        ValueError: It is the name of no loss, or of a class of the reader's own.
    """
    if _is_own(loss):
        raise ValueError(
            f"loss {loss} is of a class of your own: give an instance to lh.Trainer or lh.fit"
        )
    name, arguments = _read_call(loss)
    if name not in CLASSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}; got {shown(loss)}")
    try:
        _check_arguments(CLASSES[name], arguments)
        return CLASSES[name](**arguments)
    except (TypeError, ValueError) as reason:
        raise ValueError(f"loss {loss}: {reason}") from reason


def _check_arguments(kind: type[ELBO], arguments: Mapping[str, Any]) -> None:
    """Validates arguments that the class takes, and that fail at the first step."""
    defaults: dict[str, Any] = {**dict.fromkeys(UNNAMED, 1), **_arguments(kind)}
    for name, value in arguments.items():
        default = defaults.get(name)
        if isinstance(default, bool) and not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, got {shown(value)}")
        if name in COUNTS and not (type(value) is int and value >= 1):
            raise ValueError(f"{name} must be a whole number, at least 1, got {shown(value)}")
        if name in COUNTS:
            check_most(arguments, **{name: MAX_PARTICLES})
        number = type(value) in (int, float) and math.isfinite(value)
        if type(default) in (int, float) and not number:
            raise ValueError(f"{name} must be a finite number, got {shown(value)}")


def name_loss(loss: object) -> str:
    """The text that makes a loss; that of a class of the reader's own names it alone."""
    if isinstance(loss, str):
        return loss
    if not isinstance(loss, ELBO):
        raise ValueError(
            "loss must be a name, or a pyro.infer.ELBO such as Trace_ELBO(num_particles=2), "
            f"got {shown(loss)}"
        )
    kind = type(loss)
    if CLASSES.get(kind.__name__) is not kind:
        return f"{kind.__module__}:{kind.__qualname__}"
    changed = {
        name: value
        for name, default in _arguments(kind).items()
        # without a word Head_ELBO is the one that the options of training parametrise
        if (value := getattr(loss, name)) != default or name == "analytic"
    }
    arguments = ", ".join(f"{name}={value!r}" for name, value in changed.items())
    return f"{kind.__name__}({arguments})" if arguments else kind.__name__


def _is_own(loss: str) -> bool:
    return re.fullmatch(r"[\w.]+:[\w.<>]+", loss) is not None


def _read_call(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the arguments of a call whose arguments are plain values by name."""
    try:
        call = ast.parse(text, mode="eval").body
        if isinstance(call, ast.Name):
            return call.id, {}
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.args:
            return call.func.id, {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deep
        pass
    return "", {}


def _arguments(kind: type[ELBO]) -> dict[str, Any]:
    """The arguments of a loss with their defaults, and those that ``**options`` stands for."""
    parameters = dict(signature(kind).parameters)
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()):
        parameters |= signature(ELBO).parameters
    return {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.kind is not Parameter.VAR_KEYWORD and name not in UNNAMED
    }
