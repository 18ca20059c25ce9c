"""Which modules of a checkout import which; imports for types and within functions count too."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Set
from functools import cache
from pathlib import Path

LIBRARY = ("latentheads", "models", "guides")
WHEEL = (*LIBRARY, "experiments")
UNSHIPPED = {"notebooks", "results", "studies"}
"""Folders of ``experiments`` that no wheel holds."""

Imports = Mapping[str, Set[str]]
"""The modules that each module imports, by name."""


def find_modules(root: Path, tops: tuple[str, ...] = LIBRARY) -> dict[str, Path]:
    """The files below some folders by the names of their modules; links to folders are skipped."""
    files = {}
    for top in tops:
        for path in sorted((root / top).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            if path.resolve() == path.absolute() and not UNSHIPPED & {*parts[:-1]}:
                name = ".".join(parts).removesuffix(".__init__")
                files[name if top == "latentheads" else f"latentheads.{name}"] = path
    return files


@cache
def imported_names(module: str, path: Path) -> frozenset[str]:
    """The dotted names in all import statements of a module's file."""
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: -node.level + 1 or None] if node.level else []
            start = ".".join([*parents, *([node.module] if node.module else [])])
            names |= {f"{start}.{alias.name}" for alias in node.names}
    return frozenset(names)


def find_imports(modules: Mapping[str, Path]) -> dict[str, set[str]]:
    """The modules of the library that each of them imports."""
    imports = {}
    for name, path in modules.items():
        imports[name] = {
            imported if imported in modules else imported.rpartition(".")[0]
            for imported in imported_names(name, path)
        } & (modules.keys() - {name})
    return imports


def reachable(imports: Imports, start: str) -> set[str]:
    """The modules that one imports, directly or not; itself only in a circle."""
    reached, waiting = set[str](), list(imports[start])
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += imports[module]
    return reached


def find_circles(imports: Imports) -> list[set[str]]:
    """Sets of modules that import each other."""
    reach = {name: reachable(imports, name) for name in imports}
    circles = [
        {other for other in reach[name] if name in reach[other]}
        for name in imports
        if name in reach[name]
    ]
    return [circle for index, circle in enumerate(circles) if circle not in circles[:index]]
