"""The loss that training minimises: ``Head_ELBO``, or any other ``pyro.infer.ELBO``.

Options name a loss and its arguments. An instance of a ``pyro.infer.ELBO`` stands for the options
of its class; that of a class of the reader's own for its name and arguments, and nothing imports
the class.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from annotated_types import Ge
from pydantic import NonNegativeFloat
from pydantic_core import core_schema
from pyro.infer import (
    ELBO,
    RenyiELBO,
    Trace_ELBO,
    TraceEnum_ELBO,
    TraceGraph_ELBO,
    TraceMeanField_ELBO,
    TraceTailAdaptive_ELBO,
)

from latentheads.inference.objective import Head_ELBO
from latentheads.latents.relaxation import Relaxation
from latentheads.latents.summed_out import Objective
from latentheads.options import (
    CLASS,
    Choice,
    Count,
    OptionError,
    Text,
    UnusedOptionError,
    flatten,
    is_plain,
    name_of_class,
    options_class,
    options_of,
    to_dict,
)


@options_class()
class Loss(Choice, ABC):
    """What training minimises."""

    @classmethod
    def choices(cls) -> Mapping[str, type[Loss]]:
        return {
            "Head_ELBO": HeadELBOLoss,
            "marginal": MarginalLoss,
            "sampled": SampledLoss,
            "iwae": IWAELoss,
            "rws": RWSLoss,
            "relaxed": RelaxedLoss,
            "Trace_ELBO": TraceELBOLoss,
            "TraceMeanField_ELBO": TraceMeanFieldELBOLoss,
            "TraceGraph_ELBO": TraceGraphELBOLoss,
            "TraceEnum_ELBO": TraceEnumELBOLoss,
            "RenyiELBO": RenyiELBOLoss,
        }

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Of a name, of a name with options, or of an instance of a ``pyro.infer.ELBO``."""
        schema = super().__get_pydantic_core_schema__(source, handler)
        if not inspect.isabstract(source):
            return schema
        return core_schema.no_info_wrap_validator_function(
            lambda value, choose: _read_loss(value, choose), schema
        )

    @abstractmethod
    def make(self, head_elbo: type[Head_ELBO] = Head_ELBO) -> ELBO:
        """Makes the loss.

        Args:
            head_elbo: The class of an objective of the library, such as one that learns a
                selection of heads by its scores.

        Raises:
            ValueError: It is of a user-defined class.
        """

    @property
    def name(self) -> str:
        """Its name among the choices; of a user-defined class, its path."""
        return name_of_class(self)

    def __str__(self) -> str:
        """Its name, and the options that are not at their default."""
        options = to_dict(self)
        name = options.pop(CLASS)
        defaults = to_dict(type(self)()) if name in self.choices() else {}
        changed = (f"{n}={v!r}" for n, v in options.items() if defaults.get(n, CLASS) != v)
        arguments = ", ".join(changed)
        return f"{name}({arguments})" if arguments else name


@options_class()
class ELBOLoss(Loss, ABC):
    """A loss of a class in the table.

    Attributes:
        num_particles: Samples of all latents, of which the loss is the mean; of RenyiELBO, those
            that it weighs.
        vectorize_particles: Sample them in one pass.
    """

    num_particles: Count = 1
    vectorize_particles: bool = False

    def __post_init__(self) -> None:
        if self.vectorize_particles and self.num_particles == 1:
            raise OptionError("vectorize_particles", " needs num_particles of 2 or more")


@options_class()
class KLWarmup:
    """A weight of the KL that grows linearly.

    Attributes:
        steps: Steps over which it grows to kl_weight.
        start: Where it starts.
    """

    steps: Count
    start: NonNegativeFloat = 0.0


