"""The report page of runs that a program has just trained."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import Namespace

from latentheads.errors import print_message
from latentheads.experiments.cli.errors import tell
from latentheads.runs.folder import PAGE
from latentheads.runs.loading import load_finished
from latentheads.runs.settings import Settings
from latentheads.runs.trainer import name_trusted

if TYPE_CHECKING:
    from latentheads.page import ReportPage

__all__ = ["print_and_write", "warn_unread", "write_page"]


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
    warn_unread("report", page)
    return f"written to {out / PAGE}: {len(page.html.encode()):,} bytes"


def warn_unread(program: str, page: ReportPage) -> None:
    """Says of which runs a page shows no sentence, and why.

    Args:
        program: The program's name.
        page: The page.
    """
    for name, why in page.unread.items():
        print_message(f"{program}: note: no sentence of {name} could be read: {why}", sys.stderr)


def print_and_write(
    program: str, said: str, plans: Sequence[tuple[Path, Settings]], options: Namespace, out: Path
) -> None:
    """Prints what a program has found, and writes its page where one is asked for.

    A reader that goes away ends the program when the page is written, too.

    Args:
        program: Its name.
        said: What it has found.
        plans: As for `write_page`.
        options: The same.
        out: The same.
    """
    try:
        tell(program, said)
    finally:
        if options.report:
            tell(program, write_page(plans, options, out))
