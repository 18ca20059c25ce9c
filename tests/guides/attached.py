"""Guides of a model, whose weights are no longer those that they begin with."""

from __future__ import annotations

from typing import Any

from latentheads.guides import GUIDES, Guide
from tests.tiny import jiggle

LEARNED = ("mean-field", "autoregressive", "cascaded")

SUMMED = tuple(
    name
    for name, kind in GUIDES.items()
    if kind.structure is not None or not issubclass(kind, Guide)
)
"""Guides of what is summed out: one of logits alone has no posterior of that."""


def attach(name: str, model: Any, condition_on: str = "target", size: float = 0.3) -> Any:
    options = {"condition_on": condition_on} if name in LEARNED else {}
    guide = GUIDES[name](model, **options).double()
    return jiggle(guide, size).eval()
