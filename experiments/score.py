"""Scores finished runs and tests each against the first: what they write, or their log p.

python experiments/score.py runs/transformer-seed0 runs/cascaded-seed0 --paper iwslt14
python experiments/score.py runs/transformer-seed0 runs/cascaded-seed0 --likelihood
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import latentheads.experiments.cli.startup  # noqa: F401

from latentheads.experiments.cli.errors import error_handling, tell
from latentheads.experiments.cli.groups import Paragraphs
from latentheads.experiments.cli.outputs import check_file
from latentheads.experiments.cli.parser import OneLineErrorParser, add_loading_options, writable
from latentheads.experiments.cli.systems import System, compare, read_systems
from latentheads.experiments.cli.tables import aligned
from latentheads.files import write_text
from latentheads.metrics.protocol import Protocol
from latentheads.metrics.resampling import RESAMPLES, SEED, Estimate, check_resamples
from latentheads.metrics.scores import SCORES
from latentheads.values import finite

DESCRIPTION = (
    "Scores what finished runs write, and tests each against the first.\n\n"
    "    python experiments/score.py runs/transformer-seed0 runs/coda-seed0 --paper iwslt14\n"
    "    python experiments/score.py runs/transformer-seed0 runs/coda-seed0 --likelihood\n"
    "    python experiments/score.py mine.txt other.txt --references test.de\n\n"
    "Translations are scored with BLEU and chrF2, whole ones with accuracy and edit distance "
    "where they are asked for, recognised speech with WER and CER, and the papers' WER where runs "
    "were asked for it. "
    "Tests are by paired bootstrap: the same resampled sentences for all runs. Prints one "
    "table, score [95 % interval] and p of no difference, and the signatures to cite. Plain "
    "text files, one sentence a line, may stand for runs: give --references.\n\n"
    "With --likelihood it is the log p(y | x) of every test sentence that is compared, exact where "
    "it is known, else the bound: nats a target token, and the difference to the first run. Runs "
    "that cut sentences into other tokens are compared in nats a sentence."
)
GROUPS = {
    "what to score": (
        *("likelihood", "direction", "references", "tokenised", "lowercase", "recognised"),
    ),
    "how": ("accuracy", "paper", "resamples", "seed"),
    "the runs, for --likelihood": ("checkpoint", "trust", "device"),
    "output": ("json", "help"),
}
OF_TEXT = ("references", "tokenised", "lowercase", "recognised", "accuracy", "paper")
"""Options of what is written."""

OF_LIKELIHOOD = ("checkpoint", "trust", "device")
"""Options of what is computed anew."""


def make_parser() -> OneLineErrorParser:
    """Builds the command line."""
    parser = OneLineErrorParser(
        "score.py", DESCRIPTION, GROUPS, "[options] RUN [RUN ...]", Paragraphs
    )
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="run folder, or text file; the first is the baseline"
    )
    parser.add_argument(
        "--likelihood",
        action="store_true",
        help="compare the log p(y | x) of the test sentences in place of what is written, with the "
        "draws of each run's report where it is a bound; a run must have its corpus",
    )
    parser.add_argument(
        "--references", type=Path, metavar="FILE", help="references of plain text files"
    )
    parser.add_argument(
        "--tokenised",
        action="store_true",
        help="plain text files hold tokens with spaces between: scored as they are (tok:none); "
        "a run folder says it itself",
    )
    parser.add_argument(
        "--lowercase", action="store_true", help="plain text files are scored without case"
    )
    parser.add_argument(
        "--accuracy",
        action="store_true",
        help="add the share of translations that are right to the letter, and how many edits they "
        "are away; a run folder says it itself",
    )
    parser.add_argument(
        "--paper",
        choices=get_args(Protocol),
        help="add the BLEU of the papers, another figure: compounds split, case counts on wmt14 "
        "alone",
    )
    parser.add_argument(
        "--recognised",
        action="store_true",
        help="plain text files are transcripts of speech, scored with WER and CER; a run folder "
        "says it itself",
    )
    parser.add_argument(
        "--direction", metavar="NAME", help="score the lines of one task alone, as en-de: of runs"
    )
    parser.add_argument(
        "--resamples",
        type=int,
        default=RESAMPLES,
        help=f"resamples of the test part (default: {RESAMPLES})",
    )
    parser.add_argument(
        "--seed", type=int, default=SEED, help=f"of the resamples (default: {SEED})"
    )
    add_loading_options(parser)
    parser.add_argument("--json", type=writable, metavar="FILE", help="write all figures there too")
    return parser


def table(names: Sequence[str], rows: Sequence[Mapping[str, Estimate]]) -> str:
    """The scores of all systems, then the signatures."""
    titles = {name: SCORES[name].heading for name in rows[0]}
    heads = [cell for title in titles.values() for cell in (f"{title} [95 %]", "p")]
    cells = [[cell for name in titles for cell in _cells(row[name])] for row in rows]
    lines = [("run", *heads), *((name, *line) for name, line in zip(names, cells, strict=True))]
    width = max(map(len, titles.values()))
    signatures = (f"{title:{width}}  {rows[0][name].signature}" for name, title in titles.items())
    return "\n".join([aligned(lines), "", *signatures])


def _cells(estimate: Estimate) -> tuple[str, str]:
    ends = "" if math.isnan(estimate.low) else f" [{estimate.low:.2f}, {estimate.high:.2f}]"
    return f"{estimate.score:.2f}{ends}", "" if estimate.p is None else f"{estimate.p:.4f}"


def record(systems: Sequence[System], rows: Sequence[Mapping[str, Estimate]]) -> dict[str, Any]:
    """All figures, as written to a file."""
    return {
        "sentences": len(systems[0].references),
        "tokenised": systems[0].tokenised,
        "lowercase": systems[0].lowercase,
        "systems": [
            {"run": system.name, **{name: asdict(estimate) for name, estimate in row.items()}}
            for system, row in zip(systems, rows, strict=True)
        ],
    }


def _check_options(options: argparse.Namespace, parser: OneLineErrorParser) -> None:
    """Refuses options that act on nothing."""
    for name in OF_TEXT if options.likelihood else OF_LIKELIHOOD:
        if getattr(options, name) != parser.get_default(name):
            why = "of what is written: drop it, or" if options.likelihood else "for"
            parser.error(f"--{name} is {why} --likelihood")


def _score_texts(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """The table and all figures of what is written."""
    systems = read_systems(
        options.runs,
        options.references,
        options.tokenised,
        options.lowercase,
        options.direction,
        options.recognised,
    )
    how = (options.paper, options.resamples, options.seed, options.accuracy)
    rows = compare(systems, *how)
    return table([system.name for system in systems], rows), record(systems, rows)


def _score_likelihoods(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """The table and all figures of what runs say of the test part."""
    from latentheads.experiments.cli import likelihoods  # takes long to load

    check_resamples(options.resamples, options.seed)
    said = likelihoods.read_said(options)
    found = likelihoods.compare_said(said, options.resamples, options.seed)
    return likelihoods.table_of_said(said, found), likelihoods.record_said(said, found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    _check_options(options, parser)
    with error_handling("score.py", stopped="nothing was written"):
        if options.json is not None:
            check_file(options.json, "--json")
        said, figures = (_score_likelihoods if options.likelihood else _score_texts)(options)
    try:
        if options.json is not None:
            with error_handling("score.py"):
                write_text(
                    options.json, json.dumps(finite(figures), indent=2, ensure_ascii=False) + "\n"
                )
    finally:
        tell("score.py", said)
    return 0


if __name__ == "__main__":
    sys.exit(main())
