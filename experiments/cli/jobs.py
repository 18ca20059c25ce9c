"""Many runs at once: a process each, of the command that a person would type.

A run needs no engine: it is `run.py --config FILE --out FOLDER`, its folder is locked while it is
written, and it goes on from its last checkpoint when it is started again. What it says goes to
``log.txt`` in its folder.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from typing import IO, NoReturn

from latentheads.checks import split_items
from latentheads.errors import UnfinishedError, print_message
from latentheads.files import last_line, write_text

__all__ = [
    "LOG",
    "POLL",
    "PROGRAM",
    "RunJob",
    "Table",
    "ended_by_signals",
    "find_places",
    "name_failure",
    "open_command",
    "refuse_failures",
    "run_jobs",
    "take_shard",
]

LOG = "log.txt"
"""What the output of a run is called, in its folder."""

OPTIONS = ".options.yaml"
"""What a run is started with, in its folder."""

PR_SET_PDEATHSIG = 1
"""Linux's number for the signal that a process is sent when its parent ends."""

PROGRAM = (sys.executable, "-m", "latentheads.experiments.run")
"""The words that start a run."""

POLL = 0.2
EVERY = 60.0
"""Seconds between two tables of what runs, where the output is a file or a pipe."""
GRACE = 2.0
"""Seconds that runs have to end by themselves: Ctrl-C at a terminal reaches them too."""

Slot = Mapping[str, str]
"""The environment in which one run after another is started: its threads, or its GPU."""


@dataclass(frozen=True)
class RunJob:
    """A run that is to be started.

    Attributes:
        name: What it is called.
        folder: Where it is written.
        configuration: Its options as YAML.
        words: Further words of its command line.
    """

    name: str
    folder: Path
    configuration: str
    words: Sequence[str] = ()

    def last_words(self) -> str:
        """The last line that it has said."""
        return last_line(self.folder / LOG)


@dataclass
class _Running:
    job: RunJob
    place: Slot
    process: subprocess.Popen[bytes]
    begun: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        return time.monotonic() - self.begun


def take_shard(word: str) -> tuple[int, int]:
    """Reads ``I/N``: which part, and of how many.

    Raises:
        ValueError: It names none.
    """
    part, _, parts = word.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise ValueError(f"shard must be I/N with I from 1 to N, as 1/4, got {word!r}")
    return int(part), int(parts)


def find_places(jobs: int, devices: str) -> list[Slot]:
    """Where runs may be started: a number beside each other, or one on each GPU.

    Args:
        jobs: Runs beside each other. Threads of the processor are shared out evenly.
        devices: Numbers of GPUs, comma between, a run each at least. Empty: none is chosen.

    Raises:
        ValueError: There are none.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    names = split_items(devices) if devices else []
    if not all(name.isdecimal() for name in names):
        raise ValueError(f"devices must be numbers of GPUs with commas between, got {devices!r}")
    count = max(jobs, len(names))
    own = os.environ.get("OMP_NUM_THREADS")
    shared = {"OMP_NUM_THREADS": own or str(max(1, _count_cores() // count))}
    turns = [{"CUDA_VISIBLE_DEVICES": name} for name in names] or [{}]
    return [{**shared, **turns[place % len(turns)]} for place in range(count)]


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_jobs(
    jobs: Sequence[RunJob], places: Sequence[Slot], program: Sequence[str] = PROGRAM
) -> None:
    """Runs all, as many at once as there are places; one that fails keeps no other from running.

    Args:
        jobs: The runs.
        places: Where they may be started.
        program: The words that start one.

    Raises:
        UnfinishedError: Some have failed; it names them, and the last words of each.
        KeyboardInterrupt: When all have ended.
    """
    waiting, free, running = list(reversed(jobs)), list(reversed(places)), list[_Running]()
    failed, table = [], Table(len(jobs))
    with _all_end(running):
        while waiting or running:
            while waiting and free:
                started = _start(waiting.pop(), free.pop(), program)
                running.append(started)
                table.say(f"{started.job.name}: started")
            time.sleep(POLL)
            for each in [each for each in running if each.process.poll() is not None]:
                running.remove(each)
                free.append(each.place)
                failure = name_failure(each.job, each.process.returncode)
                failed += [failure] if failure else []
                table.end(failure or f"{each.job.name}: done in {each.seconds():,.0f} s")
            table.show([each.job for each in running])
    refuse_failures(failed, len(jobs))


def refuse_failures(failed: Sequence[str], total: int) -> None:
    """Ends the work where some of all runs have failed, as each of them says.

    Raises:
        UnfinishedError: Some have.
    """
    if failed:
        raise UnfinishedError(f"{len(failed)} of {total} runs failed: {'; '.join(failed)}")


def _start(job: RunJob, place: Slot, program: Sequence[str]) -> _Running:
    with open_command(job, program) as (words, log):
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **place},
            preexec_fn=partial(_end_with_parent, os.getpid()),
        )
    return _Running(job, place, process)


def _end_with_parent(parent: int) -> None:
    """Has the system end this process when the one that started it ends, even by SIGKILL (Linux).

    Args:
        parent: The process that starts this one.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it has ended already
        os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def open_command(job: RunJob, program: Sequence[str]) -> Iterator[tuple[list[str], IO[bytes]]]:
    """The command of a run, and the open file of what it says.

    Args:
        job: The run.
        program: The words that start one.
    """
    job.folder.mkdir(parents=True, exist_ok=True)
    configuration = job.folder / OPTIONS
    write_text(configuration, job.configuration)
    words = [*program, "--config", str(configuration), "--out", str(job.folder), *job.words]
    with (job.folder / LOG).open("ab") as log:  # what was said before says why it was begun again
        log.write(f"begun {datetime.now():%Y-%m-%d %H:%M:%S}\n".encode())
        log.flush()
        yield words, log


