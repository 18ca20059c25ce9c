"""Names that are loaded when they are first used."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest

import latentheads as lh
from latentheads import contrib, inference, latents
from latentheads.contrib import align, speech

each_package = pytest.mark.parametrize("package", [lh, contrib, inference, latents, align, speech])


@each_package
def test_every_name_of_a_package_is_there_and_listed(package: ModuleType) -> None:
    assert set(package.__all__) <= set(dir(package))
    assert all(getattr(package, name) is not None for name in package.__all__)


@each_package
def test_a_type_checker_does_not_take_a_misspelt_name_for_a_lazy_one(package: ModuleType) -> None:
    """It reads ``__getattr__`` of a module as a promise of every name."""
    assert package.__file__ is not None
    statements = ast.parse(Path(package.__file__).read_text()).body
    hidden = [line for line in statements if isinstance(line, ast.If)]
    assert not any("__getattr__" in ast.unparse(line) for line in statements if line not in hidden)
    assert ast.unparse(hidden[-1].test) == "not TYPE_CHECKING"


def test_a_misspelt_name_has_a_suggestion() -> None:
    with pytest.raises(AttributeError) as caught:
        _ = latents.GateOption
    assert (caught.value.name, caught.value.obj) == ("GateOption", latents)


def test_the_library_has_twenty_names_at_most() -> None:
    assert len(lh.__all__) <= 20


def test_a_name_of_a_part_is_refused_with_its_part() -> None:
    with pytest.raises(AttributeError, match=r"^write latentheads\.data\.Batch, not"):
        _ = lh.Batch
    with pytest.raises(AttributeError, match=r"^module 'latentheads' has no attribute 'nothing'$"):
        _ = lh.nothing
    with pytest.raises(AttributeError, match=r"^module 'latentheads.latents' has no attribute"):
        _ = latents.nothing
