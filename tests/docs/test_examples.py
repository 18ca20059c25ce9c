"""The examples in the docstrings of the public names do what they say."""

from __future__ import annotations

import doctest
import inspect
from functools import cache
from typing import Any

import pytest

import latentheads as lh
from latentheads import data, guides, inference, latents, models
from latentheads.runs.settings import Settings
from latentheads.training.callbacks import Callback
from tests.docs.pages import ROOT, Page

PUBLIC = {
    name: getattr(index, name)
    for index in (lh, data, models, guides, latents, inference)
    for name in index.__all__
    if inspect.isclass(getattr(index, name)) or inspect.isfunction(getattr(index, name))
} | {"Callback": Callback, "Settings": Settings}
FOUND = [
    example
    for name, thing in sorted(PUBLIC.items())
    for example in doctest.DocTestFinder(exclude_empty=True).find(thing, name, globs={})
    if example.examples
]


@cache
def begin() -> dict[str, Any]:
    """What the examples take up: the block of Python on the page of the API."""
    names: dict[str, Any] = {}
    (block,) = Page(ROOT / "docs" / "api.md").blocks("python")
    exec(compile(block, "docs/api.md", "exec"), names)
    return names


@pytest.mark.usefixtures("as_the_programs_do")
@pytest.mark.parametrize("example", FOUND, ids=lambda example: example.name)
def test_an_example_does_what_it_says(example: doctest.DocTest) -> None:
    example.globs = begin() | {"Callback": Callback, "Settings": Settings}
    lines: list[str] = []
    doctest.DocTestRunner(verbose=False).run(example, out=lines.append)
    assert not lines, "".join(lines)


def test_every_guide_that_runs_and_every_kind_of_model_has_an_example() -> None:
    shown = {example.name.partition(".")[0] for example in FOUND}
    missing = {kind.__name__ for kind in guides.GUIDES.values()} - shown
    assert not missing, "write an `Example:` into the docstring of each"
    assert {"Translation", "LanguageModel", "Guide", "terms", "importance", "evaluate"} <= shown
