"""Evaluates the uncertainty of finished runs: calibration, rejection, out-of-domain detection.

python experiments/uncertainty.py runs/transformer-seed0 runs/coda-seed0 --others news=news.en
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import latentheads.experiments.cli.startup  # noqa: F401

from annotated_types import Ge, Lt
from pydantic import FiniteFloat

from latentheads.checks import check_choice, split_items
from latentheads.console import print_message
from latentheads.contrib.uncertainty.evaluation import EnsembleEvaluation, Texts, evaluate_ensemble
from latentheads.contrib.uncertainty.measures import compare_systems
from latentheads.decoding.options import Decoding
from latentheads.experiments.cli.errors import error_handling, print_result
from latentheads.experiments.cli.outputs import check_distinct_files, make_output_folder
from latentheads.experiments.cli.parser import (
    Options,
    Parser,
    add_run_options,
    make_reader,
    open_run,
)
from latentheads.experiments.reliability.figures import draw_all
from latentheads.experiments.reliability.results import EvaluationResults
from latentheads.experiments.reliability.systems import (
    KINDS,
    PASSES,
    Group,
    System,
    group_runs,
    make_systems,
)
from latentheads.experiments.reliability.tables import csv_rows, to_json, write_tables
from latentheads.experiments.reliability.texts import PERMUTED, open_texts, read_others
from latentheads.files import write_text
from latentheads.metrics.resampling import check_resamples
from latentheads.options import Count, Size
from latentheads.runs.run import share_corpora

DESCRIPTION = (
    "Evaluates the uncertainty of finished runs on the same sentences.\n\n"
    "    python experiments/uncertainty.py runs/transformer-seed0 runs/transformer-seed1 \\\n"
    "      runs/coda-seed0 --others news=news.en --out runs/uncertainty\n\n"
    "Systems are made from the runs: each alone, MC dropout, samples of heads, and deep ensembles "
    "of runs that differ only in their seed. Each system's temperature is fitted on validation. "
    "Measures are calibration, detection of bad translations, and detection of out-of-domain "
    "texts. Writes tables, figures, CSV and JSON; intervals and tests against the first system "
    "are by paired bootstrap over sentences."
)
DIGITS = "%.6g"
RECORDED_OPTIONS = (
    *("systems", "members", "noise", "varied", "others", "fitted", "resamples", "seed"),
    *("checkpoint", "runs"),
)
"""Options that are written with the results."""

Several = Annotated[int, Ge(2), Lt(2**63)]

MEMBERS = 8
"""Default number of samples of a system."""

WRITTEN = ("uncertainty.json", "table.md", "uncertainty.csv")
"""The files that it writes besides figures."""


def make_parser() -> Parser:
    """Makes the parser."""
    sections = {
        "systems": ("systems", "members", "noise", "varied"),
        "texts": ("others", "sentences", "fitted"),
        "output": ("resamples", "out"),
    }
    parser = make_reader("uncertainty.py", DESCRIPTION, sections)
    kinds = "; ".join(f"{kind}: {description}" for kind, description in KINDS.items())
    parser.add_argument(
        "--systems",
        default=",".join(KINDS),
        help=f"kinds of systems, separated by commas; the runs must allow one. {kinds}",
    )
    parser.add_argument(
        "--members",
        type=Several,
        default=MEMBERS,
        help="passes of every system with dropout, samples of heads, or noise",
    )
    parser.add_argument(
        "--noise",
        type=Annotated[FiniteFloat, Ge(0)],
        default=0.0,
        help="standard deviation of the noise added to heads of runs trained without noise; "
        "0: no such system",
    )
    parser.add_argument(
        "--varied",
        type=Size,
        default=0,
        help="translations of each sentence by single samples, whose dissimilarity is a score "
        "too; 0: no such score",
    )
    parser.add_argument(
        "--others",
        nargs="*",
        default=[],
        help="out-of-domain sources, as NAME=PATH, one sentence per line, prepared as the corpus; "
        "the test part's own sources with permuted tokens are always added",
    )
    parser.add_argument(
        "--sentences",
        type=Several,
        default=500,
        help="number of sentences of each text, the first ones",
    )
    parser.add_argument(
        "--fitted",
        type=Count,
        default=300,
        help="number of validation sentences for fitting, the first ones",
    )
    parser.add_argument("--resamples", type=int, default=1000, help="bootstrap resamples")
    parser.add_argument("--out", default="runs/uncertainty", help="output folder")
    add_run_options(parser, "of sampling")
    return parser


def _check_options(options: Options) -> list[str]:
    """Validates options; returns the kinds of systems."""
    check_resamples(options.resamples, options.seed)
    if options.varied == 1:
        raise ValueError("varied must be 0, for none, or at least 2, got 1")
    kinds: list[str] = split_items(options.systems)
    for kind in kinds:
        check_choice("system", kind, KINDS)
    if options.noise and "noise" not in kinds:
        raise ValueError("noise is for the system noise, which --systems does not name")
    if options.members != MEMBERS and not {*PASSES} & {*kinds}:
        raise ValueError(f"members is for systems {', '.join(PASSES)}: --systems has none of them")
    return kinds


def _open_groups(options: Options) -> list[Group]:
    """Loads the runs and groups them; runs on one corpus share it."""
    runs = [open_run(run, options, finished=True) for run in options.runs]
    share_corpora(runs)
    return group_runs(runs)


def evaluate_systems(
    systems: Sequence[System], texts: Texts, decoding: Decoding, options: Options
) -> list[list[EnsembleEvaluation]]:
    """Evaluates every ensemble of every system; equal translations are computed once."""
    translations: dict[str, dict[str, list[list[int]]]] = {}
    results = []
    for system in systems:
        evaluations = []
        for ensemble, translator in zip(system.ensembles, system.translators, strict=True):
            cache = translations.setdefault(translator, {})
            evaluations.append(
                evaluate_ensemble(ensemble, texts, decoding, options.seed, options.varied, cache)
            )
        print_message(f"{system.name}: evaluated", sys.stderr)
        results.append(evaluations)
    return results


def write(results: EvaluationResults, options: Options, out: Path) -> str:
    """Writes figures, tables and JSON; returns the tables."""
    import pandas as pd  # slow to import

    tables = write_tables(results)
    recorded = {name: getattr(options, name) for name in RECORDED_OPTIONS}
    write_text(out / "uncertainty.json", to_json(results, recorded))
    write_text(out / "table.md", f"```\n{tables}\n```\n")
    frame = pd.DataFrame(csv_rows(results))
    write_text(out / "uncertainty.csv", frame.to_csv(index=False, float_format=DIGITS))
    draw_all(results, out)
    return tables


def run_evaluation(options: Options) -> tuple[EvaluationResults, Path]:
    """Evaluates all systems; returns the results and the output folder."""
    kinds, others = _check_options(options), read_others(options.others)
    outputs = (("--out", Path(options.out) / name) for name in WRITTEN)
    check_distinct_files(outputs, (*options.runs, *others.values()))
    groups = _open_groups(options)
    runs = [run for group in groups for run in group.runs]
    texts, notes = open_texts(runs, others, options.sentences, options.fitted, options.seed)
    systems = make_systems(groups, kinds, options.members, options.noise)
    if options.varied and not {*PASSES} & {system.kind for system in systems}:
        raise ValueError(
            f"varied is for systems {', '.join(PASSES)}: --systems and the runs allow none"
        )
    out = make_output_folder(Path(options.out))
    for note in notes:
        print_message(f"uncertainty.py: note: {note}", sys.stderr)
    evaluations = evaluate_systems(systems, texts, runs[0].settings.decode, options)
    figures = compare_systems(evaluations, texts.sizes, options.resamples, paired=[PERMUTED])
    return EvaluationResults(systems, evaluations, figures, texts), out


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with error_handling("uncertainty.py", on_interrupt="nothing was written"):
        results, out = run_evaluation(options)
    with error_handling("uncertainty.py", on_interrupt=f"what was written is in {out}"):
        tables = write(results, options, out)
    print_result("uncertainty.py", f"{tables}\nwritten to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
