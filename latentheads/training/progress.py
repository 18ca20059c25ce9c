"""Progress of a training: a bar in a notebook, a live line at a terminal, else a line now and then.

Where the output is a file or a pipe nobody sees a line that is drawn again and again. There a line
is written after ten seconds, after thirty, after a minute, and then each minute.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

from tqdm import tqdm

__all__ = ["ProgressDisplay"]

FIRST = (10.0, 30.0, 60.0)
"""Seconds to the first lines of a file."""
EVERY = 60.0
"""Seconds between two lines after these."""


@runtime_checkable
class Output(Protocol):
    """Where lines go: a terminal, a file, or what a notebook has in its place."""

    def write(self, text: str, /) -> object:
        """Writes a text."""

    def flush(self) -> object:
        """Hands on what was written."""

    def isatty(self) -> bool:
        """Whether it is a terminal."""


class ProgressDisplay:
    """Shows how far a training is.

    Args:
        total: Updates of the whole training.
        done: Updates done before.
        quiet: Show nothing.
        file: Where lines go; standard error when not given.
        clock: Tells seconds.
    """

    def __init__(
        self,
        total: int,
        done: int = 0,
        quiet: bool = False,
        file: Output | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.done, self.begun = total, done, done
        self.file = sys.stderr if file is None else file
        self._clock, self._start = clock, clock()
        self._due, self._said, self._shown = FIRST[0], "", done
        self._lines = not quiet
        self._bar: Any = None
        if not quiet and (kind := _find_bar(self.file)) is not None:
            options = {"total": total, "initial": done, "unit": "step", "dynamic_ncols": True}
            self._bar, self._lines = kind(**options, file=self.file), False

    def __enter__(self) -> ProgressDisplay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, reason: object, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._lines and kind is None and self._shown < self.done:
            self._write_line()

    def advance(self, step: int) -> None:
        """Notes that so many updates are done."""
        self.done = step
        if self._bar is not None:
            self._bar.update(step - self._bar.n)
        elif self._lines and self._clock() - self._start >= self._due:
            self._write_line()

    def tell(self, said: str) -> None:
        """Notes what an evaluation has found; it stands behind the number of updates."""
        self._said = said
        if self._bar is not None:
            self._bar.set_postfix_str(said)

    def _write_line(self) -> None:
        seconds = self._clock() - self._start
        self._due = next((s for s in FIRST if s > seconds), seconds + EVERY)
        self._shown = self.done
        speed = (self.done - self.begun) / max(seconds, 1e-9)
        parts = [f"update {self.done:,} of {self.total:,}", f"{speed:.3g} updates/s"]
        if speed and self.done < self.total:
            parts.append(f"about {_say_time((self.total - self.done) / speed)} left")
        print(
            "; ".join([", ".join(parts), *filter(None, [self._said])]), file=self.file, flush=True
        )


def _find_bar(file: Output) -> Any:
    """What draws a bar there; None where lines are written."""
    if _in_notebook():
        from tqdm.auto import tqdm as drawn

        return drawn
    return tqdm if file.isatty() else None


def _in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in shell.config


def _say_time(seconds: float) -> str:
    """A time in words: seconds, minutes, or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
