"""Tells what the uncertainty of finished runs is worth: calibration, rejection, other texts.

python experiments/uncertainty.py runs/transformer-seed0 runs/coda-seed0 --others news=news.en
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import latentheads.experiments.cli.startup  # noqa: F401

from jsonargparse import Namespace

from latentheads.checks import check_known, check_least, check_seed, split_items
from latentheads.decoding.translate import Decoding
from latentheads.experiments.cli.errors import error_handling, tell
from latentheads.experiments.cli.options import Parser, add_run_options, make_reader, open_run
from latentheads.experiments.cli.outputs import make_folder
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
from latentheads.metrics.resampling import MIN_RESAMPLES
from latentheads.uncertainty.evaluation import EnsembleEvaluation, Texts, evaluate_ensemble
from latentheads.uncertainty.measures import compare_systems

DESCRIPTION = (
    "Tells what the uncertainty of finished runs is worth, on the same sentences.\n\n"
    "    python experiments/uncertainty.py runs/transformer-seed0 runs/transformer-seed1 \\\n"
    "      runs/coda-seed0 --others news=news.en --out runs/uncertainty\n\n"
    "Systems are made of the runs: each alone, passes with dropout on, draws of heads, and runs "
    "that differ in their seed alone together. Each is fitted a temperature on validation, and "
    "judged by its calibration, by whether the translations that it doubts are the bad ones, and "
    "by whether it knows texts of other kinds. Writes tables, a figure a measure, CSV and JSON; "
    "intervals are by resampling the sentences, the same for all, and differences are tested "
    "against the first system."
)
DIGITS = "%.6g"
TOLD = (
    *("systems", "members", "noise", "varied", "others", "fitted", "resamples", "seed"),
    *("checkpoint", "runs"),
)
"""Options that stand beside the figures."""

MEMBERS = 8
"""Passes of a system by default."""


def make_parser() -> Parser:
    """Makes the parser."""
    sections = {
        "what to try": ("systems", "members", "noise", "varied"),
        "on which text": ("others", "sentences", "fitted"),
        "output": ("resamples", "out"),
    }
    parser = make_reader("uncertainty.py", DESCRIPTION, sections)
    kinds = "; ".join(f"{kind}: {what}" for kind, what in KINDS.items())
    parser.add_argument(
        "--systems",
        type=str,
        default=",".join(KINDS),
        help=f"those that are wanted, commas between; the runs must allow one. {kinds}",
    )
    parser.add_argument(
        "--members",
        type=int,
        default=MEMBERS,
        help="passes of every system with dropout, draws or noise",
    )
    parser.add_argument(
        "--noise",
        type=float,
        default=0.0,
        help="standard deviation of the noise that heads are given in runs that were trained "
        "without; 0: none are",
    )
    parser.add_argument(
        "--varied",
        type=int,
        default=0,
        help="translations of each sentence by single draws, whose likeness is a score too; "
        "0: leave it out",
    )
    parser.add_argument(
        "--others",
        type=str,
        nargs="*",
        default=[],
        help="sources of other kinds, as NAME=PATH, a line a sentence, prepared as the corpus was; "
        "beside them stand the test part's own with their pieces permuted",
    )
    parser.add_argument(
        "--sentences", type=int, default=500, help="how many of each text are read, the first ones"
    )
    parser.add_argument(
        "--fitted",
        type=int,
        default=300,
        help="how many of validation are fitted on, the first ones",
    )
    parser.add_argument("--resamples", type=int, default=1000, help="resamples of the sentences")
    parser.add_argument("--out", type=str, default="runs/uncertainty", help="where everything goes")
    add_run_options(parser, "of the draws")
    return parser


def _check(options: Namespace) -> list[str]:
    """Refuses figures out of range; gives the kinds of systems."""
    check_least(vars(options), members=2, noise=0.0, varied=0, sentences=2, fitted=1)
    check_least(vars(options), resamples=MIN_RESAMPLES)
    check_seed(options.seed)
    if options.varied == 1:
        raise ValueError("varied must be 0, for none, or at least 2, got 1")
    kinds: list[str] = split_items(options.systems)
    for kind in kinds:
        check_known("system", kind, KINDS)
    if options.noise and "noise" not in kinds:
        raise ValueError("noise is for the system noise: --systems has it not")
    if options.members != MEMBERS and not {*PASSES} & {*kinds}:
        raise ValueError(
            f"members is for systems of {', '.join(PASSES)}: --systems has none of them"
        )
    return kinds


def _open_groups(options: Namespace) -> list[Group]:
    """The runs by what they are of; those of one corpus share it."""
    runs = [open_run(run, options, finished=True) for run in options.runs]
    groups = group_runs(runs)
    for run in runs[1:]:
        if run.settings.data == runs[0].settings.data:
            run.given = runs[0].corpus
    return groups


def try_systems(
    systems: Sequence[System], texts: Texts, decoding: Decoding, options: Namespace
) -> list[list[EnsembleEvaluation]]:
    """Tries every committee of every system; those that write the same write once."""
    written: dict[str, dict[str, list[list[int]]]] = {}
    found = []
    for system in systems:
        evaluations = []
        for ensemble, writer in zip(system.ensembles, system.writers, strict=True):
            known, how = written.setdefault(writer, {}), (decoding, options.seed, options.varied)
            evaluations.append(evaluate_ensemble(ensemble, texts, *how, known))
        print(f"{system.name}: tried", file=sys.stderr)
        found.append(evaluations)
    return found


def write(findings: EvaluationResults, options: Namespace, out: Path) -> str:
    """Writes figures, tables and JSON; returns the tables."""
    import pandas as pd  # takes long to load

    said = write_tables(findings)
    chosen = {name: options[name] for name in TOLD}
    write_text(out / "uncertainty.json", to_json(findings, chosen))
    write_text(out / "table.md", f"```\n{said}\n```\n")
    frame = pd.DataFrame(csv_rows(findings))
    write_text(out / "uncertainty.csv", frame.to_csv(index=False, float_format=DIGITS))
    draw_all(findings, out)
    return said


def find(options: Namespace) -> tuple[EvaluationResults, Path]:
    """Tries what was asked for; gives what was found, and the folder that it goes to."""
    kinds, others = _check(options), read_others(options.others)
    groups = _open_groups(options)
    runs = [run for group in groups for run in group.runs]
    texts, notes = open_texts(runs, others, options.sentences, options.fitted, options.seed)
    systems = make_systems(groups, kinds, options.members, options.noise)
    if options.varied and not {*PASSES} & {system.kind for system in systems}:
        raise ValueError(
            f"varied is for systems of {', '.join(PASSES)}: --systems and the runs allow none"
        )
    out = make_folder(Path(options.out), "table.md")
    for note in notes:
        print(f"uncertainty.py: note: {note}", file=sys.stderr)
    evaluations = try_systems(systems, texts, runs[0].settings.decoding, options)
    figures = compare_systems(evaluations, texts.sizes, options.resamples, paired=[PERMUTED])
    return EvaluationResults(systems, evaluations, figures, texts), out


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with error_handling("uncertainty.py", stopped="nothing was written"):
        findings, out = find(options)
    with error_handling("uncertainty.py", stopped=f"what was written is in {out}"):
        said = write(findings, options, out)
    tell("uncertainty.py", f"{said}\nwritten to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