def name_failure(job: RunJob, status: int) -> str:
    """The reason why a run has failed, by the status of its process; empty if it has not."""
    if status == 0:
        return ""
    known = {each.value: each.name for each in signal.Signals}
    how = f"status {status}" if status > 0 else known.get(-status, f"signal {-status}")
    return f"{job.name} ended with {how}: {job.last_words()}"


@contextmanager
def _all_end(running: Sequence[_Running]) -> Iterator[None]:
    """Ends all runs that are left, however the work ends."""
    try:
        with ended_by_signals():
            yield
    finally:
        with suppress(KeyboardInterrupt):  # who is in a hurry presses it twice
            _wait_for(running, GRACE)
        for each in running:
            if each.process.poll() is None:
                each.process.send_signal(signal.SIGINT)
        with suppress(KeyboardInterrupt):
            _wait_for(running, 5 * GRACE)
        for each in running:  # one that ignores it loses nothing behind its last checkpoint
            each.process.kill()
            each.process.wait()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Ends as by Ctrl-C where the process is told to end, or its terminal is closed.

    A signal that is ignored, as by ``nohup``, stays so; a second one does not disturb the end.
    """
    if current_thread() is not main_thread():  # signals are the main thread's
        yield
        return
    found = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    before = {each: handler for each, handler in found.items() if handler != signal.SIG_IGN}

    def interrupt(*_: object) -> NoReturn:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    try:
        for each in before:
            signal.signal(each, interrupt)
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _wait_for(running: Sequence[_Running], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(each.process.poll() is None for each in running):
        time.sleep(0.05)


class Table:
    """Shows what all runs do: always at a terminal, elsewhere a line for each now and then.

    Args:
        total: How many there are.
        file: Where lines go; standard output when not given.
        clock: Tells seconds.
    """

    def __init__(
        self,
        total: int,
        file: IO[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.ended = total, 0
        self.file = sys.stdout if file is None else file
        self.live, self._clock = self.file.isatty(), clock
        self._lines, self._due = 0, clock() + EVERY

    def end(self, line: str) -> None:
        """Says that a run has ended."""
        self.ended += 1
        self.say(f"[{self.ended}/{self.total}] {line}")

    def say(self, line: str) -> None:
        """Writes a line that stays."""
        self._clear()
        print_message(line, self.file)

    def show(self, running: Sequence[RunJob]) -> None:
        """Shows the last words of all that run."""
        if not self.live and self._clock() < self._due:
            return
        self._due = self._clock() + EVERY
        self._clear()
        width, most = shutil.get_terminal_size((100, 25))
        shown = running[: max(1, most - 3)] if self.live else running
        lines = [f"  {each.name}: {each.last_words()}" for each in shown]
        if len(shown) < len(running):
            lines.append(f"  and {len(running) - len(shown)} more")
        if not lines:
            return
        print_message(
            "\n".join(line[: width - 1] if self.live else line for line in lines), self.file
        )
        self._lines = len(lines) if self.live else 0

    def _clear(self) -> None:
        """Takes back the lines that change."""
        if self._lines:
            self.file.write(f"\x1b[{self._lines}F\x1b[J")
        self._lines = 0
