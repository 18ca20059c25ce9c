"""One command for all programs: ``latentheads run --guide cascaded`` is ``experiments/run.py``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import latentheads.experiments.cli.startup  # noqa: F401

__all__ = ["PROGRAMS", "main"]

PROGRAMS = {
    "run": "trains one recipe and reports its true bound",
    "compare": "trains several recipes with several seeds and compares their bounds",
    "sweep": "trains recipes with several numbers of heads",
    "translate": "translates text with a finished run",
    "transcribe": "writes what is said in files of sound with a finished run",
    "generate": "continues text with a finished language model",
    "score": "BLEU and chrF of finished runs, or their log p, with paired tests",
    "analyse": "reads what the heads of finished runs do",
    "uncertainty": "tells what the uncertainty of finished runs is worth",
    "report": "makes one page of finished runs, to be opened in a browser",
    "prune": "removes heads of a finished run",
}
"""What each does, in a line."""


def usage() -> str:
    """What the command takes."""
    width = max(map(len, PROGRAMS))
    lines = (f"  {name:{width}}  {does}" for name, does in PROGRAMS.items())
    return "\n".join(["usage: latentheads PROGRAM [options]", "", *lines, "", HINT])


HINT = "latentheads PROGRAM --help says what a program takes"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a program and returns its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if not words or words[0] in ("-h", "--help"):
        try:
            print(usage(), flush=True)
        except BrokenPipeError:  # its reader has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0 if words else 2
    name, *rest = words
    if name not in PROGRAMS:
        print(
            f"latentheads: error: unknown program {name!r}: choose from {', '.join(PROGRAMS)}",
            file=sys.stderr,
        )
        return 2
    status: int = import_module(f"latentheads.experiments.{name}").main(rest)
    return status


if __name__ == "__main__":
    sys.exit(main())