@options_class()
class HeadELBOLoss(ELBOLoss):
    """The negative evidence lower bound, with alignments summed out.

    Attributes:
        kl: Closed-form KLs where there are any (analytic), or all of them sampled.
        kl_weight: Factor of the KL; other than 1 trains something else than the bound.
        kl_warmup: Steps over which that factor grows from 0; not given: it is constant.
        free_bits: The KL of each site, over the part of a batch that one process computes, counts
            as at least this many nats per target token.
    """

    kl: Literal["analytic", "sampled"] = "analytic"
    kl_weight: NonNegativeFloat = 1.0
    kl_warmup: KLWarmup | None = None
    free_bits: NonNegativeFloat = 0.0

    objective: ClassVar[Objective] = "bound"

    @property
    def num_objective_samples(self) -> Mapping[str, int]:
        """The samples of an objective that weighs several."""
        return {}

    @property
    def has_kl_of_alignments(self) -> bool:
        """Whether the KL of alignments is a term, and not within the weights of samples."""
        return self.objective in ("bound", "sampled", "relaxed")

    def check_kl(self, *, of_sentences: bool, sampled: bool, shared: bool) -> None:
        """Validates that there is a KL on which each option of a KL acts.

        Args:
            of_sentences: Whether there is a KL of each sentence.
            sampled: Whether there is one that may be sampled.
            shared: Whether there is one that all sentences share.
        """
        has_any = of_sentences or shared
        acts = {"kl": sampled, "kl_weight": has_any, "kl_warmup": has_any}
        acts["free_bits"] = of_sentences
        what = {"kl": "a KL that may be sampled", "free_bits": "a KL of each sentence"}
        for name, is_active in acts.items():
            if not is_active and getattr(self, name) != options_of(type(self))[name].default:
                raise UnusedOptionError(
                    name,
                    f" acts on {what.get(name, 'a KL')}, and the loss {self.name} has none here",
                )

    def make(self, head_elbo: type[Head_ELBO] = Head_ELBO) -> Head_ELBO:
        return head_elbo(
            kl_weight=self.kl_weight,
            free_bits=self.free_bits,
            analytic=self.kl == "analytic",
            objective=self.objective,
            num_particles=self.num_particles,
            vectorize_particles=self.vectorize_particles,
            **self.num_objective_samples,
        )

    def kl_weight_at(self, step: int) -> float:
        """The factor of the KL at a step counted from 0."""
        warmup = self.kl_warmup
        if warmup is None or step >= warmup.steps:
            return self.kl_weight
        return warmup.start + (self.kl_weight - warmup.start) * (step / warmup.steps)


@options_class()
class MarginalLoss(HeadELBOLoss):
    """Of alignments: log p(y | x) itself, and the guide's bound beside it."""

    objective: ClassVar[Objective] = "marginal"


@options_class()
class SampledLoss(HeadELBOLoss):
    """Of alignments: the guide's bound from one sample, measured against soft attention."""

    objective: ClassVar[Objective] = "sampled"


NumSamples: TypeAlias = Annotated[Count, Ge(2)]


@options_class()
class IWAELoss(HeadELBOLoss):
    """Of alignments: the bound of several samples together.

    Attributes:
        num_samples: Samples of each word's alignments.
    """

    num_samples: NumSamples = 5

    objective: ClassVar[Objective] = "iwae"

    @property
    def num_objective_samples(self) -> Mapping[str, int]:
        return {"num_samples": self.num_samples}


@options_class()
class RWSLoss(IWAELoss):
    """Of alignments: model and guide each fitted to weighted samples.

    Attributes:
        num_samples: Samples of each word's alignments.
    """

    objective: ClassVar[Objective] = "rws"


@options_class()
class RelaxedLoss(Relaxation, HeadELBOLoss):
    """Of Bernoulli heads: the likelihood of gates between 0 and 1, which is no bound."""

    objective: ClassVar[Objective] = "relaxed"

    def __post_init__(self) -> None:
        Relaxation.__post_init__(self)
        HeadELBOLoss.__post_init__(self)


@options_class()
class TraceELBOLoss(ELBOLoss):
    """Pyro's Trace_ELBO: all KLs sampled."""

    elbo: ClassVar[type[ELBO]] = Trace_ELBO

    def make(self, head_elbo: type[Head_ELBO] = Head_ELBO) -> ELBO:
        return self.elbo(**{name: getattr(self, name) for name in options_of(type(self))})


@options_class()
class TraceMeanFieldELBOLoss(TraceELBOLoss):
    """Pyro's TraceMeanField_ELBO: KLs in closed form where there are any."""

    elbo: ClassVar[type[ELBO]] = TraceMeanField_ELBO


@options_class()
class TraceGraphELBOLoss(TraceELBOLoss):
    """Pyro's TraceGraph_ELBO: lower variance of the gradients of discrete latents."""

    elbo: ClassVar[type[ELBO]] = TraceGraph_ELBO


@options_class()
class TraceEnumELBOLoss(TraceELBOLoss):
    """Pyro's TraceEnum_ELBO: latents that are marked are summed out."""

    elbo: ClassVar[type[ELBO]] = TraceEnum_ELBO


@options_class()
class RenyiELBOLoss(TraceELBOLoss):
    """Pyro's RenyiELBO: a bound by weighted samples of each sentence.

    Attributes:
        alpha: The order of the divergence; 0 is the bound of IWAE.
    """

    num_particles: Count = 2
    alpha: float = 0.0

    elbo: ClassVar[type[ELBO]] = RenyiELBO

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha == 1:
            raise OptionError("alpha", " must not be 1: that is loss Trace_ELBO")


