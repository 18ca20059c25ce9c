"""A prior and a guide that go together: their names, their classes and their options."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from latentheads.arguments import WithOptions
from latentheads.guides import GUIDES, RECIPES, ModelGuide
from latentheads.model import HeadModel
from latentheads.models import PRIORS, Prior
from latentheads.runs.recipes import (
    DEFAULTS,
    LOGITS,
    NAMED,
    OfGuide,
    class_path,
    fit_options,
    name_of,
    own_options,
    path_of,
    resolve,
)
from latentheads.values import plain

__all__ = ["ClassSpec", "ModelGuidePair", "join_pair"]


@dataclass(frozen=True)
class ClassSpec:
    """A prior or a guide: what it is called, and its options.

    Attributes:
        name: One of the library's, or ``module:Class``.
        options: Those that were given; the others are at their default.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, kind: str, made: WithOptions) -> ClassSpec:
        """The name and the options of a prior or a guide that was made.

        Raises:
            ValueError: No file can say it: an option is no plain value, or the class is not found
                by its module and its name.
        """
        for name, value in made.options.items():
            if isinstance(value, HeadModel):
                raise ValueError(
                    f"{kind} {type(made).__name__} calls its model {name!r}: its first argument "
                    "must be called model"
                )
            if not _is_plain(value):
                raise ValueError(
                    f"{kind} option {name!r} is of type {type(value).__name__}: a run folder holds "
                    "numbers, texts and lists of them"
                )
        if "." in (path := type(made).__qualname__):
            raise ValueError(
                f"{kind} {path} is made inside another class or a function, where no run folder "
                "finds it: define it at the top of its module"
            )
        return cls(name_of(type(made), NAMED[kind]), made.options)

    def find(self, kind: str) -> Any:
        """The class."""
        return resolve(class_path(kind, self.name))

    def to_yaml(self, kind: str) -> dict[str, Any]:
        """As a run folder says it: the import path, and every option."""
        known = self.find(kind)
        defaults = {each.name: each.default for each in own_options(known)}
        said = {name: self.options.get(name, value) for name, value in defaults.items()}
        kept = {n: plain(v) for n, v in said.items() if v is not None or defaults[n] is not None}
        return {"class_path": path_of(known), **({"init_args": kept} if kept else {})}

    @classmethod
    def read(cls, kind: str, given: Mapping[str, Any]) -> ClassSpec:
        """Reads what :meth:`to_yaml` writes, after :func:`read_names` has looked at it."""
        path = given.get("class_path") or class_path(kind, DEFAULTS[kind])
        known = resolve(path)
        name = name_of(known, NAMED[kind])
        return cls(name, fit_options(kind, name, known, given.get("init_args") or {}))


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return plain(value) is None or isinstance(plain(value), bool | int | float | str)


@dataclass(frozen=True)
class ModelGuidePair:
    """The classes of prior and guide, each with its options.

    Attributes:
        prior_class: Class of the prior.
        prior_options: Its options.
        guide_class: Class of the guide.
        guide_options: Its options, without the model.
    """

    prior_class: type[Prior]
    prior_options: Mapping[str, Any]
    guide_class: type[ModelGuide]
    guide_options: Mapping[str, Any]

    @property
    def prior_name(self) -> str:
        """What the prior is called."""
        return name_of(self.prior_class, PRIORS)

    @property
    def guide_name(self) -> str:
        """What the guide is called."""
        return name_of(self.guide_class, GUIDES)

    @property
    def name(self) -> str:
        """The recipe's name, or ``prior+guide`` where the pair has none."""
        pair = self.prior_name, self.guide_name
        named = [name for name, recipe in RECIPES.items() if recipe == pair]
        return named[0] if named else self.full_name

    @property
    def full_name(self) -> str:
        """``prior+guide``, or the guide alone where the prior has no noise."""
        guide = self.guide_name.rpartition(":")[2]
        return guide if self.prior_name == DEFAULTS["prior"] else f"{self.prior_name}+{guide}"

    @property
    def own(self) -> bool:
        """Whether the prior or the guide is the reader's own, and not the library's."""
        return self.prior_class not in PRIORS.values() or self.guide_class not in GUIDES.values()

    def make_prior(self) -> Prior:
        """Makes the prior."""
        return self.prior_class(**self.prior_options)

    def make_guide(self, model: HeadModel) -> ModelGuide:
        """Makes the guide of a model; an option that acts on nothing there is left out."""
        idle = self.guide_class.find_idle(model, self.guide_options)
        acting = {name: value for name, value in self.guide_options.items() if name not in idle}
        return self.guide_class(model, **acting)


def join_pair(prior: ClassSpec, guide: ClassSpec, aligned: bool = False) -> ModelGuidePair:
    """The pair that two names stand for; a prior called tied is that of the guide's own form.

    Args:
        prior: The prior.
        guide: The guide.
        aligned: Whether alignments are drawn, of which a guide is where logits have no noise.

    Raises:
        ValueError: They do not go together.
    """
    prior_class, guide_class = prior.find("prior"), guide.find("guide")
    guide_options = fit_options("guide", guide.name, guide_class, guide.options)
    prior_options = fit_options("prior", prior.name, prior_class, prior.options)
    if prior_class is OfGuide:
        prior_class = _find_tied_prior(guide_class)
        prior_options = _keep_shared(guide_class, guide_options, prior_class)
        guide_class, guide_options = GUIDES["tied"], {}
    if prior_class.deterministic and guide_class is not GUIDES["tied"] and not aligned:
        raise ValueError(
            f"prior {name_of(prior_class, PRIORS)!r} has no noise: use guide tied, or prior "
            f"{LOGITS}, or draw alignments"
        )
    if guide_class is GUIDES["exact"] and not aligned:
        raise ValueError("guide exact needs latent alignments: give alignments 1 or 2")
    return ModelGuidePair(prior_class, prior_options, guide_class, guide_options)


def _find_tied_prior(guide: type[ModelGuide]) -> type[Prior]:
    if guide.tied_prior is None:
        raise ValueError(
            f"prior tied: guide {name_of(guide, GUIDES)!r} names no prior of its own form; "
            f"choose a prior from {', '.join(PRIORS)}"
        )
    return PRIORS[guide.tied_prior]


def _keep_shared(
    guide: type[ModelGuide], given: dict[str, Any], prior: type[Prior]
) -> dict[str, Any]:
    """The guide's options that its tied prior has too; a changed one that it lacks is refused."""
    defaults = {n: p.default for n, p in inspect.signature(guide).parameters.items()}
    changed = {name: value for name, value in given.items() if value != defaults[name]}
    for name in set(changed) - set(inspect.signature(prior).parameters):
        raise ValueError(f"prior tied: the prior of this form has no option {name!r}")
    return changed
