"""Jobs in the time that is left: each a process, ended when its time is over, done once."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from latentheads.files import last_line, lock_folder, read_json, write_text

ROOT = Path(__file__).resolve().parents[3]
GRACE = 10.0
"""Seconds between Ctrl-C and force."""

LONGEST = 200
"""Characters of a log's last line that a table has room for."""

State = Literal["done", "failed", "stopped"]


@dataclass(frozen=True)
class Job:
    """A command.

    Attributes:
        name: What its log is called.
        words: The words behind ``python -m``.
        threads: Of the processor; 0: as many as PyTorch takes.
    """

    name: str
    words: tuple[str, ...]
    threads: int = 0


@dataclass(frozen=True)
class Part:
    """Jobs of one kind.

    Attributes:
        name: What it is called.
        jobs: The jobs, in order.
        seconds: Most that one of them may take; 0: all that is left.
        at_once: Jobs that run side by side.
    """

    name: str
    jobs: Sequence[Job]
    seconds: float = 0.0
    at_once: int = 1


@dataclass(frozen=True)
class Done:
    """The outcome of a job.

    Attributes:
        state: Done; failed by itself; or stopped, because its time was over.
        seconds: How long it ran.
        why: The last line that a failed job wrote.
        words: The words of its command, as :meth:`Journal.words` has them.
    """

    state: State
    seconds: float
    why: str = ""
    words: tuple[str, ...] = ()


class Running(Protocol):
    """A job that runs."""

    def poll(self) -> int | None:
        """Its exit status; None while it runs."""

    def interrupt(self) -> None:
        """Tells it to end, as Ctrl-C does."""

    def stop(self) -> None:
        """Ends it: if it has not ended some time after it was asked to, with force."""


Launch = Callable[[Job, Path], Running]
"""Starts a job, whose words go to a file."""


class Process:
    """A job in a process group of its own."""

    def __init__(self, job: Job, log: Path) -> None:
        self.interrupted: float | None = None
        self.killed = False
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        if job.threads:
            environment["OMP_NUM_THREADS"] = str(job.threads)
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *job.words],
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env=environment,
                start_new_session=True,
            )

    def poll(self) -> int | None:
        """Its exit status; None while it runs."""
        status = self.process.poll()
        if status is not None:
            self._kill_rest()
        return status

    def interrupt(self) -> None:
        """Sends SIGINT to the group, once."""
        if self.interrupted is None:
            self.interrupted = time.monotonic()
            self._send(signal.SIGINT)

    def stop(self) -> None:
        """Interrupts it, waits a while, and kills what is left of the group."""
        self.interrupt()
        assert self.interrupted is not None
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, self.interrupted + GRACE - time.monotonic()))
        self._kill_rest()
        self.process.wait()

    def _kill_rest(self) -> None:
        """Kills the group, once: a leader that has ended may leave others, and they the GPU."""
        if not self.killed:
            self.killed = True
            self._send(signal.SIGKILL)

    def _send(self, signal_number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):  # macOS may not signal what has ended
            os.killpg(self.process.pid, signal_number)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keeps a folder for this process; the system frees it when the process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = lock_folder(folder)
    except OSError as reason:
        if reason.errno != errno.EBUSY:
            raise
        said = f"{reason.strerror}; choose another --out"
        raise OSError(errno.EBUSY, said, str(folder)) from None
    try:
        yield
    finally:
        os.close(lock)


@dataclass
class Journal:
    """The outcome of every job, in a file that is written whenever it changes.

    Attributes:
        folder: Where it lies, and the jobs' logs.
        found: By the name of the job.
    """

    folder: Path
    found: dict[str, Done] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path) -> Journal:
        """Reads what an earlier session wrote."""
        self = cls(folder)
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        if self.file.exists():
            try:
                self.found = {name: _read_done(each) for name, each in read_json(self.file).items()}
            except (OSError, ValueError, TypeError, AttributeError) as reason:
                raise ValueError(f"{self.file} cannot be used: {reason}") from reason
        return self

    @property
    def file(self) -> Path:
        """The file."""
        return self.folder / "jobs.json"

    def log(self, job: Job) -> Path:
        """The log of a job."""
        return self.folder / "logs" / f"{job.name}.log"

    def words(self, job: Job) -> tuple[str, ...]:
        """The words of a job, without the folder, which may be carried to another machine."""
        return tuple(word.replace(str(self.folder), "OUT") for word in job.words)

    def is_done(self, job: Job) -> bool:
        """Whether a job need not be done again: it is done, and had the same words."""
        found = self.found.get(job.name)
        return found is not None and found.state == "done" and found.words == self.words(job)

    def refuse_others(self, jobs: Iterable[Job]) -> None:
        """Raises an error for a folder with figures of other jobs of the same names."""
        for job in jobs:
            found = self.found.get(job.name)
            if found is not None and found.state == "done" and not self.is_done(job):
                words = [*self.words(job), *found.words]
                differ = [each for each in words if words.count(each) == 1]
                said = f"{job.name} is done otherwise, see {' '.join(differ)}"
                raise ValueError(f"{self.folder}: {said}; choose another --out")

    def note(self, job: Job, done: Done) -> None:
        """Writes the outcome of a job."""
        self.found[job.name] = replace(done, words=self.words(job))
        said = {name: asdict(each) for name, each in self.found.items()}
        write_text(self.file, json.dumps(said, indent=1) + "\n")


def _read_done(each: dict[str, Any]) -> Done:
    done = Done(**each)
    return replace(done, words=tuple(done.words))


def carry_out(
    parts: Sequence[Part],
    journal: Journal,
    deadline: float,
    launch: Launch = Process,
    tell: Callable[[str], Any] = print,
    after: Callable[[], Any] = lambda: None,
) -> None:
    """Does all jobs that are not done yet, part after part, until the time is over.

    A job that fails is reported, and the others go on.
    """
    for part in parts:
        waiting = [job for job in part.jobs if not journal.is_done(job)]
        running: list[tuple[Job, Running, float]] = []
        try:
            while waiting or running:
                now = time.monotonic()
                while waiting and len(running) < part.at_once and now < deadline:
                    job = waiting.pop(0)
                    tell(f"{part.name}: {job.name}")
                    begun = time.monotonic()
                    running.append((job, launch(job, journal.log(job)), begun))
                if not running:
                    return
                if time.monotonic() >= deadline:
                    for _, process, _ in running:  # all at once: each may take a while to end
                        process.interrupt()
                ended = [_look_at(part, each, journal, deadline) for each in running]
                for (job, *_), done in zip(running, ended, strict=True):
                    if done is not None:
                        journal.note(job, done)
                        tell(f"{part.name}: {job.name} {done.state} after {done.seconds:.0f} s")
                        after()
                running = [e for e, done in zip(running, ended, strict=True) if done is None]
                if running:
                    time.sleep(0.2)
        finally:
            for _, process, _ in running:
                process.interrupt()
            for _, process, _ in running:
                process.stop()


def _look_at(
    part: Part, running: tuple[Job, Running, float], journal: Journal, deadline: float
) -> Done | None:
    """The outcome of a job that was started; None while it runs."""
    job, process, start = running
    seconds = time.monotonic() - start
    status = process.poll()
    if status is None:
        if seconds < (part.seconds or seconds + 1) and time.monotonic() < deadline:
            return None
        process.stop()
        return Done("stopped", seconds, "its time was over")
    if status:
        return Done("failed", seconds, last_line(journal.log(job))[:LONGEST] or f"status {status}")
    return Done("done", seconds)
