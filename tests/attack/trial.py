"""A trial and its verdict: what counts as a failure of a program under attack."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal, get_args

from tests.attack.process import Ended

__all__ = ["FAULTS", "Arena", "Fault", "Ground", "Trial", "TrialError", "check"]

Fault = Literal["traceback", "hang", "lost training", "other"]
FAULTS: tuple[Fault, ...] = get_args(Fault)

PROGRESS = re.compile(r"\s*\d*%?\|?.*\d+/\d+ \[.*|(?:step|timing) [\d,]+ of [\d,]+, .*")
"""A line of progress: of a bar, or as it stands in a file."""

NOTE = "note: "
"""How a line begins by which a training names what its options lead to."""


class TrialError(Exception):
    """What a program did wrong.

    Args:
        fault: Its kind.
        said: What there is to see of it.
    """

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


@dataclass(frozen=True)
class Ground:
    """A run folder that is copied and attacked.

    Attributes:
        path: The folder.
        words: The command line of run.py that wrote it, without ``--out``.
        seconds: How long that took.
        acts: How often it opened, renamed, made or removed a file in the folder.
    """

    path: Path
    words: tuple[str, ...]
    seconds: float = 0.0
    acts: int = 0


@dataclass(frozen=True)
class Arena:
    """Where trials take place.

    Attributes:
        top: A folder for everything.
        make: Makes a ground there, or takes the one that is there.
    """

    top: Path
    make: Callable[[Path, str], Ground]

    def ground(self, name: str) -> Ground:
        """A run folder that is copied and attacked."""
        return self.make(self.top, name)

    def copy(self, name: str, to: Path) -> Path:
        """A copy of a ground."""
        shutil.copytree(self.ground(name).path, to)
        return to

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder of a trial's own."""
        with tempfile.TemporaryDirectory(dir=self.top, ignore_cleanup_errors=True) as name:
            yield Path(name)


@dataclass(frozen=True)
class Trial:
    """One try of the attack.

    Attributes:
        kind: kills or damage.
        name: What is tried; with the seed it says everything.
        run: Does it, with the random numbers of this trial alone; raises `TrialError`.
    """

    kind: str
    name: str
    run: Callable[[Arena, Random], None]


def check(ended: Ended, *statuses: int) -> Ended:
    """Refuses an end that is none: by a traceback, a crash, a hang, or in more than one line.

    Args:
        ended: The end.
        *statuses: Those that it may have; those of a success and a mistake where none is given.

    Raises:
        TrialError: The end is a failure of the program.
    """
    lines = [line for line in re.split(r"[\r\n]+", ended.error) if line.strip()]
    last = lines[-1][:300] if lines else "nothing on standard error"
    if ended.late:
        raise TrialError("hang", f"{ended.program} did not end: {last}")
    if "Traceback (most recent call last)" in ended.error:
        raise TrialError("traceback", f"{ended.program}: {last}")
    if ended.status not in (statuses or (0, 1, 2)):
        fault: Fault = "traceback" if ended.status < 0 else "other"
        raise TrialError(fault, f"{ended.program} ended with status {ended.status}: {last}")
    messages = [line for line in lines if not (PROGRESS.fullmatch(line) or line.startswith(NOTE))]
    own = [line for line in messages if line.startswith(f"{ended.program}.py: ")]
    if len(own) < len(messages):
        foreign = next(line for line in messages if line not in own)
        raise TrialError("other", f"{ended.program}, on standard error: {foreign[:300]}")
    if ended.status > 0 and len(own) != 1:
        raise TrialError("other", f"{ended.program} failed in {len(own)} lines: {last}")
    return ended
