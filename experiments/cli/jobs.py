"""Parallel runs: one process for each, with the command that a user would type.

The command is `run.py --config FILE --out FOLDER`. A run locks its folder, and resumes from its
last checkpoint when it is started again. Its output goes to ``log.txt`` in its folder.
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
from typing import IO

from latentheads.checks import split_items
from latentheads.errors import UnfinishedError, print_message, shown
from latentheads.experiments.cli.errors import interrupted_by_signals
from latentheads.files import last_line, write_text

LOG_FILE = "log.txt"
"""The file with the output of a run, in its folder."""

OPTIONS_FILE = ".options.yaml"
"""The file with the options of a run, in its folder."""

PR_SET_PDEATHSIG = 1
"""The prctl option of Linux for the signal that a process gets when its parent ends."""

RUN_COMMAND = (sys.executable, "-m", "latentheads.experiments.run")
"""The command that starts a run."""

POLL_SECONDS = 0.2
TABLE_SECONDS = 60.0
"""Seconds between two progress tables, if the output is a file or a pipe."""
GRACE_SECONDS = 2.0
"""Seconds that runs have to exit by themselves: Ctrl-C in a terminal reaches them too."""

Slot = Mapping[str, str]
"""The environment variables of one of the parallel processes: its threads, or its GPU."""


@dataclass(frozen=True)
class RunJob:
    """A run to be started.

    Attributes:
        name: Its name.
        folder: Its run folder.
        configuration: Its options as YAML.
        words: Further command line arguments.
    """

    name: str
    folder: Path
    configuration: str
    words: Sequence[str] = ()

    def last_log_line(self) -> str:
        """The last line of its log."""
        return last_line(self.folder / LOG_FILE)


@dataclass
class _Running:
    job: RunJob
    slot: Slot
    process: subprocess.Popen[bytes]
    begun: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        return time.monotonic() - self.begun


def parse_shard(text: str) -> tuple[int, int]:
    """Parses a shard ``I/N``: its number, and the number of shards."""
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise ValueError(f"shard must be I/N with I from 1 to N, as 1/4, got {shown(text)}")
    return int(part), int(parts)


def make_slots(jobs: int, devices: str) -> list[Slot]:
    """Makes the slots of parallel runs: a number of processes, at least one on each GPU.

    Args:
        jobs: Number of parallel runs. CPU threads are divided evenly.
        devices: Numbers of GPUs, separated by commas. Empty: the default device.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    names = split_items(devices) if devices else []
    if not all(name.isdecimal() for name in names):
        raise ValueError(
            f"devices must be numbers of GPUs with commas between, got {shown(devices)}"
        )
    count = max(jobs, len(names))
    num_threads = os.environ.get("OMP_NUM_THREADS")
    shared = {"OMP_NUM_THREADS": num_threads or str(max(1, _count_cores() // count))}
    gpus = [{"CUDA_VISIBLE_DEVICES": name} for name in names] or [{}]
    return [{**shared, **gpus[index % len(gpus)]} for index in range(count)]


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_jobs(
    jobs: Sequence[RunJob], slots: Sequence[Slot], program: Sequence[str] = RUN_COMMAND
) -> None:
    """Runs all jobs in parallel; a failure does not stop the others.

    Raises:
        UnfinishedError: Some runs failed; the message has the last log line of each.
        KeyboardInterrupt: After all runs have ended.
    """
    waiting, free, running = list(reversed(jobs)), list(reversed(slots)), list[_Running]()
    failures, table = [], ProgressTable(len(jobs))
    with _end_all(running):
        while waiting or running:
            while waiting and free:
                started = _start(waiting.pop(), free.pop(), program)
                running.append(started)
                table.print_line(f"{started.job.name}: started")
            time.sleep(POLL_SECONDS)
            for finished in [run for run in running if run.process.poll() is not None]:
                running.remove(finished)
                free.append(finished.slot)
                failure = describe_failure(finished.job, finished.process.returncode)
                failures += [failure] if failure else []
                table.end(failure or f"{finished.job.name}: done in {finished.seconds():,.0f} s")
            table.show([finished.job for finished in running])
    raise_failures(failures, len(jobs))


def raise_failures(failures: Sequence[str], total: int) -> None:
    """Raises an error if some runs have failed."""
    if failures:
        raise UnfinishedError(f"{len(failures)} of {total} runs failed: {'; '.join(failures)}")


def _start(job: RunJob, slot: Slot, program: Sequence[str]) -> _Running:
    with open_command(job, program) as (command, log):
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **slot},
            preexec_fn=partial(_end_with_parent, os.getpid()),
        )
    return _Running(job, slot, process)


def _end_with_parent(parent: int) -> None:
    """Makes Linux end this process when its parent ends, even by SIGKILL."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it has ended already
        os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def open_command(job: RunJob, program: Sequence[str]) -> Iterator[tuple[list[str], IO[bytes]]]:
    """Yields the command of a run, and its open log file."""
    job.folder.mkdir(parents=True, exist_ok=True)
    configuration = job.folder / OPTIONS_FILE
    write_text(configuration, job.configuration)
    command = [*program, "--config", str(configuration), "--out", str(job.folder), *job.words]
    with (job.folder / LOG_FILE).open("ab") as log:  # keep the log of a previous start
        log.write(f"begun {datetime.now():%Y-%m-%d %H:%M:%S}\n".encode())
        log.flush()
        yield command, log


def describe_failure(job: RunJob, status: int) -> str:
    """Describes why a run has failed, by the status of its process; empty if it has not."""
    if status == 0:
        return ""
    signal_names = {number.value: number.name for number in signal.Signals}
    reason = f"status {status}" if status > 0 else signal_names.get(-status, f"signal {-status}")
    return f"{job.name} ended with {reason}: {job.last_log_line()}"


@contextmanager
def _end_all(running: Sequence[_Running]) -> Iterator[None]:
    """Ends all remaining runs when the context exits."""
    try:
        with interrupted_by_signals():
            yield
    finally:
        with suppress(KeyboardInterrupt):  # a second Ctrl-C
            _wait_for(running, GRACE_SECONDS)
        for run in running:
            if run.process.poll() is None:
                run.process.send_signal(signal.SIGINT)
        with suppress(KeyboardInterrupt):
            _wait_for(running, 5 * GRACE_SECONDS)
        for run in running:  # kill a run that ignores the signal: it resumes from its checkpoint
            run.process.kill()
            run.process.wait()


def _wait_for(running: Sequence[_Running], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(run.process.poll() is None for run in running):
        time.sleep(0.05)


class ProgressTable:
    """Shows the progress of all runs: live at a terminal, otherwise at intervals."""

    def __init__(
        self,
        total: int,
        file: IO[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.ended = total, 0
        self.file = sys.stdout if file is None else file
        self.live, self._clock = self.file.isatty(), clock
        self._lines, self._due = 0, clock() + TABLE_SECONDS

    def end(self, line: str) -> None:
        """Prints that a run has ended."""
        self.ended += 1
        self.print_line(f"[{self.ended}/{self.total}] {line}")

    def print_line(self, line: str) -> None:
        """Prints a permanent line."""
        self._clear()
        print_message(line, self.file)

    def show(self, running: Sequence[RunJob]) -> None:
        """Shows the last log line of every running job."""
        if not self.live and self._clock() < self._due:
            return
        self._due = self._clock() + TABLE_SECONDS
        self._clear()
        width, height = shutil.get_terminal_size((100, 25))
        shown = running[: max(1, height - 3)] if self.live else running
        lines = [f"  {job.name}: {job.last_log_line()}" for job in shown]
        if len(shown) < len(running):
            lines.append(f"  and {len(running) - len(shown)} more")
        if not lines:
            return
        print_message(
            "\n".join(line[: width - 1] if self.live else line for line in lines), self.file
        )
        self._lines = len(lines) if self.live else 0

    def _clear(self) -> None:
        """Removes the live lines."""
        if self._lines:
            self.file.write(f"\x1b[{self._lines}F\x1b[J")
        self._lines = 0
