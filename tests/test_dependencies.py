"""No two modules of the library import each other, and few name a kind of latent.

Imports for types and within functions count too: whoever reads a module has to follow them.
"""

from __future__ import annotations

from pathlib import Path

from latentheads.latents.registry import LATENTS
from tests.experiments.programs import ROOT
from tests.imports import find_circles, find_imports, find_modules

NAMING = {
    "alignments": {"latentheads.latents.default"},
    "logits": {
        *("latentheads.models", "latentheads.models.heads"),
        *("latentheads.runs.pairs", "latentheads.runs.recipes", "latentheads.runs.settings"),
    },
    "selection": {"latentheads.runs.reporter", "latentheads.training.loop"},
}
"""The modules of the core that name a kind of latent, by kind."""


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
    """Beside the tables of names; another kind may build on one, and what is no core may too."""
    imports = find_imports(find_modules(ROOT))
    kinds = sorted({name.replace("-", "_") for name in LATENTS})
    others = ("latentheads.contrib.", *(f"latentheads.latents.{kind}." for kind in kinds))
    tables = {"latentheads", "latentheads.latents", "latentheads.latents.registry"}
    core = {n for n in imports.keys() - tables if not n.startswith(others)}
    assert {"latentheads.model", "latentheads.guide", "latentheads.latents.latent"} <= core
    for kind in kinds:
        own = f"latentheads.latents.{kind}."
        naming = {name for name in core if any(part.startswith(own) for part in imports[name])}
        assert naming <= NAMING.get(kind, set()), kind
