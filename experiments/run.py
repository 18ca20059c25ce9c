"""Trains a model/guide pair and reports its evidence lower bound (ELBO).

python experiments/run.py --guide cascaded
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import latentheads.experiments.cli.startup  # noqa: F401

from latentheads.console import print_message
from latentheads.experiments.cli.errors import error_handling, exit_with_error, rerun_command
from latentheads.experiments.cli.options import check_text, read_settings, trainer_of
from latentheads.experiments.cli.pages import print_and_write
from latentheads.experiments.cli.tables import (
    explanations,
    heads_table,
    result_table,
    site_table,
    task_table,
)
from latentheads.experiments.comparison.jobs import end_with_stdin
from latentheads.runs.build import is_first_process
from latentheads.runs.folder import Folder
from latentheads.runs.results import Results, lacking
from latentheads.runs.trainer import name_trusted

DESCRIPTION = (
    "Train a model/guide pair and report its evidence lower bound (ELBO).\n\n"
    "    python experiments/run.py --recipe coda --train.steps 500 --out runs/first\n"
    "    python experiments/run.py --preset multi30k --alignments.blocks 1 --loss marginal\n\n"
    "Without options: two latent alignment heads and guide cascaded, on a grammar that needs no "
    "file. On a corpus of your own begin with one head, trained by the exact log p as in the "
    "second line: a step takes a quarter of the time. "
    "Everything is written to one folder; the same command resumes a run that was stopped."
)


def _tables(results: Results, out: Path, verbose: bool) -> str:
    """The tables of a finished run."""
    parts = [result_table(results, verbose)]
    parts += filter(None, (task_table(results), heads_table(results)))
    if verbose:
        parts += ["", explanations(results), "", site_table(results), ""]
    else:
        parts.append("--verbose explains each row, and adds some")
    return "\n".join([*parts, f"written to {out}"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    end_with_stdin()
    settings, options, _ = read_settings(arguments, "run.py", DESCRIPTION)
    again = rerun_command(options.overwrite)
    out = Path(options.out or settings.out)
    with error_handling("run.py", user_errors=(ValueError,)):
        trusted = name_trusted(settings, options.trust)
        results = Folder(out, settings.to_yaml(), options.overwrite, trusted).results
        trainer = trainer_of(settings, options) if results is None else None
        if trainer is None and is_first_process():
            check_text(out, settings.data)
    with error_handling(
        "run.py",
        on_failure=f"what is finished is in {out}",
        on_interrupt=f"{again} goes on",
        user_errors=(),
    ):
        if trainer is None:
            if not is_first_process():
                return 0
            print_message(f"{out} is finished; --overwrite trains it anew", sys.stdout)
        else:
            if trainer.main:
                print_message(trainer.headline(), sys.stdout)
            results = trainer.fit()
    if results is None:  # the first process alone reports
        return 0
    tables = _tables(results, out, options.verbose)
    with error_handling(
        "run.py", on_failure=f"all else is in {out}", on_interrupt=f"all else is in {out}"
    ):
        print_and_write("run.py", tables, [(out, settings)], options, out)
    if missing := lacking(results.to_json()):
        exit_with_error("run.py", f"error: the report has no {missing}; {again} goes on with it", 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
