"""Prints the lowest direct versions that pyproject.toml declares, as constraints for pip.

python tests/lowest.py > lowest.txt

What they need in turn is as new as it gets. Needs nothing but Python, since it runs before anything
is installed.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
FLOOR = re.compile(r"(?P<name>[\w.-]+)(?:\[[\w,-]+\])?>=(?P<version>[\w.]+)")


def lowest(project: dict[str, Any]) -> dict[str, str]:
    """The lowest version of each package that a project declares.

    Args:
        project: The table of that name of a pyproject.toml.

    Raises:
        ValueError: A package has no floor, or two.
    """
    extras = project.get("optional-dependencies", {}).values()
    actual: dict[str, str] = {}
    for declared in [*project["dependencies"], *(item for extra in extras for item in extra)]:
        match = FLOOR.fullmatch(declared)
        if match is None:
            raise ValueError(f"{declared} must be a name, >= and a version")
        if actual.setdefault(match["name"], match["version"]) != match["version"]:
            raise ValueError(f"{match['name']} has two floors")
    return actual


def read_project() -> dict[str, Any]:
    """The table of this project."""
    project: dict[str, Any] = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    return project


if __name__ == "__main__":
    for name, version in lowest(read_project()).items():
        sys.stdout.write(f"{name}=={version}\n")
