"""The metrics of training, as curves over optimiser steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from latentheads.names import SELECTION, attention_type_of, latent_of

MAX_POINTS = 300
"""Maximum number of evaluations in a line; of more, evenly spaced ones are kept."""

Record = Mapping[str, Any]


def gather_curves(records: Sequence[Record]) -> dict[str, Any]:
    """Gathers bound, metrics, KL per attention type and expected active heads of ``metrics.jsonl``.

    Returns:
        ``steps``, and curves of the same length by name; empty without records.
    """
    if not records:
        return {}
    kept = _thin_out(records)
    curves = {
        "steps": [record["step"] for record in kept],
        "bound": _read_bounds(kept),
        "kl": _sum_by_type([record.get("kl_by_site") or {} for record in kept]),
        "active": _sum_by_type([_count_active(record) for record in kept]),
        **_read_true_log_prob(kept[-1]["valid"]),
    }
    return {name: value for name, value in curves.items() if value not in ({}, None)}


def _thin_out(records: Sequence[Record]) -> list[Record]:
    """Keeps evenly spaced records, including the last."""
    stride = -(-len(records) // MAX_POINTS)
    return list(records[::-1][::stride])[::-1]


def _read_bounds(records: Sequence[Record]) -> dict[str, list[float | None]]:
    """The ELBO, its terms, and the exact log p, or the plug-in value if that is unknown.

    Beside an exact log p the plug-in value is left out, because it is the same.
    """
    valid = [record["valid"] for record in records]
    has_exact = any(metrics.get("exact") is not None for metrics in valid)
    names = ("elbo", "log_likelihood", "exact" if has_exact else "plug_in")
    curves = {name: [metrics.get(name) for metrics in valid] for name in names}
    return {**curves, "objective": [record["objective"] for record in records]}


def _read_true_log_prob(valid: Record) -> dict[str, Any]:
    """The true log p of the corpus and, if it is known for some sentences only, their number."""
    num_known, total = valid.get("truth_sentences"), valid.get("sentences")
    counts = None if num_known in (None, total) else [num_known, total]
    return {"truth": valid.get("truth"), "truth_of": counts}


def _count_active(record: Record) -> dict[str, float]:
    """The expected number of active heads of a block, averaged over tasks."""
    blocks = record.get("selection") or {}
    return {name: sum(map(sum, rows)) / len(rows) for name, rows in blocks.items()}


def _sum_by_type(records: Iterable[Mapping[str, float | None]]) -> dict[str, list[float]]:
    """Sums over the blocks of each attention type, for each record; NaN where one is unknown."""
    rows = list(records)
    groups = dict.fromkeys(_group_of(name) for row in rows for name in row)
    return {
        group: [
            sum(math.nan if v is None else v for name, v in row.items() if _group_of(name) == group)
            for row in rows
        ]
        for group in groups
    }


def _group_of(name: str) -> str:
    """The attention type of a block or site; sites of the selection are a group of their own."""
    return SELECTION if latent_of(name) == SELECTION else attention_type_of(name)
