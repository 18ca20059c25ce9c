"""Jobs one after the other in the time that is left: each a process, done once."""

from __future__ import annotations

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
from typing import Any, Literal

from latentheads.files import last_line, lock_folder, read_json, write_text

ROOT = Path(__file__).resolve().parents[3]
GRACE = 15.0
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
        seconds: Most that it may take; 0: all that is left.
    """

    name: str
    words: tuple[str, ...]
    seconds: float = 0.0


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


Launch = Callable[[Job, Path, float], int | None]
"""Runs a job, whose output goes to a file, for some seconds at most; its exit status, or None."""


def run_process(job: Job, log: Path, seconds: float) -> int | None:
    """Runs a job in a process group of its own, which is ended with it.

    Returns:
        Its exit status; None where its time was over.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *job.words],
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,
        )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupts a process that still runs, waits a while, and kills what is left of its group."""
    if process.poll() is None:
        _send(process, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    _send(process, signal.SIGKILL)  # a leader that has ended may leave others, and they the GPU
    process.wait()


def _send(process: subprocess.Popen[bytes], signal_number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS may not signal what has ended
        os.killpg(process.pid, signal_number)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keeps a folder for this process; the system frees it when the process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = lock_folder(folder)
    except OSError as reason:
        raise OSError(f"{folder}: {reason.strerror}; choose another --out") from None
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
            self.found = {name: _read_done(each) for name, each in read_json(self.file).items()}
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
    jobs: Sequence[Job],
    journal: Journal,
    deadline: float,
    launch: Launch = run_process,
    tell: Callable[[str], Any] = print,
    after: Callable[[], Any] = lambda: None,
) -> None:
    """Does all jobs that are not done yet, one after the other, until the time is over.

    A job that fails is reported, and the others go on.
    """
    for job in (job for job in jobs if not journal.is_done(job)):
        begun = time.monotonic()
        if begun >= deadline:
            return
        tell(f"{job.name}: begun")
        left = deadline - begun
        status = launch(job, journal.log(job), min(job.seconds or left, left))
        done = _name_outcome(status, time.monotonic() - begun, journal.log(job))
        journal.note(job, done)
        tell(f"{job.name}: {done.state} after {done.seconds:.0f} s")
        after()


def _name_outcome(status: int | None, seconds: float, log: Path) -> Done:
    if status is None:
        return Done("stopped", seconds, "its time was over")
    if status:
        return Done("failed", seconds, last_line(log)[:LONGEST] or f"status {status}")
    return Done("done", seconds)
