"""Names in a configuration: which a file may hold, and the classes that they stand for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from latentheads.guides import GUIDES, Guide
from latentheads.runs.recipes import (
    LOGITS,
    OF_LOGITS,
    class_path,
    find_recipe,
    path_of,
    resolve,
    split_law,
)
from latentheads.runs.trust import refuse_code

__all__ = ["read_names"]


def read_names(value: Mapping[str, Any], trusted: Collection[str] | None = ()) -> dict[str, Any]:
    """A configuration in which names of recipes, priors and guides are the classes' import paths.

    A configuration may come from anywhere: it names no other file, and no class that is neither
    the library's nor trusted. What a name says beside itself, any option may change.

    Args:
        value: What a file says, or a command line in these names.
        trusted: As for :func:`class_path`.
    """
    known = {name: said for name, said in value.items() if said is not None}
    _refuse_keys(known)
    if "recipe" in known:
        known = _read_recipe(known)
    elif "prior" in known:
        known = {**OF_LOGITS, **known}
        if isinstance(known["prior"], dict) and "class_path" not in known["prior"]:
            known["prior"] = {"class_path": LOGITS, **known["prior"]}
    if isinstance(known.get("guide"), str):
        known = _read_law(known)
    for kind in ("guide", "prior"):
        known = _read_name(known, kind, trusted)
    if "prior" not in known and _is_of_logits(known.get("guide", {}).get("class_path")):
        known = {**OF_LOGITS, "prior": {"class_path": class_path("prior", LOGITS)}, **known}
    return known


def _read_recipe(value: dict[str, Any]) -> dict[str, Any]:
    """The prior, the guide and the law of selection that a recipe stands for."""
    if said := [kind for kind in ("prior", "guide") if kind in value]:
        raise ValueError(
            f"recipe {value['recipe']} sets prior and guide: drop {' and '.join(said)}, or recipe"
        )
    name, law = split_law(str(value["recipe"]))
    if law and not name:
        raise ValueError(f"recipe {law!r} is a law of selection alone: use guide {law}")
    others = {option: said for option, said in value.items() if option != "recipe"}
    selecting = {"select": law} if law else {}
    return {**find_recipe(name), **selecting, **others}


def _read_law(value: dict[str, Any]) -> dict[str, Any]:
    """A guide without the law of selection behind it; a law alone is of a plain network."""
    name, law = split_law(value["guide"])
    if not law:
        return value
    plain = {} if name else {**OF_LOGITS, "prior": "delta"}
    return {**plain, "select": law, **value, "guide": name or "tied"}


def _is_of_logits(path: str | None) -> bool:
    """Whether a guide has a posterior of logits alone: one of the reader's own may."""
    if path is None or path in map(path_of, GUIDES.values()):
        return False
    found = resolve(path)
    return issubclass(found, Guide) and found.alignment_form is None


def _refuse_keys(value: Mapping[str, Any]) -> None:
    """Refuses keys that only the reader may give, and those that reach past a group of options."""
    for name, given in (("preset", "NAME"), ("config", "FILE"), ("trust", "module:Class")):
        if name in value:
            raise ValueError(f"{name} belongs on the command line: --{name} {given}")
    for name in value:
        if not str(name).isidentifier():
            raise ValueError(f"{name!r} is no option: a group, as guide, holds its own below it")


def _read_name(value: dict[str, Any], kind: str, trusted: Collection[str] | None) -> dict[str, Any]:
    """Looks up the class that a name stands for, and checks the options that a file gives it."""
    given = value.get(kind)
    if given is None:
        return value
    if isinstance(given, str):
        return {**value, kind: {"class_path": class_path(kind, given, trusted)}}
    if not isinstance(given, dict) or set(given) - {"class_path", "init_args"}:
        raise ValueError(f"{kind} must be a name, or class_path and init_args, got {given!r}")
    path = given.get("class_path")
    if path is not None:
        given = {**given, "class_path": class_path(kind, str(path), trusted)}
    refuse_code(kind, given.get("init_args"), given.get("class_path"))
    return {**value, kind: given}
