"""A report made section by section: what fails is named, and nothing else is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from latentheads.errors import one_line_message
from latentheads.values import finite

Section = Callable[[], Mapping[str, Any]]
"""Makes what a report holds, by its name: rows and mappings are added to those before."""

MISSING = "missing"
WAITING = "not done yet"


def complete(
    results: dict[str, Any],
    sections: Mapping[str, Section],
    keep: Callable[[dict[str, Any]], object],
) -> None:
    """Adds the sections of a report, one after the other.

    What is kept says under ``missing`` which sections it lacks and why, from the beginning on: even
    where the system ends the program, for want of memory, what was done before is there.

    Args:
        results: What is known without them; changed in place.
        sections: Each gives values by their names; where a name is there already, more rows of it.
        keep: Writes the results; called after every section.
    """
    results[MISSING] = dict.fromkeys(sections, WAITING)
    for name, section in sections.items():
        keep(results)
        try:
            _add(results, finite(section()))
            del results[MISSING][name]
        except Exception as reason:
            results[MISSING][name] = one_line_message(reason)
    if not results[MISSING]:
        del results[MISSING]
    keep(results)


def _add(results: dict[str, Any], section: Mapping[str, Any]) -> None:
    for name, value in section.items():
        previous = results.get(name)
        if isinstance(previous, dict) and isinstance(value, dict):
            value = {**previous, **value}
        elif isinstance(previous, list) and isinstance(value, list):
            value = [*previous, *value]
        results[name] = value


def lacking(results: Mapping[str, Any]) -> str:
    """Says in words which sections a report lacks and why; nothing of a whole one."""
    missing = results.get(MISSING)
    named = missing.items() if isinstance(missing, dict) else ()
    return ", ".join(f"{name} ({why})" for name, why in named)
