"""Priors and guides by name: which class a name stands for, and which of them a file may name."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar, get_type_hints

from latentheads.guides import GUIDES, RECIPES, Guide, ModelGuide
from latentheads.model import HeadModel
from latentheads.models import PRIORS, Prior
from latentheads.options import WithOptions
from latentheads.runs.trust import refuse_code
from latentheads.runs.values import fit, plain
from latentheads.selection.laws import LAWS, Law

__all__ = [
    "ALIGNED",
    "DEFAULTS",
    "LOGITS",
    "NAMED",
    "OF_LOGITS",
    "Pair",
    "Spec",
    "Tied",
    "check_untyped",
    "class_path",
    "find_recipe",
    "is_of_logits",
    "join_pair",
    "name_of",
    "own_options",
    "read_names",
    "refuse_other_kinds",
    "resolve",
    "split_law",
    "split_path",
]

DEFAULTS = {"guide": "cascaded", "prior": "delta"}
"""A guide alone is of alignments: the logits of attention heads have no noise."""

ALIGNED = "+alignments"
"""What stands behind a guide in the name of a recipe of alignments."""

LOGITS = "independent"
"""The prior that a guide of logits alone is trained against, where no other is named."""

OF_LOGITS = {"alignments": 0}
"""What a recipe or a prior says beside itself: it is of logits, as the papers' are."""

BASES: dict[str, type] = {"guide": ModelGuide, "prior": Prior}
T = TypeVar("T")


class Tied(Prior):
    """Stands for the prior that has the guide's own form; resolved before anything is built."""

    def __call__(self, block: Any) -> NoReturn:
        """Is never built."""
        raise TypeError("prior tied must be resolved first")


NAMED: dict[str, dict[str, type]] = {"guide": {**GUIDES}, "prior": {**PRIORS, "tied": Tied}}
"""The classes that have a name, of each kind."""

FORMER = {"latentheads.experiments.cli.names.Tied": Tied}
"""Import paths that older run folders have for a class of ours."""


@dataclass(frozen=True)
class Spec:
    """A prior or a guide: what it is called, and its options.

    Attributes:
        name: One of the library's, or ``module:Class``.
        options: Those that were given; the others are at their default.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, kind: str, made: WithOptions) -> Spec:
        """What a prior or a guide was made with.

        Raises:
            ValueError: An option is no plain value, so that no file can say it.
        """
        for name, value in made.options.items():
            if not _is_plain(value):
                raise ValueError(
                    f"{kind} option {name!r} is {value!r}: a run folder holds numbers, texts and "
                    "lists of them"
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
    def read(cls, kind: str, given: Mapping[str, Any]) -> Spec:
        """Reads what :meth:`to_yaml` writes, after :func:`read_names` has looked at it."""
        path = given.get("class_path") or class_path(kind, DEFAULTS[kind])
        known = resolve(path)
        name = name_of(known, NAMED[kind])
        return cls(name, fit_options(kind, name, known, given.get("init_args") or {}))


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return plain(value) is None or isinstance(plain(value), bool | int | float | str)


def fit_options(kind: str, name: str, known: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a class as its annotations want them.

    Raises:
        ValueError: It has no such option, needs another one, or wants another kind of value.
    """
    options = {option.name: option for option in own_options(known)}
    for option in given:
        if option not in options:
            has = ", ".join(options) or "none"
            raise ValueError(f"{kind} {name!r} has no option {option!r}; it has {has}")
    for each in options.values():
        if each.default is each.empty and each.name not in given:
            raise ValueError(f"{kind} {name!r} needs {kind}.{each.name}")
    hints = _read_hints(known)
    found = {n: fit(f"{kind}.{n}", hints.get(n, Any), value) for n, value in given.items()}
    check_untyped(kind, known, found)
    return found


def _read_hints(known: type) -> dict[str, Any]:
    try:
        return get_type_hints(known.__init__)  # type: ignore[misc]
    except (NameError, TypeError):
        return {}


@dataclass(frozen=True)
class Pair:
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

    def make_prior(self) -> Prior:
        """Makes the prior."""
        return self.prior_class(**self.prior_options)

    def make_guide(self, model: HeadModel) -> ModelGuide:
        """Makes the guide of a model."""
        return self.guide_class(model, **self.guide_options)


