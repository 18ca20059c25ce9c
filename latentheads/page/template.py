"""Style, script and data in one file; no token in the data can become script."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from latentheads.values import finite

__all__ = ["SCRIPTS", "fill_page"]

SCRIPTS = (
    "data",
    "elements",
    "maps",
    "rows",
    "lines",
    "view_runs",
    "view_heads",
    "view_calibration",
    "view_sentences",
    "page",
)
"""The scripts that the page runs, in this order."""

DIGITS = 6
"""Digits of a figure in the page."""


def fill_page(data: Mapping[str, Any]) -> str:
    """Makes a page that reads nothing but itself.

    Args:
        data: What it shows; null stands for what is no number.
    """
    names = ", ".join(run["name"] for run in data["runs"])
    said = json.dumps(_shorten(finite(dict(data))), ensure_ascii=False, separators=(",", ":"))
    parts = {
        "title": html.escape(f"latentheads: {names}"),
        "style": _read_file("page.css"),
        "script": "\n".join(_read_file(f"{name}.js") for name in SCRIPTS),
        "data": said.replace("<", "\\u003c"),  # so that no text can end the element it stands in
    }
    page = re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _read_file("page.html"))
    return page.encode(errors="replace").decode()  # a folder may have a name that is no UTF-8


def _read_file(name: str) -> str:
    return (files("latentheads.page") / "browser" / name).read_text(encoding="utf-8")


def _shorten(value: Any) -> Any:
    """A value with fewer digits."""
    if isinstance(value, dict):
        return {str(name): _shorten(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_shorten(each) for each in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
