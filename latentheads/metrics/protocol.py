"""Whose BLEU: the ways in which papers have counted it."""

from __future__ import annotations

from typing import Literal

__all__ = ["Protocol"]

Protocol = Literal["iwslt14", "wmt14"]
"""Whose ``paper_bleu``: both split compounds, and case counts on WMT14 alone."""
