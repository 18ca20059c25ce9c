"""Makes one page of finished runs: bounds, training, and what every head does.

python experiments/report.py runs/cascaded-seed0 --out report.html
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal

import latentheads.experiments.cli.startup  # noqa: F401

from latentheads.contrib.page import report
from latentheads.experiments.cli.errors import error_handling, print_result
from latentheads.experiments.cli.outputs import check_distinct_files, check_output_file
from latentheads.experiments.cli.pages import warn_incomplete
from latentheads.experiments.cli.parser import Parser, add_run_options, make_reader, open_run

DESCRIPTION = (
    "Makes one page of finished runs, which a browser opens without a network.\n\n"
    "    python experiments/report.py runs/coda-seed0 runs/cascaded-seed0 --out report.html\n\n"
    "The page is one HTML file, at most 2.5 MB if possible: a table of bounds, training curves, "
    "every head of every layer, attention under many samples, alignments, divergence of heads, "
    "active heads, and translations with the bound of each sentence."
)


def make_parser() -> Parser:
    """Makes the parser."""
    sections = {
        "data": ("part", "sentences", "shown", "num_samples"),
        "output": ("out",),
    }
    parser = make_reader("report.py", DESCRIPTION, sections)
    parser.add_argument("--out", default="report.html", help="the file of the page")
    parser.add_argument(
        "--part",
        type=Literal["valid", "test"],
        default="test",
        help="part of the corpus",
    )
    parser.add_argument(
        "--sentences",
        type=int,
        default=100,
        help="number of sentences, or blocks of running text, on which all heads are measured, the "
        "first ones",
    )
    parser.add_argument(
        "--shown",
        type=int,
        default=6,
        help="number of sentences whose heads are shown",
    )
    parser.add_argument(
        "--num_samples",
        type=int,
        default=32,
        help="samples of the heads of each shown sentence, at least 2; k-hat needs 30",
    )
    add_run_options(parser, "of sampling")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with error_handling("report.py", on_interrupt="nothing was written"):
        check_distinct_files([("--out", options.out)], options.runs)
        out = check_output_file(options.out)
        runs = [open_run(run, options, finished=True) for run in options.runs]
        page_options = {
            name: getattr(options, name) for name in ("part", "sentences", "shown", "num_samples")
        }
        page = report(runs, out, **page_options, seed=options.seed)
    warn_incomplete("report.py", page)
    print_result("report.py", f"written to {options.out}: {len(page.html.encode()):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
