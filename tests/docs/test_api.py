"""The signatures and the options of training on the page of the API are those of the library."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from typing import Any

import pytest

import latentheads as lh
from latentheads.models import LanguageModel, Translation
from latentheads.options import choices_of
from latentheads.training.options import Optimizer, Schedule, Training
from tests.docs.pages import ROOT, Page, rows_of

API = Page(ROOT / "docs" / "api.md")
CALLS = re.findall(r"^\w[\w.]*\(.*?\)$", "".join(API.blocks("text")), re.MULTILINE | re.DOTALL)
CHOSEN: dict[str, type] = {"optimizer": Optimizer, "schedule": Schedule}


def signature_of(name: str) -> str:
    """A signature without annotations and without the instance."""
    index: Any = {
        "Translation": Translation,
        "LanguageModel": LanguageModel,
        "Corpus": lh.data.Corpus,
    }
    first, _, method = name.partition(".")
    called = index.get(first) or getattr(lh, first)
    parameters = inspect.signature(getattr(called, method) if method else called).parameters
    bare = [parameter.replace(annotation=parameter.empty) for parameter in parameters.values()]
    shown = [item for item in bare if item.name != "self"]
    return name + str(inspect.Signature(shown))


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.partition("(")[0])
def test_a_signature_is_that_of_the_library(call: str) -> None:
    assert re.sub(r"\s+", " ", call) == signature_of(call.partition("(")[0])


def test_the_main_calls_are_listed() -> None:
    assert {"Trainer", "fit", "evaluate", "load_run"} <= {call.partition("(")[0] for call in CALLS}


def test_every_option_of_training_stands_in_the_table_with_its_default() -> None:
    rows = {row[0].strip("`"): row[2].strip("`") for row in rows_of(API.text)}
    assert list(rows) == [option.name for option in fields(Training)]
    for option in fields(Training):
        default = option.default
        if option.name in CHOSEN:
            kinds = choices_of(CHOSEN[option.name])
            assert kinds is not None
            default = next(name for name, kind in kinds.items() if type(default) is kind)
        assert rows[option.name] == str(default), option.name


def documented_parameters() -> Iterator[tuple[str, inspect.Parameter]]:
    """The parameters of the functions of the page, each with the name of its function."""
    module = ""
    for package, name in re.findall(
        r"^\.\. currentmodule:: (\S+)$|^   (\w+)$", API.text, re.MULTILINE
    ):
        module = package or module
        function = getattr(import_module(module), name) if name else None
        if inspect.isfunction(function):
            for parameter in inspect.signature(function).parameters.values():
                yield f"{module}.{name}", parameter


def test_switches_of_functions_are_named_where_they_are_given() -> None:
    """``analyse(model, batches, True)`` does not say what is true."""
    parameters = [*documented_parameters()]
    switches = [(name, p) for name, p in parameters if p.annotation in ("bool", bool)]
    assert len(switches) > 10
    assert [(name, p.name) for name, p in switches if p.kind is not p.KEYWORD_ONLY] == []


def test_batches_have_one_name() -> None:
    taken = [p for _, p in documented_parameters() if "[Batch" in str(p.annotation)]
    assert len(taken) > 10
    assert {parameter.name for parameter in taken} == {"batches", "valid"}


def test_every_result_with_a_data_frame_is_listed() -> None:
    named = set(
        re.findall(r"`(\w+)`", API.text.partition("These results have it")[2].split("\n\n")[0])
    )
    kinds: set[str] = set()
    for path in (ROOT / "latentheads").rglob("*.py"):
        for kind in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(kind, ast.ClassDef):
                methods = [line.name for line in kind.body if isinstance(line, ast.FunctionDef)]
                kinds |= {kind.name} if "to_frame" in methods else set()
    assert kinds
    assert kinds <= named
