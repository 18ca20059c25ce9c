"""The metrics of a training, as lines over its updates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from latentheads.names import SELECTION, attention_type_of, latent_of

__all__ = ["gather_curves"]

MOST = 300
"""Evaluations that a line shows: of more, some are left out."""

Record = Mapping[str, Any]


def gather_curves(records: Sequence[Record]) -> dict[str, Any]:
    """The bound and its company, the KL of each chain, and how many heads are expected to speak.

    Args:
        records: Those of ``metrics.jsonl``.

    Returns:
        ``steps``, and lines of as many values by their names; nothing where nothing was noted.
    """
    if not records:
        return {}
    shown = _thin_out(records)
    found = {
        "steps": [record["step"] for record in shown],
        "bound": _read_bounds(shown),
        "kl": _sum_chains([record.get("kl_by_site") or {} for record in shown]),
        "speaking": _sum_chains([_count_speaking(record) for record in shown]),
        **_read_truth(shown[-1]["valid"]),
    }
    return {name: value for name, value in found.items() if value not in ({}, None)}


def _thin_out(records: Sequence[Record]) -> list[Record]:
    """Evenly spaced records, the last among them."""
    stride = -(-len(records) // MOST)
    return list(records[::-1][::stride])[::-1]


def _read_bounds(records: Sequence[Record]) -> dict[str, list[float | None]]:
    """The bound, what it is made of, and the exact value, or the plug-in network's where not known.

    Beside an exact log p the plug-in network, which is then the same, says nothing.
    """
    valid = [record["valid"] for record in records]
    exact = any(each.get("exact") is not None for each in valid)
    names = ("elbo", "log_likelihood", "exact" if exact else "plug_in")
    found = {name: [each.get(name) for each in valid] for name in names}
    return {**found, "objective": [record["objective"] for record in records]}


def _read_truth(valid: Record) -> dict[str, Any]:
    """The log p of the corpus; where it is not known of every sentence, of how many of them."""
    known, every = valid.get("truth_sentences"), valid.get("sentences")
    some = None if known in (None, every) else [known, every]
    return {"truth": valid.get("truth"), "truth_of": some}


def _count_speaking(record: Record) -> dict[str, float]:
    """How many heads of a block are expected to speak, a mean over its tasks."""
    blocks = record.get("selection") or {}
    return {name: sum(map(sum, rows)) / len(rows) for name, rows in blocks.items()}


def _sum_chains(records: Iterable[Mapping[str, float | None]]) -> dict[str, list[float]]:
    """The sums over the blocks of each chain, for each record."""
    rows = list(records)
    chains = dict.fromkeys(_name_chain(name) for row in rows for name in row)
    return {
        chain: [sum(v or 0.0 for n, v in row.items() if _name_chain(n) == chain) for row in rows]
        for chain in chains
    }


def _name_chain(name: str) -> str:
    """The chain of a block or of what is drawn there; which heads speak stands apart."""
    return SELECTION if latent_of(name) == SELECTION else attention_type_of(name)
