"""The report of a session on a machine: what was done, and the figures, as Markdown tables."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyro
import torch

from latentheads.experiments.cli.tables import markdown
from latentheads.experiments.studies.machine.jobs import Journal
from latentheads.files import read_json, write_text
from latentheads.metrics.scores import Scores

TABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "agreement": ("rows", ("recipe", "device", "precision", "bound", "off", "worst")),
    "bench": ("rows", ("recipe", "precision", "row", "ms", "ratio", "memory", "share_of_peak")),
    "length": ("points", ("row", "length", "blocks", "ms", "memory", "tokens_per_second")),
    "decoding": ("rows", ("recipe", "beam", "row", "ms", "sentences_per_second", "ratio")),
    "speed": (
        "rows",
        ("size", "row", "mode", "precision", "ms", "ratio", "memory", "waits", "why"),
    ),
    "graphs": ("rows", ("size", "row", "mode", "precision", "ms", "ratio", "memory", "why")),
    "compiled": ("rows", ("size", "row", "mode", "precision", "ms", "ratio", "memory", "why")),
}
"""By measuring job, the key of its rows and the columns that are shown."""

UNITS = (
    "BLEU and chrF count from 0 to 100, and `tokens_per_second` is the speed of training; "
    "what stands between `steps` and `bleu` is in nats a token."
)

TRAINING_FIGURES = ("elbo", "kl", "iwae", "exact", "gap", "plug_in", "bleu", "chrf")
"""Figures of a trained network's test part."""


def write_report(journal: Journal, device: str, asked: Sequence[str] = ()) -> Path:
    """Writes all that is known into ``report.md``."""
    sections = [
        _head(device),
        _jobs(journal, asked),
        *_measured(journal.folder),
        *_trained(journal),
    ]
    path = journal.folder / "report.md"
    write_text(path, "\n".join(sections))
    return path


def _head(device: str) -> str:
    name = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    versions = f"torch {torch.__version__}, pyro {pyro.__version__}, Python "
    return f"# A session on {name}\n\n{versions}{platform.python_version()}\n"


def _jobs(journal: Journal, asked: Sequence[str]) -> str:
    rows = [["job", "state", "s", "why"]]
    for name, done in journal.found.items():
        rows.append([name, done.state, f"{done.seconds:.0f}", done.why.replace("|", "/")])
    rows += [[name, "not begun", "", ""] for name in asked if name not in journal.found]
    return "## Jobs\n\n" + markdown(rows)


def _measured(folder: Path) -> Iterator[str]:
    """A table for every file that a measuring job has written."""
    for name, (key, columns) in TABLES.items():
        found = _read(folder / f"{name}.json")
        if found is not None:
            yield f"## {name.capitalize()}\n\n" + _table(found.get(key, []), columns)


def _trained(journal: Journal) -> Iterator[str]:
    """A row for every training run that has a report."""
    rows = []
    runs = journal.folder / "runs"
    for path in sorted(runs.rglob("results.json")):
        found = _read(path)
        if found is not None:
            scores = Scores.read(found.get("test", []))
            figures = {name: scores.get(name) for name in TRAINING_FIGURES}
            speed = {"tokens_per_second": found.get("tokens_per_second")}
            name = path.parent.relative_to(runs).as_posix()
            rows.append({"run": name, "steps": found.get("steps"), **figures, **speed})
    if rows:
        yield f"## Training, test part\n\n{UNITS}\n\n" + _table(rows, tuple(rows[0]))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    return markdown([[*columns], *([_cell(row.get(each)) for each in columns] for row in rows)])


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)