@dataclass(frozen=True)
class OwnLoss(Loss):
    """A loss of a user-defined class; a file may import nothing, so nothing makes it.

    Attributes:
        path: The class, as ``module:Class``.
        arguments: Those that are plain values, and not at their default.
    """

    path: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.path

    def to_options(self) -> dict[str, Any]:
        """The path and the arguments."""
        return {CLASS: self.path, **self.arguments}

    def make(self, head_elbo: type[Head_ELBO] = Head_ELBO) -> ELBO:
        """Raises an error: an instance has to be given."""
        raise ValueError(f"loss{self.reason}")

    @property
    def reason(self) -> str:
        """Why nothing makes it."""
        return f" {self.path} is of a class of your own: give an instance to lh.Trainer or lh.fit"


LossLike: TypeAlias = str | Mapping[str, Any] | Loss | ELBO
"""What names a loss: its name, the name with options, or an instance."""


def instance_of(loss: object) -> ELBO | None:
    """The loss itself, where it was made already."""
    return loss if isinstance(loss, ELBO) else None


def describe_elbo(elbo: ELBO) -> Loss:
    """The options of an instance."""
    for kind in Loss.choices().values():
        if issubclass(kind, TraceELBOLoss) and kind.elbo is type(elbo):
            return kind(**_read_arguments(elbo, options_of(kind)))
    if type(elbo) is not Head_ELBO:
        check_is_called(elbo)
        return OwnLoss(f"{type(elbo).__module__}:{type(elbo).__qualname__}", _own_arguments(elbo))
    kinds = (kind for kind in Loss.choices().values() if issubclass(kind, HeadELBOLoss))
    head_kind = next(kind for kind in kinds if kind.objective == elbo.objective)
    kl = {"kl": "analytic" if elbo.analytic else "sampled"}
    return head_kind(**_read_arguments(elbo, options_of(head_kind)) | kl)


def check_is_called(elbo: ELBO) -> None:
    """Raises an error for a class that trains nothing, or overrides only what is never called.

    Training differentiates a loss itself where it can; Pyro's ``SVI`` asks for its gradients.
    """
    classes = type(elbo).__mro__
    packages = [ancestor.__module__.partition(".")[0] for ancestor in classes]
    number = next(i for i, package in enumerate(packages) if package in ("pyro", "latentheads"))
    own_classes, base = classes[:number], classes[number]
    if elbo.__class__ is base and (base is TraceTailAdaptive_ELBO or "Jit" in base.__name__):
        names = ", ".join(Loss.choices())
        raise OptionError("", f" {base.__name__} trains no model here: choose from {names}")
    attributes = [item for own_class in own_classes for item in vars(own_class).items()]
    methods = {name for name, value in attributes if callable(value)}
    own = {name for name in methods if hasattr(base, name) and not name.startswith("__")}
    called = "differentiable_loss" if hasattr(elbo, "differentiable_loss") else "loss_and_grads"
    if not hasattr(elbo, called):
        raise OptionError(
            "", f" {type(elbo).__name__} must define differentiable_loss, which training calls"
        )
    if own and own <= {"loss", "loss_and_grads"} - {called}:
        raise OptionError(
            "",
            f" {type(elbo).__name__} overrides {' and '.join(sorted(own))} of {base.__name__}, "
            f"which training does not call: override {called}",
        )


def _read_arguments(elbo: ELBO, options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that an instance keeps under their names."""
    arguments = {name: getattr(elbo, name) for name in options if hasattr(elbo, name)}
    if elbo.num_particles == 1:  # then they are not vectorised, whatever was given
        arguments["vectorize_particles"] = False
    return arguments


def _own_arguments(elbo: ELBO) -> dict[str, Any]:
    """The arguments of an instance of any class that are plain and not at their default."""
    # Pyro guesses the nesting of plates in a first pass, and keeps it under the argument's name
    defaults = {"max_plate_nesting": elbo.max_plate_nesting}
    values: dict[str, Any] = {}
    for base in type(elbo).__mro__:  # ``**options`` stand for the arguments of the class above
        parameters = [*inspect.signature(base).parameters.values()]
        for parameter in parameters:
            defaults.setdefault(parameter.name, parameter.default)
            values.setdefault(parameter.name, getattr(elbo, parameter.name, parameter.default))
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            break
    return {
        name: to_dict(value)
        for name, value in values.items()
        if is_plain(value) and value != defaults[name]
    }


def _read_loss(value: Any, choose: Callable[[Any], Any]) -> Any:
    """A loss as it was given, or what its name stands for."""
    if isinstance(value, OwnLoss):
        return value
    if isinstance(value, ELBO):
        return describe_elbo(value)
    if isinstance(value, type) and issubclass(value, ELBO):
        raise OptionError("", f" must be an instance, {value.__name__}(), not its class")
    options = dict(value) if isinstance(value, Mapping) else {CLASS: value}
    name = options.pop(CLASS, None)
    if isinstance(name, str) and ":" in name:
        own = OwnLoss(str(name), options)
        if any(isinstance(given, Text) for given in (name, *flatten(options).values())):
            raise OptionError("", own.reason)  # a command line has no instance
        return own
    return choose(value)