def join_pair(prior: Spec, guide: Spec, aligned: bool = False) -> Pair:
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
    if prior_class is Tied:
        prior_class = _find_tied_prior(guide_class)
        prior_options = _keep_shared(guide_class, guide_options, prior_class)
        guide_class, guide_options = GUIDES["tied"], {}
    if prior_class.deterministic and guide_class is not GUIDES["tied"] and not aligned:
        raise ValueError(
            f"prior {name_of(prior_class, PRIORS)!r} has no noise: use guide tied, or prior "
            f"{LOGITS}, or draw alignments"
        )
    if guide_class is GUIDES["exact"] and not aligned:
        raise ValueError("guide exact needs alignments that are drawn: give alignments 1 or 2")
    return Pair(prior_class, prior_options, guide_class, guide_options)


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


def split_law(name: str) -> tuple[str, Law | None]:
    """``cascaded+group`` is ``cascaded`` and selects its heads by ``group``."""
    first, _, last = name.rpartition("+")
    return (first, last) if last in LAWS else (name, None)  # type: ignore[return-value]


def find_recipe(name: str) -> dict[str, Any]:
    """The names of prior and guide that a recipe stands for, and whether there are alignments.

    ``GUIDE+alignments`` is what the guide alone stands for.
    """
    guide, plus, _ = name.partition(ALIGNED)
    if plus and name.endswith(ALIGNED) and guide in GUIDES:
        return {"prior": DEFAULTS["prior"], "guide": guide}
    if name not in RECIPES:
        refuse_other_kinds("recipe", name)
        known = ", ".join(sorted(RECIPES))
        raise ValueError(f"unknown recipe {name!r}: choose from {known}, or GUIDE{ALIGNED}")
    return {**OF_LOGITS, **RECIPES[name]._asdict()}


def refuse_other_kinds(kind: str, name: str) -> None:
    """Says of a name that stands for something else, what it is and how to ask for it."""
    kinds: dict[str, Mapping[str, Any]] = {"recipe": RECIPES, **NAMED}
    for other, table in kinds.items():
        if name in table:
            raise ValueError(f"{name!r} is no {kind} but a {other}: use {other} {name}")


def class_path(kind: str, name: str, trusted: Collection[str] | None = None) -> str:
    """The import path of a guide or prior from its name in the table or from ``module:Class``.

    Args:
        kind: ``guide`` or ``prior``.
        name: What it is called.
        trusted: Where a file says the name, the import paths of classes of the reader's own that it
            may mean; nothing else is imported. None where the reader himself says it.

    Raises:
        ValueError: There is none of that name, or a file may not say it.
    """
    table = NAMED[kind]
    if name in table:
        return path_of(table[name])
    if ":" not in name and "." not in name:
        refuse_other_kinds(kind, name)
        own = "" if kind == "prior" else ", or module:Class for your own"
        raise ValueError(f"unknown {kind} {name!r}: choose from {', '.join(table)}{own}")
    path = split_path(kind, name)
    if path in FORMER:
        return path_of(FORMER[path])
    if path in map(path_of, table.values()):
        return path
    if trusted is not None and path not in trusted:
        own = ":".join(path.rsplit(".", 1))
        raise ValueError(
            f"{kind} {name!r} is none of this library's, and a file may import nothing; if the "
            f"class is yours, say so: trusted {own}"
        )
    _import_class(kind, name, *path.rsplit(".", 1))
    return path


def path_of(found: type) -> str:
    """The import path of a class."""
    return f"{found.__module__}.{found.__qualname__}"


def split_path(kind: str, name: str) -> str:
    """The import path that ``module:Class`` stands for."""
    parts = name.replace(":", ".").split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise ValueError(f"{kind} {name!r}: expected module:Class, an import path without slashes")
    return ".".join(parts)


def _import_class(kind: str, name: str, module: str, class_name: str) -> None:
    """Imports a class of the reader's own, and looks at whether it is what it should be."""
    try:
        found = getattr(importlib.import_module(module), class_name)
    except Exception as reason:
        raise ValueError(f"{kind} {name!r} cannot be imported: {reason}") from reason
    base = BASES[kind]
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"{kind} {name!r} must be a subclass of {base.__module__}.{base.__name__}")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
        raise ValueError(f"{kind} {name!r} is abstract: it must define {missing}")
    for option in own_options(found):
        if option.annotation is option.empty and option.default is option.empty:
            raise ValueError(
                f"{kind} {name!r}: its option {option.name!r} needs a type or a default, as "
                f"{option.name}: float = 1.0"
            )


