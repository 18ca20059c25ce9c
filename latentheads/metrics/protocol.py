"""Protocols: the ways in which papers have computed BLEU."""

from typing import Literal

Protocol = Literal["iwslt14", "wmt14"]
"""The protocols of ``paper_bleu``: both split compounds; only ``wmt14`` is case-sensitive."""
