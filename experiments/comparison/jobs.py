"""Parallel runs: a process for each, here, or on the nodes of a Slurm cluster by submitit.

A process runs the command that a user would type, ``run.py --config FILE --out FOLDER``. It locks
its folder, writes its output to ``log.txt`` there, and resumes from its last checkpoint when it is
started again. Here it ends when the process that has started it is gone, however that has ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from latentheads.console import print_message
from latentheads.errors import UnfinishedError
from latentheads.files import last_line, write_text
from latentheads.packages import import_optional

RUN_COMMAND = (sys.executable, "-m", "latentheads.experiments.run")
LOG_FILE, OPTIONS_FILE = "log.txt", ".options.yaml"

POLL_SECONDS = 0.2
GRACE_SECONDS = 2.0
"""Seconds that runs have to end by themselves, before SIGTERM and again before SIGKILL."""
MAX_TIMEOUTS = 100
"""How often Slurm may requeue a run whose time is over."""
ENDS_WITH_STDIN = "LATENTHEADS_ENDS_WITH_STDIN"
"""Set for a process whose standard input is a pipe that is closed when it should end."""
SLURM_SIGNALS = (signal.SIGTERM, signal.SIGUSR2)
"""What Slurm sends to all processes of a job when its time is over, or its node is needed."""


@dataclass(frozen=True)
class RunJob:
    """A run to be started: its name, its folder, its options as YAML, and further words."""

    name: str
    folder: Path
    configuration: str
    words: Sequence[str] = ()
    program: Sequence[str] = RUN_COMMAND

    def command(self) -> list[str]:
        """Writes its options to its folder; returns the words that start it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / OPTIONS_FILE, self.configuration)
        options = ["--config", str(self.folder / OPTIONS_FILE), "--out", str(self.folder)]
        return [*self.program, *options, *self.words]

    def start(
        self,
        environment: Mapping[str, str],
        prepare: Callable[[], None] | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> subprocess.Popen[bytes]:
        """Starts its process, whose output goes behind that of an earlier start."""
        command = self.command()
        with (self.folder / LOG_FILE).open("ab") as log:
            log.write(f"begun {datetime.now():%Y-%m-%d %H:%M:%S}\n".encode())
            log.flush()
            return subprocess.Popen(
                command,
                stdin=stdin,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
                preexec_fn=prepare,
            )

    def __call__(self) -> int:
        """Runs it on a node of a cluster; returns its exit status."""
        # Slurm itself requeues a run whose node is lost: nobody has called ``checkpoint`` then
        job = self.resuming() if "SLURM_RESTART_COUNT" in os.environ else self
        return job.start({}, _ignore_slurm_signals).wait()

    def checkpoint(self) -> Any:
        """The job that is put back into the queue: it goes on from the last checkpoint."""
        return import_optional("submitit").helpers.DelayedSubmission(self.resuming())

    def resuming(self) -> RunJob:
        """The job that goes on with what its folder has."""
        words = [word for word in self.words if not word.startswith("--overwrite")]
        return replace(self, words=words)

    def describe_failure(self, status: int) -> str:
        """Why it has failed, by the exit status of its process; empty if it has not."""
        signals = {-number.value: number.name for number in signal.Signals}
        reason = signals.get(status, f"status {status}")
        log = last_line(self.folder / LOG_FILE)
        return f"{self.name} ended with {reason}: {log}" if status else ""

    def describe_submitted(self, submitted: Any) -> str:
        """The same by the job of submitit, which a node may not have run to its end."""
        if submitted.exception() is None:
            return self.describe_failure(submitted.result())
        state, log = submitted.state, submitted.paths.stderr
        return f"{self.name} was not run to its end ({state}): see {log}"


def end_with_stdin() -> None:
    """Ends this process as SIGTERM does when its standard input is closed, if it should."""
    if os.environ.pop(ENDS_WITH_STDIN, ""):
        threading.Thread(target=_await_end, daemon=True).start()


def _await_end() -> None:
    os.read(0, 1)  # nothing is ever written: it returns when the pipe is closed
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _lifeline() -> Iterator[int]:
    """The end to read of a pipe that is closed when this process ends, killed too."""
    read, write = os.pipe()  # which no process inherits, but as its standard input
    try:
        yield read
    finally:
        os.close(read)
        os.close(write)


def _ignore_slurm_signals() -> None:
    """Leaves them to submitit, which requeues the run; if it ended itself, it would have failed."""
    for number in SLURM_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def make_slots(jobs: int, devices: Sequence[int]) -> list[dict[str, str]]:
    """The environment of each of the parallel processes: its threads, and its GPU.

    Args:
        jobs: Number of parallel runs, between which CPU threads are divided.
        devices: Numbers of GPUs; each has a run at least.
    """
    count = max(jobs, len(devices))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, (cores or 1) // count))
    gpus = [{"CUDA_VISIBLE_DEVICES": str(number)} for number in devices] or [{}]
    return [{"OMP_NUM_THREADS": threads, **gpus[index % len(gpus)]} for index in range(count)]


def run_jobs(jobs: Sequence[RunJob], slots: Sequence[Mapping[str, str]]) -> None:
    """Runs all jobs on this machine, one in each slot at a time; a failure stops no other.

    Raises:
        UnfinishedError: Some have failed; the message has the last line of each one's log.
    """
    waiting, running = [*jobs], dict[int, tuple[RunJob, subprocess.Popen[bytes]]]()

    def ended(lifeline: int) -> Iterator[tuple[RunJob, str]]:
        while waiting or running:
            for index in [index for index in range(len(slots)) if index not in running]:
                if waiting:
                    job = waiting.pop(0)
                    environment = {**slots[index], ENDS_WITH_STDIN: "1"}
                    running[index] = job, job.start(environment, stdin=lifeline)
                    print_message(f"{job.name}: started", sys.stdout)
            time.sleep(POLL_SECONDS)
            for index, (job, process) in [*running.items()]:
                if process.poll() is not None:
                    del running[index]
                    yield job, job.describe_failure(process.returncode)

    with _lifeline() as lifeline:
        try:
            _report(ended(lifeline), len(jobs))
        finally:
            _end([process for _, process in running.values()])


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ends processes; those that ignore the signal are killed, and resume from a checkpoint."""
    # 0: Ctrl-C of a terminal has reached them too; SIGINT a job in the background would ignore
    for number in (0, signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + GRACE_SECONDS
        for process in processes:
            process.send_signal(number)
        for process in processes:
            with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                process.wait(max(0.0, deadline - time.monotonic()))


def run_on_slurm(
    jobs: Sequence[RunJob], parallel: int, options: Mapping[str, Any], folder: Path
) -> None:
    """Submits all jobs as one array, and waits for them.

    Args:
        jobs: The jobs.
        parallel: Most parallel runs.
        options: Options of sbatch, as submitit's ``SlurmExecutor`` spells them.
        folder: The folder of submitit's files and logs.

    Raises:
        ValueError: submitit is missing, the time is no number of minutes, or Slurm rejects the
            jobs.
        UnfinishedError: Some have failed.
    """
    submitit = import_optional("submitit")
    # the default of submitit is five minutes, and it multiplies what it is given
    if not isinstance(time_limit := options.get("time"), int):
        raise ValueError(
            f"slurm.time must be the minutes that a run may take, as 600; got {time_limit!r}"
        )
    own = {"job_name": "latentheads", "array_parallelism": parallel}
    try:
        executor = submitit.SlurmExecutor(folder, max_num_timeout=MAX_TIMEOUTS)
        executor.update_parameters(**own | dict(options))
        with executor.batch():
            waiting = {executor.submit(job): job for job in jobs}
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"slurm: {' '.join(str(error).split())}") from error
    print_message(f"{len(jobs)} runs submitted, their nodes' logs are in {folder}", sys.stdout)
    completed = submitit.helpers.as_completed([*waiting], poll_frequency=POLL_SECONDS)
    ended = ((submitted, waiting.pop(submitted)) for submitted in completed)
    try:
        _report(((job, job.describe_submitted(submitted)) for submitted, job in ended), len(jobs))
    finally:  # the same command submits them again
        for submitted in waiting:
            submitted.cancel(check=False)  # it may have just ended


def _report(ended: Iterable[tuple[RunJob, str]], total: int) -> None:
    """Prints how each run has ended, and raises an error for those that failed."""
    failures = list[str]()
    for number, (job, failure) in enumerate(ended, 1):
        failures += [failure] if failure else []
        print_message(f"[{number}/{total}] {failure or f'{job.name}: done'}", sys.stdout)
    raise_failures(failures, total)


def raise_failures(failures: Sequence[str], total: int) -> None:
    """Raises an error if some runs have failed."""
    if failures:
        raise UnfinishedError(f"{len(failures)} of {total} runs failed: {'; '.join(failures)}")