def own_options(found: type) -> list[inspect.Parameter]:
    """The options that a guide or a prior has beside the model."""
    given = inspect.signature(found).parameters.values()
    named = (each for each in given if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD))
    return [each for each in named if each.name != "model"]


def check_untyped(kind: str, found: type, given: Mapping[str, Any]) -> None:
    """Refuses a value that is not like the default of an option without a type.

    Args:
        kind: Guide or prior.
        found: Its class.
        given: Its options.
    """
    for option in own_options(found):
        like, value = type(option.default), given.get(option.name, option.default)
        simple = option.annotation is option.empty and like in (bool, int, float, str)
        if simple and type(value) is not like and (like, type(value)) != (float, int):
            raise ValueError(f"{kind}.{option.name}: expected {like.__name__}, got {value}")


def resolve(path: str) -> Any:
    """The class at an import path."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def name_of(found: type, table: Mapping[str, type]) -> str:
    """A class's name in a table, or its import path."""
    for name, known in table.items():
        if known is found:
            return name
    return f"{found.__module__}:{found.__qualname__}"


def read_names(value: Mapping[str, Any], trusted: Collection[str] = ()) -> dict[str, Any]:
    """A configuration in which names of recipes, priors and guides are the classes' import paths.

    A configuration may come from anywhere: it names no other file, and no class that is neither
    the library's nor trusted.

    Args:
        value: What a file says.
        trusted: As for :func:`class_path`.
    """
    known = {name: said for name, said in value.items() if said is not None}
    _refuse_keys(known)
    if (named := known.pop("recipe", None)) is not None:
        if {"prior", "guide"} & set(known):
            raise ValueError("recipe sets both prior and guide: drop prior and guide")
        named, law = split_law(str(named))
        if not named:
            raise ValueError(f"recipe {law!r} is a law of selection alone: use guide {law}")
        known |= {} if law is None else {"select": law}
        known = {**find_recipe(named), **known}
    elif "prior" in known:
        known = {**OF_LOGITS, **known}
        if isinstance(known["prior"], dict) and "class_path" not in known["prior"]:
            known["prior"] = {"class_path": LOGITS, **known["prior"]}
    for kind in ("guide", "prior"):
        known = _read_name(known, kind, trusted)
    if "prior" not in known and is_of_logits(known.get("guide", {}).get("class_path")):
        known = {**OF_LOGITS, "prior": {"class_path": class_path("prior", LOGITS)}, **known}
    return known


def is_of_logits(path: str | None) -> bool:
    """Whether a guide has a posterior of logits alone: one of the reader's own may.

    Args:
        path: The import path of its class; None for the default.
    """
    if path is None or path in map(path_of, GUIDES.values()):
        return False
    found = resolve(path)
    return issubclass(found, Guide) and found.alignment_form is None


def _refuse_keys(value: Mapping[str, Any]) -> None:
    """Refuses what is the reader's to say, and what would reach past a group of options."""
    for name, given in (("preset", "NAME"), ("config", "FILE"), ("trust", "module:Class")):
        if name in value:
            raise ValueError(f"{name} belongs on the command line: --{name} {given}")
    for name in value:
        if not str(name).isidentifier():
            raise ValueError(f"{name!r} is no option: a group, as guide, holds its own below it")


def _read_name(value: dict[str, Any], kind: str, trusted: Collection[str]) -> dict[str, Any]:
    """Looks up the class of a kind, and at what a file may say to it."""
    given = value.get(kind)
    if given is None:
        return value
    if kind == "guide" and isinstance(given, str) and (law := split_law(given)[1]):
        given = split_law(given)[0] or "tied"
        chosen = {**OF_LOGITS, "prior": "delta"} if given == "tied" else {}
        value = {**chosen, **value, "select": law}
    if isinstance(given, str):
        return {**value, kind: {"class_path": class_path(kind, given, trusted)}}
    if not isinstance(given, dict) or set(given) - {"class_path", "init_args"}:
        raise ValueError(f"{kind} must be a name, or class_path and init_args, got {given!r}")
    path = given.get("class_path")
    if path is not None:
        given = {**given, "class_path": class_path(kind, str(path), trusted)}
    refuse_code(kind, given.get("init_args"), given.get("class_path"))
    return {**value, kind: given}
