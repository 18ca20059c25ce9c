"""The programs that use a run folder, each as quickly as it goes."""

from __future__ import annotations

from pathlib import Path

from tests.attack.process import Ended, start
from tests.attack.trial import Arena

__all__ = ["use_run"]

TEXT = b"the dog sleeps\n\nthe cat that sees the old dog sees the cat\n"


def use_run(
    program: str,
    arena: Arena,
    ground: str,
    run: Path,
) -> Ended:
    """Runs a program on a copy of a ground.

    Args:
        program: Its name; ``start`` is run.py with ``--start``.
        arena: Where the ground is.
        ground: What the folder is a copy of.
        run: The copy; what is written stands beside it.
    """
    out, again = f"--out={run.parent / 'out'}", arena.ground(ground).words
    words = {
        "run": (*again, f"--out={run}"),
        "start": (*again, "--train.steps=2", f"--start={run}", out),
        "translate": (str(run),),
        "generate": (str(run), "--prompt=the", "--max_new_tokens=5"),
        "score": (str(run), "--num_samples=9"),
        "analyse": (str(run), out, "--sentences=4", "--relevance=0"),
        "prune": (str(run), out, "--keep_heads=4", "--sentences=4", "--timed=2", "--rounds=1"),
    }[program]
    given = TEXT if program == "translate" else b""
    name = "run" if program == "start" else program
    return start(name, *words, folder=run.parent, text=given)
