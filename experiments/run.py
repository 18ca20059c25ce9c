"""Trains one recipe and reports its true bound.

python experiments/run.py --guide cascaded
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from command import read_settings
from experiment import Run
from tables import result_table, site_table

DESCRIPTION = (
    "Trains one recipe, a prior and a guide over a Transformer's attention heads, and reports the "
    "true bound on log p(y | x) beside its terms. Without options: guide cascaded, prior "
    "independent, on a grammar that needs no file. Everything goes to one folder."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    settings, _ = read_settings(words, "run.py", DESCRIPTION, lambda parser: None)
    try:
        run = Run(settings)
    except ValueError as mistake:
        print(f"run.py: error: {mistake}", file=sys.stderr)
        return 2
    print(run.headline())
    try:
        run.train()
        outcome = run.finish()
    except FloatingPointError as trouble:
        print(f"run.py: error: {trouble}; its checkpoints are in {settings.out}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"run.py: stopped; checkpoints are in {settings.out}", file=sys.stderr)
        return 130
    print(result_table(outcome.results))
    if settings.verbose:
        print(site_table(outcome.report))
    print(f"written to {settings.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
