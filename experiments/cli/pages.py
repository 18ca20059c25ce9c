"""The report page of runs that a program has trained."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from latentheads.experiments.cli.startup import name_program

from latentheads.console import print_message
from latentheads.experiments.cli.errors import print_result
from latentheads.experiments.cli.options import ProgramOptions
from latentheads.runs.folder import PAGE
from latentheads.runs.loading import load_finished
from latentheads.runs.settings import Settings
from latentheads.runs.trainer import name_trusted

if TYPE_CHECKING:
    from latentheads.contrib.page import ReportPage


def write_page(plans: Sequence[tuple[Path, Settings]], options: ProgramOptions, out: Path) -> str:
    """Writes the page of finished runs; returns a message with its path."""
    from latentheads.contrib.page import report  # slow to import

    runs = [
        load_finished(folder, "reported", options.device, name_trusted(settings, options.trust))
        for folder, settings in plans
    ]
    page = report(runs, out / PAGE)
    warn_incomplete("report", page)
    return f"written to {out / PAGE}: {len(page.html.encode()):,} bytes"


def warn_incomplete(program: str, page: ReportPage) -> None:
    """Warns of runs for which a page lacks something."""
    notes = [f"no sentence of {run} could be read: {why}" for run, why in page.unread.items()]
    for run, left_out in page.left_out.items():
        notes += [f"the page has no {name} of {run}: {why}" for name, why in left_out.items()]
    for note in notes:
        print_message(f"{name_program(program)}: note: {note}", sys.stderr)


def print_and_write(
    program: str,
    text: str,
    plans: Sequence[tuple[Path, Settings]],
    options: ProgramOptions,
    out: Path,
) -> None:
    """Prints the result of a program, and writes its page if requested.

    The page is written even if standard output is closed.
    """
    try:
        print_result(program, text)
    finally:
        if options.report:
            print_result(program, write_page(plans, options, out))
