"""Scores finished runs, and tests each against the first: their output, or their log p.

python experiments/score.py runs/transformer-seed0 runs/cascaded-seed0 --paper iwslt14
python experiments/score.py runs/transformer-seed0 runs/cascaded-seed0 --likelihood
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import latentheads.experiments.cli.startup  # noqa: F401

from latentheads.experiments.cli.errors import error_handling, print_result
from latentheads.experiments.cli.outputs import check_distinct_files
from latentheads.experiments.cli.parser import Parser, add_run_options, writable
from latentheads.experiments.cli.tables import aligned
from latentheads.experiments.cli.trust import check_trusted
from latentheads.experiments.comparison.systems import (
    System,
    compare,
    describe_few,
    describe_steps,
    describe_tests,
    describe_untested,
    read_systems,
)
from latentheads.files import write_json
from latentheads.metrics.protocol import Protocol
from latentheads.metrics.resampling import RESAMPLES, SEED, Estimate, check_resamples
from latentheads.metrics.scores import SCORES
from latentheads.packages import package_versions
from latentheads.runs.settings import trusted_paths

DESCRIPTION = (
    "Scores the output of finished runs, and tests each against the first.\n\n"
    "    python experiments/score.py runs/transformer-seed0 runs/coda-seed0 --paper iwslt14\n"
    "    python experiments/score.py runs/transformer-seed0 runs/coda-seed0 --likelihood\n"
    "    python experiments/score.py mine.txt other.txt --references test.de\n\n"
    "Translations are scored with BLEU and chrF2, and optionally accuracy and edit distance; "
    "transcripts with WER and CER, and the papers' WER if the runs have it. "
    "Tests are by paired bootstrap over sentences. Prints one table, score [95 % interval] and "
    "p-value of the difference, and the signatures to cite. Plain text files, one sentence per "
    "line, may be given instead of runs: give --references.\n\n"
    "With --likelihood the log p(y | x) of the test sentences is compared, exact if available, "
    "otherwise the tightest bound, IWAE or ELBO: nats per target token, and the difference to the "
    "first run. A bound below an exact log p does not show a worse model: there p is left out. "
    "Runs with different tokenisation are compared in nats per sentence."
)
GROUPS = {
    "data": ("likelihood", "direction", "references", "tokenised", "lowercase", "recognised"),
    "scores": ("accuracy", "paper", "resamples", "seed"),
    "the runs": ("checkpoint", "trust", "device"),
    "output": ("json", "help"),
}
TEXT_OPTIONS = ("references", "tokenised", "lowercase", "recognised", "accuracy", "paper")
"""Options for scores of output."""

LIKELIHOOD_OPTIONS = ("checkpoint", "device")
"""Options for --likelihood."""


def make_parser() -> Parser:
    """Builds the command line."""
    parser = Parser("score.py", DESCRIPTION, GROUPS, "[options] RUN [RUN ...]")
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="run folder, or text file; the first is the baseline"
    )
    parser.add_argument(
        "--likelihood",
        action="store_true",
        help="compare the log p(y | x) of the test sentences instead of the output, a bound with "
        "as many samples as in each run's report; the corpus must be available",
    )
    parser.add_argument(
        "--references", type=Path, metavar="FILE", help="references of plain text files"
    )
    parser.add_argument(
        "--tokenised",
        action="store_true",
        help="plain text files are tokenised, with spaces between tokens: scored as they are "
        "(tok:none); known for run folders",
    )
    parser.add_argument("--lowercase", action="store_true", help="ignore case in plain text files")
    parser.add_argument(
        "--accuracy",
        action="store_true",
        help="add the share of exact matches and the mean edit distance; known for run folders",
    )
    parser.add_argument(
        "--paper",
        choices=get_args(Protocol),
        help="add the papers' BLEU, which is not comparable: compounds split; case-sensitive only "
        "on wmt14",
    )
    parser.add_argument(
        "--recognised",
        action="store_true",
        help="plain text files are transcripts of speech, scored with WER and CER; known for run "
        "folders",
    )
    parser.add_argument(
        "--direction", metavar="NAME", help="score only the lines of one task of runs, as en-de"
    )
    parser.add_argument(
        "--resamples",
        type=int,
        default=RESAMPLES,
        help="resamples of the test part",
    )
    add_run_options(parser, "of the resampling", SEED)
    parser.add_argument("--json", type=writable, metavar="FILE", help="write all results as JSON")
    return parser


def table(systems: Sequence[System], rows: Sequence[Mapping[str, Estimate]]) -> str:
    """Formats the scores of all systems, the number of sentences and tests, and the signatures."""
    names, sentences = [system.name for system in systems], len(systems[0].references.lines)
    titles = {name: SCORES[name].heading for name in rows[0]}
    heads = [cell for title in titles.values() for cell in (f"{title} [95 %]", "p")]
    cells = [[cell for name in titles for cell in _cells(row[name])] for row in rows]
    lines = [("run", *heads), *((name, *line) for name, line in zip(names, cells, strict=True))]
    width = max(map(len, titles.values()))
    signatures = (f"{title:{width}}  {rows[0][name].signature}" for name, title in titles.items())
    tests = describe_tests(sum(score.p is not None for row in rows for score in row.values()))
    untested = describe_untested({t: [row[name] for row in rows] for name, t in titles.items()})
    steps = describe_steps([system.step for system in systems])
    notes = [f"{sentences:,} sentences of test", *describe_few(sentences), *steps]
    notes += [*[tests] * bool(tests), *untested]
    return "\n".join([aligned(lines), "", *notes, *signatures])


def _cells(estimate: Estimate) -> tuple[str, str]:
    ends = "" if math.isnan(estimate.low) else f" [{estimate.low:.2f}, {estimate.high:.2f}]"
    return f"{estimate.score:.2f}{ends}", "" if estimate.p is None else f"{estimate.p:.4f}"


def record(systems: Sequence[System], rows: Sequence[Mapping[str, Estimate]]) -> dict[str, Any]:
    """All results, as written to a file."""
    return {
        "sentences": len(systems[0].references.lines),
        "tokenised": systems[0].references.tokenised,
        "lowercase": systems[0].references.lowercase,
        "systems": [
            {"run": system.name, **{name: asdict(estimate) for name, estimate in row.items()}}
            for system, row in zip(systems, rows, strict=True)
        ],
    }


def _check_options(options: argparse.Namespace, parser: Parser) -> None:
    """Checks for options that have no effect."""
    for name in TEXT_OPTIONS if options.likelihood else LIKELIHOOD_OPTIONS:
        if getattr(options, name) != parser.get_default(name):
            explanation = "for scores of output: drop it, or" if options.likelihood else "for"
            parser.error(f"--{name} is {explanation} --likelihood")


def _score_texts(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """The table and all results for scores of output."""
    check_trusted(trusted_paths(",".join(options.trust)), runs=options.runs)
    systems = read_systems(
        options.runs,
        options.references,
        options.tokenised,
        options.lowercase,
        options.direction,
        options.recognised,
    )
    rows = compare(systems, options.paper, options.resamples, options.seed, options.accuracy)
    return table(systems, rows), record(systems, rows)


def _score_likelihoods(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """The table and all results for log-likelihoods."""
    from latentheads.experiments.comparison import likelihoods  # slow to import

    check_resamples(options.resamples, options.seed)
    runs = likelihoods.compute_likelihoods(options)
    comparisons = likelihoods.compare_runs(runs, options.resamples, options.seed)
    return likelihoods.format_table(runs, comparisons), likelihoods.to_record(runs, comparisons)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    _check_options(options, parser)
    with error_handling("score.py", on_interrupt="nothing was written"):
        if options.json is not None:
            check_distinct_files([("--json", options.json)], (*options.runs, options.references))
        text, figures = (_score_likelihoods if options.likelihood else _score_texts)(options)
    try:
        if options.json is not None:
            with error_handling("score.py"):
                write_json(options.json, {**figures, "versions": package_versions()})
    finally:
        print_result("score.py", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
