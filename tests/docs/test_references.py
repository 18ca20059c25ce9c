"""What docstrings and pages name by its place in the library is there."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

import pytest

from latentheads import PACKAGES
from tests.docs.pages import CHANGES, NOTEBOOKS, PAGES, REPORTS, ROOT, Page

ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod|obj):`~?(latentheads[\w.]*)`")
NAME = re.compile(r"(?:latentheads|lh)(?:\.\w+)+")
MODULES = [
    path
    for folder in ("experiments", "guides", "latentheads", "models")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def said_in(path: Path) -> set[str]:
    """The places in the library that the docstrings of a module refer to."""
    return set(ROLE.findall(path.read_text(encoding="utf-8")))


def test_every_reference_of_a_docstring_leads_somewhere() -> None:
    named = sorted(set().union(*map(said_in, MODULES)))
    assert len(named) > 20
    for name in named:
        assert resolve_name(name) is not None, name


@pytest.mark.parametrize("given_page", [*PAGES, *REPORTS, NOTEBOOKS, CHANGES], ids=str)
def test_every_name_of_the_library_on_a_page_is_known(given_page: Page) -> None:
    for code in given_page.inline:
        if name := NAME.match(code):
            assert resolve_name(re.sub(r"^lh\b", "latentheads", name[0])), code


@pytest.mark.parametrize(
    "room",
    sorted(
        {*PACKAGES.values()} - {"contrib"}
        | {"contrib.heads", "contrib.hf", "contrib.uncertainty", "pruning"}
    ),
)
def test_every_public_class_and_function_is_on_the_page_of_the_library(room: str) -> None:
    module = import_module(f"latentheads.{room}")
    shown = set((ROOT / "docs" / "api.md").read_text(encoding="utf-8").split())
    called = [name for name in module.__all__ if callable(getattr(module, name))]
    assert called
    missing = [name for name in called if name not in shown]
    assert not missing, f"add each to docs/api.md, under latentheads.{room}"
