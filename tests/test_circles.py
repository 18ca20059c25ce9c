"""No two modules of the library import each other, directly or not.

Imports for types and within functions count too: whoever reads a module has to follow them.
"""

from __future__ import annotations

from pathlib import Path

from tests.experiments.programs import ROOT
from tests.imports import find_circles, find_imports, find_modules


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
