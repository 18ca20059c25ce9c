"""Progress of a training: a live line in a notebook and at a terminal, else a line now and then.

A notebook's line is one output that changes: it needs no widgets, and a notebook that is executed
and kept has its last state alone. In a file or a pipe a line cannot be redrawn: there one is
written after ten seconds, after thirty, after a minute, and then each minute.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from types import TracebackType
from typing import Any

from tqdm import tqdm

from latentheads.console import print_message
from latentheads.training.callbacks import Callback
from latentheads.training.options import Training
from latentheads.training.precision import ChosenPrecision

FIRST = (10.0, 30.0, 60.0)
"""Seconds to the first lines of a file."""
EVERY = 60.0
"""Seconds between two lines after these."""
LIVE = 0.5
"""Seconds between two states of a notebook's line."""


class ProgressDisplay:
    """Shows how far a training is.

    Args:
        total: Optimiser steps of the whole training.
        done: Optimiser steps done before.
        quiet: Show nothing.
        unit: What is counted.
        file: Where lines go; standard error when not given.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        total: int,
        done: int = 0,
        quiet: bool = False,
        unit: str = "step",
        file: Any = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.done, self.begun, self.unit = total, done, done, unit
        self.file: Any = sys.stderr if file is None else file
        self._clock, self._start = clock, clock()
        self._due, self._evaluation_line, self._shown = FIRST[0], "", done
        self._evaluation_step = done
        self._live_due = self._start
        self._lines = not quiet
        self._bar: Any = None
        self._live: _NotebookLine | None = None
        if not quiet and (display := _get_display()) is not None:
            self._live, self._lines = _NotebookLine(display), False
        elif not quiet and self.file is not None and self.file.isatty():
            options = {"total": total, "initial": done, "unit": unit, "dynamic_ncols": True}
            self._bar, self._lines = tqdm(**options, file=self.file), False

    def __enter__(self) -> ProgressDisplay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, reason: object, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._live is not None:
            self._live.show(self._format_state())
        elif self._lines and kind is None and self._shown < self.done:
            self._write_line()

    def advance(self, step: int) -> None:
        """Notes how many steps are done."""
        self.done = step
        if self._bar is not None:
            self._bar.update(step - self._bar.n)
        elif self._live is not None and self._clock() >= self._live_due:
            self._live_due = self._clock() + LIVE
            self._live.show(self._format_state())
        elif self._lines and self._clock() - self._start >= self._due:
            self._write_line()

    def log_evaluation(self, line: str) -> None:
        """Sets the line of the last evaluation, which is shown after the number of steps."""
        self._evaluation_line, self._evaluation_step = line, self.done
        if self._bar is not None:
            self._bar.set_postfix_str(line)

    def _write_line(self) -> None:
        seconds = self._clock() - self._start
        self._due = next((s for s in FIRST if s > seconds), seconds + EVERY)
        self._shown = self.done
        print_message(self._format_state(), self.file)

    def _format_state(self) -> str:
        """Progress, speed, and the last evaluation."""
        speed = (self.done - self.begun) / max(self._clock() - self._start, 1e-9)
        parts = [
            f"{self.unit} {self.done:,} of {self.total:,}",
            f"{speed:.3g} {self.unit.split()[-1]}s/s",
        ]
        if speed and self.done < self.total:
            parts.append(f"about {_format_duration((self.total - self.done) / speed)} left")
        if self._evaluation_line:
            later = self.done > self._evaluation_step
            parts = [
                ", ".join(parts),
                f"at {self._evaluation_step:,}: " * later + self._evaluation_line,
            ]
            return "; ".join(parts)
        return ", ".join(parts)


class ProgressBar(Callback):
    """Shows each step of a training, and behind it the bound of the last evaluation."""

    def __init__(self, display: ProgressDisplay) -> None:
        self.display = display

    def on_step_end(self, step: int) -> None:
        """Shows how many steps are done."""
        self.display.advance(step)

    def on_evaluate(self, record: Mapping[str, Any], is_best: bool) -> None:
        """Shows the bound, its two terms, and tokens per second."""
        valid, speed = record["valid"], record["tokens_per_second"]
        throughput = "" if math.isnan(speed) else f", {speed:,.0f} tokens/s"
        self.display.log_evaluation(
            f"bound {valid['elbo']:.4f} = log-likelihood {valid['log_likelihood']:.4f} "
            f"- KL {valid['kl']:.4f} nats/token{throughput}"
        )


def note_long_warmup(training: Training) -> None:
    """Notes a warm-up that training ends within: the learning rate never reaches what was asked."""
    if training.warmup > training.steps:
        top = training.learning_rate * training.rate_factor(training.steps - 1)
        print_message(
            f"note: warmup_steps {training.warmup:,} is more than all {training.steps:,} steps: "
            f"the learning rate reaches {top:.2g} of {training.learning_rate:.2g}",
            sys.stderr,
        )


def note_precision(precision: ChosenPrecision) -> None:
    """Notes a precision that was not asked for by name, and why it was chosen."""
    if precision.reason is not None:
        print_message(f"precision {precision.name}: {precision.reason}", sys.stderr)


class _NotebookLine:
    """One output of a cell, which changes."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display, self._handle = display, None

    def show(self, line: str) -> None:
        """Shows a line in the place of the one before."""
        shown = {"text/plain": line}
        if self._handle is None:
            self._handle = self._display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)


def _get_display() -> Callable[..., Any] | None:
    """The function that shows an output in the kernel of a notebook; elsewhere None."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or "IPKernelApp" not in shell.config:
        return None
    display: Callable[..., Any] = import_module("IPython.display").display
    return display


def _format_duration(seconds: float) -> str:
    """A time in words: seconds, minutes, or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
