"""Runs that are killed or stopped at random moments, and then go on to their end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from itertools import count, cycle
from random import Random

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


def kills(arena: Arena) -> Iterator[Trial]:
    """Kills without end, of every plan in turn."""
    for number, plan, ends in zip(count(1), cycle(PLANS), cycle(ENDS), strict=False):
        name = f"{plan} {ENDS[ends]}, {number}"
        yield Trial("kills", name, partial(_kill, plan, ends))


def _kill(plan: str, ends: signal.Signals, arena: Arena, rng: Random) -> None:
    """Kills a run one to four times, and lets it go on to its end.

    Args:
        plan: Which.
        ends: The signal that ends it.
        arena: Where.
        rng: Chooses the moments.
    """
    whole = arena.ground(plan)
    with arena.scratch() as place:
        out = place / "run"
        words = (*whole.words, f"--out={out}")
        for _ in range(rng.randint(1, 4)):
            moment = _choose_moment(whole, ends, rng)
            ended = start("run", *words, folder=place, watched=out, moment=moment)
            check(ended, 0, -ends if ends == signal.SIGKILL else 128 + ends)
        done = check(start("run", *words, folder=place))
        if done.status:
            raise TrialError("lost training", f"it does not go on: {done.error.strip()[-300:]}")
        check_same_end(whole, out)
        if left := [path.name for path in out.rglob(f"{TEMPORARY_PREFIX}*")]:
            raise TrialError("other", f"it leaves {left[0]} behind")


def _choose_moment(whole: Ground, ends: signal.Signals, rng: Random) -> Moment:
    """By the clock, or at an act on files: those are few and short, so the clock misses them."""
    if rng.random() < 0.3:
        return Moment(seconds=rng.random() * whole.seconds, signal=ends)
    return Moment(act=rng.randint(1, whole.acts), signal=ends)
