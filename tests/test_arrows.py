"""The arrows of imports: programs read the library, and never the other way round."""

from __future__ import annotations

import ast
from pathlib import Path

LIBRARY = Path(__file__).parents[1] / "latentheads"
MODULES = [
    path
    for folder in [LIBRARY, LIBRARY.parent / "models", LIBRARY.parent / "guides"]
    for path in sorted(folder.rglob("*.py"))
    if "experiments" not in path.relative_to(folder).parts
]


def imported(path: Path) -> list[str]:
    """Every module that a file names in an import, wherever in it that stands."""
    lines: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            lines += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            lines += [f"{node.module}.{alias.name}" for alias in node.names]
    return lines


def test_every_module_of_the_library_is_looked_at() -> None:
    names = {path.name for path in MODULES}
    assert {"trainer.py", "settings.py", "translation.py", "cascaded.py"} <= names


def test_no_module_of_the_library_imports_a_program_or_its_parser() -> None:
    outside = ("latentheads.experiments", "experiments", "jsonargparse", "argparse")
    actual = {path: [n for n in imported(path) if n.startswith(outside)] for path in MODULES}
    assert not {path: names for path, names in actual.items() if names}


def test_nothing_that_the_wheel_holds_imports_a_study() -> None:
    programs = (LIBRARY.parent / "experiments").rglob("*.py")
    shipped = [path for path in programs if not {"studies", "notebooks"} & {*path.parts}]
    assert len(shipped) > 30
    for path in [*MODULES, *shipped]:
        assert not [name for name in imported(path) if ".studies" in name], path


def test_options_of_data_make_corpora_and_no_corpus_imports_them() -> None:
    corpora = [path for path in MODULES if "corpora" in path.relative_to(LIBRARY.parent).parts]
    assert len(corpora) > 20
    for path in corpora:
        assert not [name for name in imported(path) if name.startswith("latentheads.data")], path


def test_the_core_imports_nothing_of_contrib() -> None:
    """The lazy names of the package alone lead there; tables name speech by its path."""
    core = [path for path in MODULES if "contrib" not in path.relative_to(LIBRARY.parent).parts]
    assert len(core) > 150
    for path in core:
        if path != LIBRARY / "__init__.py":
            assert not [name for name in imported(path) if "latentheads.contrib" in name], path
