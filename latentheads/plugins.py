"""What installed packages add by entry points: report sections, programs, and options."""

from __future__ import annotations

import pkgutil
import warnings
from collections.abc import Collection
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from latentheads.errors import one_line_message

PACKAGE = "latentheads"
"""The package of this library, which adds its own figures as any other does."""

REPORT_SECTIONS = "latentheads.report_sections"
"""Functions that are given the :class:`~latentheads.runs.reporter.Reporter` of a trained run, and
return what ``results.json`` then holds besides, by name; they may save figures in its folder."""

PROGRAMS = "latentheads.programs"
"""Functions that are given the words of a command line and return an exit status."""

OPTIONS = "latentheads.options"
"""Modules that add classes to tables such as ``PRIORS``, before options are read."""

TABLES = (
    *("latentheads.models:PRIORS", "latentheads.guides:GUIDES", "latentheads.data.base:DATA"),
    *("latentheads.latents.registry:LATENTS", "latentheads.metrics.scores:SCORES"),
)
"""The tables that packages add lines to."""


def find_entry_points(group: str, taken: Collection[str] = ()) -> dict[str, EntryPoint]:
    """The entry points of a group by name, sorted; one whose name is taken is left out."""
    points: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        if point.name in taken or point.name in points:
            _warn(point, "is left out: there is another of this name")
        else:
            points[point.name] = point
    return points


@cache
def load_options() -> bool:
    """Imports the modules that add options, once; returns whether there are any.

    A name that a table has already keeps its meaning.
    """
    points = find_entry_points(OPTIONS)
    tables = {path: pkgutil.resolve_name(path) for path in TABLES if points}
    for point in points.values():
        lines_before = {path: dict(table) for path, table in tables.items()}
        try:
            point.load()
        except Exception as reason:  # a run that does not use it does not depend on it
            _warn(point, f"cannot be loaded: {one_line_message(reason)}")
        for path, lines in lines_before.items():
            for name in [name for name in lines if tables[path].get(name) is not lines[name]]:
                tables[path][name] = lines[name]
                _warn(point, f"adds no {path.partition(':')[2]}[{name!r}]: there is another")
    return bool(points)


def describe(point: EntryPoint) -> str:
    """An entry point with its package, for messages."""
    return f"{point.group} {point.name!r} of the package {package_of(point)}"


def package_of(point: EntryPoint) -> str:
    """The name of the package that has an entry point."""
    return point.dist.name if point.dist is not None else point.module


def _warn(point: EntryPoint, what: str) -> None:
    warnings.warn(f"{describe(point)} {what}", stacklevel=3)
