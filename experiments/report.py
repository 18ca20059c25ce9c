"""Makes one page of finished runs: bounds, training, and what every head does.

python experiments/report.py runs/cascaded-seed0 --out report.html
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import latentheads.experiments.cli.startup  # noqa: F401

from latentheads.experiments.cli.errors import error_handling, tell
from latentheads.experiments.cli.options import (
    Parser,
    add_run_options,
    make_reader,
    open_run,
)
from latentheads.experiments.cli.outputs import check_file
from latentheads.experiments.cli.pages import warn_unread
from latentheads.page import report

DESCRIPTION = (
    "Makes one page of finished runs, which a browser opens without a network.\n\n"
    "    python experiments/report.py runs/coda-seed0 runs/cascaded-seed0 --out report.html\n\n"
    "The page is one file of HTML, at most 2.5 MB where it can, to be opened by a double click, "
    "mailed or printed: a table of bounds, curves, every head of every layer, where a head looks "
    "under many draws, alignments, how far heads differ, which of them speak, and translations "
    "with the bound of each sentence."
)


def make_parser() -> Parser:
    """Makes the parser."""
    sections = {
        "what to show": ("part", "sentences", "shown", "draws"),
        "output": ("out",),
    }
    parser = make_reader("report.py", DESCRIPTION, sections)
    parser.add_argument("--out", type=str, default="report.html", help="the file of the page")
    parser.add_argument(
        "--part",
        type=Literal["valid", "test"],
        default="test",
        help="part of the corpus that is read",
    )
    parser.add_argument(
        "--sentences",
        type=int,
        default=100,
        help="number of sentences that are read, the first ones; of running text blocks: all heads "
        "are measured on them",
    )
    parser.add_argument(
        "--shown",
        type=int,
        default=6,
        help="number of sentences whose heads are shown one by one",
    )
    parser.add_argument(
        "--draws",
        type=int,
        default=32,
        help="number of draws of the heads of each that is shown, at least 2; from 25 on k-hat is "
        "known",
    )
    add_run_options(parser, "of the draws")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with error_handling("report.py", stopped="nothing was written"):
        out = check_file(Path(options.out))
        runs = [open_run(run, options, finished=True) for run in options.runs]
        chosen = {name: options[name] for name in ("part", "sentences", "shown", "draws")}
        page = report(runs, out, **chosen, seed=options.seed)
    warn_unread("report.py", page)
    tell("report.py", f"written to {options.out}: {len(page.html.encode()):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
