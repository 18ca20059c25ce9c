"""Classes of the reader's own that a command line trusts: each is named by an option or a run."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from latentheads.files import read_yaml
from latentheads.options import OptionError, flatten
from latentheads.runs.settings import trusted_paths


def check_trusted(
    trusted: Collection[str], options: Any = None, runs: Sequence[str | Path] = ()
) -> None:
    """Raises an error for a class that is trusted, and named by no option and no run.

    Args:
        trusted: The classes, as ``module:Class``.
        options: Nested values.
        runs: Run folders that are read; where one cannot be, whoever reads it says so.
    """
    if unused := sorted({*trusted} - set(_select(trusted, options, runs))):
        raise OptionError("trust", f" {unused[0]} is used by nothing: no option or run names it")


def select_trusted(trusted: str, options: Any, runs: Sequence[str | Path] = ()) -> str:
    """Those of some classes, commas between, that an option or a run names."""
    return ",".join(sorted(_select(trusted_paths(trusted), options, runs)))


def _select(trusted: Collection[str], options: Any, runs: Sequence[str | Path]) -> Collection[str]:
    """Those of some classes that are named; all, where a run cannot be read."""
    named = set(_names_in(options or {}))
    for run in runs if trusted else ():
        try:
            named |= set(_names_in(read_yaml(Path(run) / "config.yaml")))
        except (OSError, ValueError):
            return trusted
    return [path for path in trusted if path.replace(":", ".") in named]


def _names_in(options: Any) -> Iterator[str]:
    """The texts of nested values, those of a recipe one by one, as ``module.Class``."""
    for text in flatten(options).values():
        if isinstance(text, str):
            for name in re.split(r"[+,]", text):
                yield name.strip().replace(":", ".")
