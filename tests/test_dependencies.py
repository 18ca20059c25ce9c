"""No two modules of the library import each other, and few name a kind of latent.

Imports for types and within functions count too: whoever reads a module has to follow them.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Set
from pathlib import Path

from latentheads.latents.registry import LATENTS
from tests.experiments.programs import ROOT

NAMING = {
    "alignments": {"latentheads.latents.default"},
    "logits": {
        *("latentheads.models", "latentheads.models.heads"),
        *("latentheads.runs.pairs", "latentheads.runs.recipes", "latentheads.runs.settings"),
    },
    "selection": {
        *("latentheads.training.early_stopping", "latentheads.training.engine"),
        "latentheads.runs.reporter",
    },
}
"""The modules of the core that name a kind of latent, by kind."""

Imports = Mapping[str, Set[str]]
"""The modules that each module imports, by name."""


def find_modules(root: Path) -> dict[str, Path]:
    """The files of the library by the names of their modules; links to folders are skipped."""
    files = {}
    for top in ("latentheads", "models", "guides"):
        for path in (root / top).rglob("*.py"):
            if path.resolve() == path:
                name = ".".join(path.relative_to(root).with_suffix("").parts)
                name = name.removesuffix(".__init__")
                files[name if top == "latentheads" else f"latentheads.{name}"] = path
    return files


def imported_names(path: Path, package: str) -> set[str]:
    """The dotted names in all import statements of a file.

    Args:
        path: The file.
        package: Its package, for relative imports.
    """
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: -node.level + 1 or None] if node.level else []
            module = ".".join([*parents, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def find_imports(modules: Mapping[str, Path]) -> dict[str, set[str]]:
    """The modules of the library that each of them imports."""
    imports = {}
    for name, path in modules.items():
        package = name if path.stem == "__init__" else name.rpartition(".")[0]
        imports[name] = {
            imported if imported in modules else imported.rpartition(".")[0]
            for imported in imported_names(path, package)
        } & (modules.keys() - {name})
    return imports


def reachable(imports: Imports, start: str) -> set[str]:
    """The modules that one imports, directly or not; itself only in a circle."""
    found, todo = set[str](), list(imports[start])
    while todo:
        module = todo.pop()
        if module not in found:
            found.add(module)
            todo += imports[module]
    return found


def find_circles(imports: Imports) -> list[set[str]]:
    """Sets of modules that import each other."""
    reach = {name: reachable(imports, name) for name in imports}
    circles = [
        {other for other in reach[name] if name in reach[other]}
        for name in imports
        if name in reach[name]
    ]
    return [circle for index, circle in enumerate(circles) if circle not in circles[:index]]


def test_a_circle_is_found_behind_a_type_and_within_a_function(tmp_path: Path) -> None:
    files = {
        "__init__": "",
        "first": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import second",
        "second": "def late():\n    from latentheads.third import thing",
        "third": "import latentheads.first",
        "outside": "from latentheads import first",
    }
    (tmp_path / "latentheads").mkdir()
    for name, text in files.items():
        (tmp_path / f"latentheads/{name}.py").write_text(text)
    imports = find_imports(find_modules(tmp_path))
    assert imports["latentheads.outside"] == {"latentheads.first"}
    names = ("first", "second", "third")
    assert find_circles(imports) == [{f"latentheads.{name}" for name in names}]


def test_no_two_modules_of_the_library_import_each_other() -> None:
    imports = find_imports(find_modules(ROOT))
    assert len(imports) > 100
    assert not find_circles(imports)


def test_the_core_names_no_kind_of_latent() -> None:
    """Beside the table of latents; another kind may build on one, and what is no core may too."""
    imports = find_imports(find_modules(ROOT))
    kinds = sorted({name.replace("-", "_") for name in LATENTS})
    others = ("latentheads.contrib.", *(f"latentheads.latents.{kind}." for kind in kinds))
    tables = {"latentheads", "latentheads.latents.registry"}
    core = {n for n in imports.keys() - tables if not n.startswith(others)}
    assert {"latentheads.model", "latentheads.guide", "latentheads.latents.latent"} <= core
    for kind in kinds:
        own = f"latentheads.latents.{kind}."
        naming = {name for name in core if any(part.startswith(own) for part in imports[name])}
        assert naming <= NAMING.get(kind, set()), kind
