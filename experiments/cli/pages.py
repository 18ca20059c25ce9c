"""The report page of runs that a program has just trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jsonargparse import Namespace

from latentheads.runs.folder import PAGE
from latentheads.runs.loading import load_finished
from latentheads.runs.settings import Settings
from latentheads.runs.trainer import name_trusted

__all__ = ["write_page"]


def write_page(plans: Sequence[tuple[Path, Settings]], options: Namespace, out: Path) -> str:
    """Writes the page of finished runs; returns what says where.

    Args:
        plans: The folder of each, and its settings: their classes are the reader's own.
        options: The options of the program.
        out: The folder of the page.
    """
    from latentheads.page import report  # it loads what reads heads

    trusted = [(folder, name_trusted(settings, options.trust)) for folder, settings in plans]
    runs = [load_finished(folder, "reported", options.device, own) for folder, own in trusted]
    page = report(runs, out / PAGE)
    return f"written to {out / PAGE}: {len(page.html.encode()):,} bytes"
