"""Runs and prunings that are killed or stopped at random moments, and then go on to their end."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from functools import partial
from itertools import count, cycle
from pathlib import Path
from random import Random

from latentheads.experiments.prune import STAGING_PREFIX
from latentheads.files import TEMPORARY_PREFIX
from tests.attack.grounds import PLANS, check_same_end
from tests.attack.process import Moment, start
from tests.attack.trial import Arena, Ground, Trial, TrialError, check

__all__ = ["kills"]

ENDS = {
    signal.SIGKILL: "killed",
    signal.SIGINT: "stopped by Ctrl-C",
    signal.SIGTERM: "told to end",
    signal.SIGHUP: "hung up",
}
"""Signals that end a run, by what they do."""
ORDER = (*(signal.SIGKILL, signal.SIGINT, signal.SIGKILL), signal.SIGTERM, signal.SIGHUP)
"""Which signal in turn: it leaves most behind that cannot be caught."""
PRUNE = "prune"
MOVES = 60
"""Acts on files at the end of a pruning, about: its networks move into their places."""


def kills(arena: Arena) -> Iterator[Trial]:
    """Kills without end, of every plan in turn, and then of a pruning."""
    for number, plan, ends in zip(count(1), cycle((*PLANS, PRUNE)), cycle(ORDER), strict=False):
        kill = partial(_kill_prune, ends) if plan == PRUNE else partial(_kill, plan, ends)
        yield Trial("kills", f"{plan} {ENDS[ends]}, {number}", kill)


def _kill(plan: str, ends: signal.Signals, arena: Arena, rng: Random) -> None:
    """Kills a run one to four times, and lets it go on to its end.

    Args:
        plan: Which.
        ends: The signal that ends it.
        arena: Where.
        rng: Chooses the moments.
    """
    whole = arena.ground(plan)
    with arena.scratch() as folder:
        out = folder / "run"
        words = (*whole.words, f"--out={out}")
        for _ in range(rng.randint(1, 4)):
            moment = _choose_moment(whole, ends, rng)
            ended = start("run", *words, folder=folder, watched=out, moment=moment)
            # before it has begun the signal ends it as any process
            check(ended, 0, _status_of(ends), *(() if ended.acts else (-ends,)))
        done = check(start("run", *words, folder=folder))
        if done.status:
            raise TrialError("lost training", f"it does not go on: {done.error.strip()[-300:]}")
        check_same_end(whole, out)
        _check_nothing_left(out)


def _kill_prune(ends: signal.Signals, arena: Arena, rng: Random) -> None:
    """Kills a pruning while its networks move, and lets the same command go on to its end."""
    with arena.scratch() as folder:
        run, out = arena.copy("finished", folder / "run"), folder / "out"
        words = (str(run), f"--out={out}", "--keep_heads=4,2", "--sentences=4", "--timed=2")
        words += ("--rounds=1", "--overwrite")
        whole = check(start("prune", *words, folder=folder, watched=out), 0)
        again = words if rng.random() < 0.5 else words[:-1]
        if again != words:
            shutil.rmtree(out)
        moment = Moment(act=whole.acts - rng.randrange(MOVES), signal=ends)
        ended = start("prune", *again, folder=folder, watched=out, moment=moment)
        check(ended, 0, _status_of(ends))
        if (out / "curve.json").exists():  # that of before, or it was killed at its very end
            again = words
        done = check(start("prune", *again, folder=folder))
        if done.status:
            raise TrialError("lost training", f"it does not go on: {done.error.strip()[-300:]}")
        for heads in (4, 2):
            check(start("translate", str(out / f"heads-{heads}"), folder=folder, text=b"the\n"), 0)
        _check_nothing_left(out)


def _status_of(ends: signal.Signals) -> int:
    """The exit status after a signal: of what cannot be caught, the signal itself."""
    return -ends if ends == signal.SIGKILL else 128 + ends


def _check_nothing_left(out: Path) -> None:
    """Raises an error if a temporary file or folder is left."""
    for prefix in (TEMPORARY_PREFIX, STAGING_PREFIX):
        if left := [path.name for path in out.rglob(f"{prefix}*")]:
            raise TrialError("other", f"it leaves {left[0]} behind")


def _choose_moment(whole: Ground, ends: signal.Signals, rng: Random) -> Moment:
    """By the clock, or at an act on files: those are few and short, so the clock misses them."""
    if rng.random() < 0.3:
        return Moment(seconds=rng.random() * whole.seconds, signal=ends)
    return Moment(act=rng.randint(1, whole.acts), signal=ends)
