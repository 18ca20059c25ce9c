"""The aligner beside others on the same lines, with paired bootstrap intervals over test pairs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from latentheads.contrib.align.api import start_alignment
from latentheads.contrib.align.symmetrization import grow_diag_final_and, select_links
from latentheads.experiments.studies.word_aligners.measures import (
    Gold,
    calibrate,
    compare,
    count_lines,
)
from latentheads.experiments.studies.word_aligners.rivals import Directions, run_rival
from latentheads.metrics.alignment import Links
from latentheads.metrics.resampling import RESAMPLES, SEED, Counts, Resamples

OTHERS = ("eflomal", "eflomal of sil-thot")

OWN = ("product", "grow", "grow-diag-final-and", "intersection")

FIRST = "latentheads, product"
"""The system that all others are compared with."""

Text = tuple[Sequence[str], Sequence[str]]


def measure_standing(
    text: Text, gold: Gold, python: Path, report: Callable[[str], None]
) -> dict[str, Any]:
    """Error rates of all systems on the lines that a text begins with.

    Args:
        text: The lines that all are trained on.
        gold: The manual links of the first ones.
        python: The Python of an environment with eflomal and sil-thot.
        report: Called with a line for each system.
    """
    number = len(gold.sure)
    systems: dict[str, list[Links]] = {}
    before = time.process_time()
    alignment = start_alignment(*text)
    posteriors = list(islice(alignment.posteriors, number))
    for _ in alignment.posteriors:
        pass
    seconds = {"latentheads": round(time.process_time() - before, 1)}
    for name in OWN:
        systems[f"latentheads, {name}"] = [select_links(p, name) for p in posteriors]
    for name in OTHERS:
        directions, spent = run_rival(name, python, *text)
        seconds[name] = round(spent, 1)
        systems |= _joined(name, directions, number)
    rows = _compare(systems, gold, report)
    return {
        "test_pairs": number,
        "pairs": len(text[0]),
        "cpu_seconds": seconds,
        "aer": rows,
        "ece": calibrate(posteriors, gold)["possible"]["ece"],
    }


def _joined(name: str, directions: Directions, number: int) -> dict[str, list[Links]]:
    """The links of another aligner, and of both directions joined."""
    pairs = [*zip(directions[0][:number], directions[1][:number], strict=True)]
    return {
        f"{name}, forward": [ahead for ahead, _ in pairs],
        f"{name}, backward": [back for _, back in pairs],
        f"{name}, intersection": [ahead & back for ahead, back in pairs],
        f"{name}, grow-diag-final-and": [grow_diag_final_and(*pair) for pair in pairs],
    }


def _compare(
    systems: dict[str, list[Links]], gold: Gold, report: Callable[[str], None]
) -> dict[str, Any]:
    indices = Resamples(len(gold.sure), RESAMPLES, SEED)
    counts: dict[str, Counts] = {name: count_lines(s, gold) for name, s in systems.items()}
    rows = {}
    for name in systems:
        rows[name] = compare(counts[name], counts[FIRST], indices)
        report(f"{name}: {rows[name]}")
    return rows
