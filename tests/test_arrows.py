"""The arrows of imports: programs read the library, and never the other way round."""

from __future__ import annotations

from tests.experiments.programs import ROOT
from tests.imports import WHEEL, find_modules, imported_names

MODULES = find_modules(ROOT)


def imported(module: str, *starts: str) -> list[str]:
    """What a module of the library imports that begins so, wherever in it that stands."""
    return [name for name in imported_names(module, MODULES[module]) if name.startswith(starts)]


def test_every_module_of_the_library_is_looked_at() -> None:
    names = {path.name for path in MODULES.values()}
    assert {"trainer.py", "settings.py", "translation.py", "cascaded.py"} <= names


def test_no_module_of_the_library_imports_a_program_or_its_parser() -> None:
    outside = ("latentheads.experiments", "experiments", "jsonargparse", "argparse")
    actual = {module: imported(module, *outside) for module in MODULES}
    assert not {module: names for module, names in actual.items() if names}


def test_nothing_that_the_wheel_holds_imports_a_study() -> None:
    shipped = find_modules(ROOT, WHEEL)
    assert len(shipped) > len(MODULES) + 30
    for module, path in shipped.items():
        assert not [name for name in imported_names(module, path) if ".studies" in name], module


def test_options_of_data_make_corpora_and_no_corpus_imports_them() -> None:
    corpora = [module for module in MODULES if "corpora" in module.split(".")]
    assert len(corpora) > 20
    for module in corpora:
        assert not imported(module, "latentheads.data"), module


def test_the_core_imports_nothing_of_contrib() -> None:
    """The lazy names of the package alone lead there; tables name speech by its path."""
    core = [module for module in MODULES if "contrib" not in module.split(".")]
    assert len(core) > 150
    for module in core:
        if module != "latentheads":
            assert not imported(module, "latentheads.contrib"), module
