"""Measures the code: what one has to have read to be sure of a module, circles, lines, names.

python -m tests.measures                 # this checkout
python -m tests.measures ../before .     # a column for each checkout
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from tests.imports import WHEEL, Imports, find_circles, find_imports, find_modules, reachable

LATENTS = (
    *("latents.alignments.aligner", "latents.bernoulli_heads.latent", "latents.copy.heads"),
    *("latents.latent", "latents.logits.priors", "latents.selection.selector"),
)
ENTRIES = (
    *("data.pairs", "guide", "guides.cascaded", "guides.tied", "inference.bound"),
    *("inference.objective", *LATENTS, "model", "models.translation"),
    *("runs.settings", "runs.trainer", "training.engine"),
)
"""The modules that a reader begins with."""

NAMED = ("latents.latent", "guides.cascaded", "models.translation", "runs.trainer")
"""Those of them that have a row of their own."""

CONFIGURATION = (
    *("arguments", "checks", "class_spec", "errors", "options", "own_classes", "values"),
    "experiments.cli",
)
"""Modules and packages of options, checks and command lines."""

FILLER = {"each", "found", "known", "law", "place", "said", "told"}
"""Names of variables that do not say what they hold."""


def count_lines(paths: Iterable[Path]) -> int:
    """The lines of some files."""
    return sum(len(path.read_text("utf-8").splitlines()) for path in paths)


def read_set(imports: Imports, files: dict[str, Path], module: str) -> int:
    """The lines of a module and of all that it imports, directly or not."""
    return count_lines(files[name] for name in {module} | reachable(imports, module))


def count_raises(paths: Iterable[Path]) -> int:
    """The ``raise`` statements of some files."""
    return sum(isinstance(node, ast.Raise) for path in paths for node in nodes_of(path))


def count_fillers(paths: Iterable[Path]) -> int:
    """How often some files bind a name that does not say what it holds."""
    return sum(binds_filler(node) for path in paths for node in nodes_of(path))


def nodes_of(path: Path) -> Iterable[ast.AST]:
    """The syntax tree of a file, node by node."""
    return ast.walk(ast.parse(path.read_text("utf-8")))


def binds_filler(node: ast.AST) -> bool:
    """Whether a parameter or a variable of such a name is bound here."""
    if isinstance(node, ast.Name):
        return isinstance(node.ctx, ast.Store) and node.id in FILLER
    return isinstance(node, ast.arg) and node.arg in FILLER


def public_names(package: Path) -> int:
    """The names of ``import latentheads as lh``, and its parts."""
    tables = {
        ast.unparse(node.targets[0]): ast.literal_eval(node.value)
        for node in ast.parse(package.read_text("utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("MODULES", "PACKAGES")
    }
    return sum(map(len, tables.values()))


def measure(root: Path) -> dict[str, str]:
    """All measures of a checkout."""
    root = root.resolve()
    files = find_modules(root, WHEEL)
    imports = find_imports(files)
    entries = [f"latentheads.{name}" for name in ENTRIES if f"latentheads.{name}" in files]
    read_sets = {name: read_set(imports, files, name) for name in entries}
    circles = find_circles(imports)
    lines = count_lines(files.values())
    packages = tuple(f"latentheads.{name}." for name in CONFIGURATION)
    tests = [*(root / "tests").rglob("*.py")]
    sizes = {name: read_sets.get(f"latentheads.{name}") for name in NAMED}
    rows = {
        "read set, median of the entry modules": f"{median(read_sets.values()):,.0f}",
        **{f"read set of {name}": f"{size or 0:,}" for name, size in sizes.items()},
        "circles, files in them": f"{len(circles)}, {sum(map(len, circles))}",
        "lines of options, checks, cli": count_lines(
            path for name, path in files.items() if f"{name}.".startswith(packages)
        ),
        "raise, a thousand lines": f"{1000 * count_raises(files.values()) / lines:.1f}",
        "lines of the wheel": lines,
        "lines of tests": count_lines(tests),
        "filler names bound in tests": count_fillers(tests),
        "public names": public_names(files["latentheads"]),
    }
    return {name: f"{row:,}" if isinstance(row, int) else row for name, row in rows.items()}


def main() -> None:
    """Prints a table, a column for each checkout."""
    parser = argparse.ArgumentParser(prog="python -m tests.measures", description=__doc__)
    parser.add_argument("roots", type=Path, nargs="*", default=[Path(__file__).parents[1]])
    columns = {str(root): measure(root) for root in parser.parse_args().roots}
    print(f"| measure | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    for name in next(iter(columns.values())):
        print(f"| {name} | {' | '.join(column[name] for column in columns.values())} |")


if __name__ == "__main__":
    main()
