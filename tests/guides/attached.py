"""Guides of a model, whose weights are no longer those that they begin with."""

from __future__ import annotations

from typing import Any

from latentheads.guides import GUIDES
from tests.tiny import jiggle

LEARNED = ("mean-field", "autoregressive", "cascaded")


def attach(name: str, model: Any, condition_on: str = "target", size: float = 0.3) -> Any:
    options = {"condition_on": condition_on} if name in LEARNED else {}
    guide = GUIDES[name](model, **options).double()
    return jiggle(guide, size).eval()
