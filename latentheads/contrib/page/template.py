"""Fills styles, scripts and data into one file; no text in the data can become a script."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from latentheads.files import finite

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
"""The scripts of the page, in this order."""

DIGITS = 6
"""Significant digits of numbers in the page."""


def fill_page(data: Mapping[str, Any]) -> str:
    """Makes a self-contained page of its data; null stands for numbers that are not finite."""
    names = ", ".join(run["name"] for run in data["runs"])
    encoded = json.dumps(_round(finite(dict(data))), ensure_ascii=False, separators=(",", ":"))
    parts = {
        "title": html.escape(f"latentheads: {names}"),
        "style": _read_file("page.css"),
        "script": "\n".join(_read_file(f"{name}.js") for name in SCRIPTS),
        "data": encoded.replace("<", "\\u003c"),  # so that no text can close the script element
    }
    page = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read_file("page.html"))
    return page.encode(errors="replace").decode()  # the name of a folder may be invalid UTF-8


def _read_file(name: str) -> str:
    return (files("latentheads.contrib.page") / "browser" / name).read_text(encoding="utf-8")


def _round(value: Any) -> Any:
    """Rounds all floats of a value to the significant digits of the page."""
    if isinstance(value, dict):
        return {str(name): _round(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_round(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
