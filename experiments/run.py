"""Trains one recipe and reports its true bound.

python experiments/run.py --guide cascaded
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import latentheads.experiments.cli.beginning  # noqa: F401

from latentheads.experiments.cli.errors import ending, leave
from latentheads.experiments.cli.options import read_settings
from latentheads.experiments.cli.tables import result_table, site_table, task_table
from latentheads.runs.folder import Folder
from latentheads.runs.report import lacking
from latentheads.runs.run import Run, make_accelerator

DESCRIPTION = (
    "Trains one recipe, a prior and a guide, and reports the true bound.\n\n"
    "    python experiments/run.py --recipe coda --steps 500 --out runs/first\n"
    "    python experiments/run.py --preset multi30k --data FOLDER --source en --target de\n\n"
    "Without options: guide cascaded, prior independent, on a grammar that needs no file. "
    "Everything goes to one folder; the same command goes on with a run that was stopped."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    settings, _ = read_settings(words, "run.py", DESCRIPTION, lambda parser: None)
    again = "without --overwrite the same command" if settings.overwrite else "the same command"
    with ending("run.py", mistakes=(ValueError,)):
        results = Folder(settings.out, settings.text, settings.overwrite).results
        run = Run(settings, accelerator=make_accelerator(settings)) if results is None else None
    with ending(
        "run.py",
        trouble=f"what is finished is in {settings.out}",
        stopped=f"{again} goes on from the last checkpoint",
        mistakes=(),
    ):
        if run is None:
            if os.environ.get("RANK", "0") != "0":
                return 0
            print(f"{settings.out} is finished; --overwrite trains it anew")
        else:
            if run.main:
                print(run.headline(), flush=True)
            run.train()
            run.release()
            if not run.main:
                return 0
            results = run.finish()
    assert results is not None
    print(result_table(results))
    if results.get("tasks"):
        print(task_table(results))
    if settings.verbose:
        print(site_table(results))
    print(f"written to {settings.out}")
    if lacks := lacking(results):
        leave("run.py", f"error: the report lacks {lacks}; the same command goes on with it", 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
