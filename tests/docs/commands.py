"""The command lines of the pages, read as their programs read them."""

from __future__ import annotations

import re
import shlex
from importlib import import_module

import pytest

from latentheads.experiments.cli.options import read_settings
from tests.docs.pages import Page
from tests.experiments.programs import module_of

TRAINING = {"run": None, "compare": "extend", "sweep": "extend"}
"""Programs that train, and what adds the options of their own."""


def commands(page: Page) -> list[list[str]]:
    """The command lines of a page: a program's name and its words."""
    blocks = "".join(page.blocks("bash")).replace("\\\n", " ").splitlines()
    codes = [code for code in page.inline if code.startswith("python experiments/")]
    found = []
    for line in [*blocks, *codes]:
        program = re.search(r"experiments/(?:studies/)?(\w+)\.py(?= |$)(.*)", line)
        if program and not program[1].isupper():
            words = shlex.split(program[2], comments=True)
            end = next((i for i, word in enumerate(words) if word in ("<", ">")), len(words))
            found.append([program[1], *words[:end]])
    return found


def accept(program: str, words: list[str]) -> None:
    """Reads a command line as its program does, which trains nothing here."""
    module = import_module(module_of(program))
    if program == "run":
        read_settings(words, "run.py", module.DESCRIPTION)
    elif program in TRAINING:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "train_all", lambda *_: False)
            assert module.main(words) == 0
    else:
        module.make_parser().parse_args(words)
