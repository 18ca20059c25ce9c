"""Runs on a cluster, as a job array of submitit, https://github.com/facebookincubator/submitit.

A run that times out or is preempted is requeued. The same command then resumes from its last
checkpoint.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from latentheads.experiments.cli.errors import interrupted_by_signals
from latentheads.experiments.cli.jobs import (
    POLL_SECONDS,
    RUN_COMMAND,
    ProgressTable,
    RunJob,
    describe_failure,
    open_command,
    raise_failures,
)
from latentheads.packages import import_optional

MAX_TIMEOUTS = 100
"""How often a run is requeued after a timeout."""

IGNORED_SIGNALS = (signal.SIGTERM, signal.SIGUSR2)
"""Signals that Slurm sends to all processes at a timeout or preemption."""

TRACEBACK_RULE = "\n" + 22 * "-" + "\n"
"""The line that submitit writes before and after a traceback."""

WEEK_MINUTES = 7 * 24 * 60
"""Default minutes of a run on the local machine."""


class ClusterRun:
    """A run as it is started on a node of the cluster."""

    def __init__(self, job: RunJob, program: Sequence[str] = RUN_COMMAND) -> None:
        self.job, self.program = job, program

    def __call__(self) -> int:
        """Runs it; returns its exit status."""
        with open_command(self.job, self.program) as (command, log):
            completed = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
                preexec_fn=_ignore_signals,
            )
        return completed.returncode

    def checkpoint(self) -> Any:
        """The job to requeue: the same run, which resumes from its checkpoint."""
        from submitit.helpers import DelayedSubmission

        arguments = [word for word in self.job.words if not word.startswith("--overwrite")]
        return DelayedSubmission(ClusterRun(replace(self.job, words=arguments), self.program))


def _ignore_signals() -> None:
    """Makes a run ignore the signals: submitit requeues it and ends it.

    If it ended by itself, submitit would regard it as failed.
    """
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def run_on_cluster(
    runs: Sequence[ClusterRun],
    launcher: str,
    parallel: int,
    options: Mapping[str, Any],
    folder: Path,
) -> None:
    """Submits all runs as one job array, and waits for them.

    Args:
        runs: The runs.
        launcher: slurm; or local, which starts processes on this machine.
        parallel: Most parallel runs.
        options: Parameters of submitit, such as ``slurm_partition``.
        folder: The folder of submitit's files and logs.

    Raises:
        ValueError: submitit is not installed, an option is invalid, the timeout for Slurm is
            missing, or Slurm rejects the runs.
        UnfinishedError: Some runs failed; the message has the last log line of each.
    """
    executor = _make_executor(launcher, parallel, options, folder)
    with _naming_launcher(launcher), executor.batch():
        waiting = {executor.submit(run): run.job for run in runs}
    table, failures = ProgressTable(len(runs)), []
    try:
        with interrupted_by_signals():
            while waiting:
                time.sleep(POLL_SECONDS)
                for submitted in [submitted for submitted in waiting if submitted.done()]:
                    job = waiting.pop(submitted)
                    failure = _describe_failure(submitted, job)
                    failures += [failure] if failure else []
                    table.end(failure or f"{job.name}: done")
                table.show(list(waiting.values()))
    finally:  # cancel the others: the same command submits them again
        for submitted in waiting:
            submitted.cancel(check=False)  # it may have just ended
    raise_failures(failures, len(runs))


def _make_executor(launcher: str, parallel: int, options: Mapping[str, Any], folder: Path) -> Any:
    submitit = import_optional("submitit")
    with _naming_launcher(launcher):
        if launcher == "slurm":
            limits = {"slurm_max_num_timeout": MAX_TIMEOUTS}
            own_options = {"slurm_array_parallelism": parallel}
            _check_timeout(options)
        else:
            limits, own_options = {}, {"timeout_min": WEEK_MINUTES}
        executor = submitit.AutoExecutor(folder=folder, cluster=launcher, **limits)
        executor.update_parameters(**{"name": "latentheads", **own_options, **options})
    return executor


def _check_timeout(options: Mapping[str, Any]) -> None:
    """Checks that a timeout is given: the default of submitit is five minutes."""
    if not {"timeout_min", "slurm_timeout_min", "slurm_time"} & options.keys():
        example = "the minutes that a run may take on a node, as '{timeout_min: 600}'"
        raise ValueError(f"launcher_options must contain timeout_min, {example}")


@contextmanager
def _naming_launcher(launcher: str) -> Iterator[None]:
    """Adds the launcher to errors of submitit and the cluster."""
    try:
        yield
    except (AssertionError, NameError, RuntimeError, TypeError, ValueError) as reason:
        raise ValueError(f"launcher {launcher}: {' '.join(str(reason).split())}") from reason


def _describe_failure(submitted: Any, job: RunJob) -> str:
    """Describes why a run has failed; empty if it has not."""
    error = submitted.exception()
    if error is None:
        return describe_failure(job, submitted.result())
    return f"{job.name} was not run to its end: {_error_message(error) or repr(error)}"


def _error_message(error: BaseException) -> str:
    """The message of submitit: the last line of the traceback, or that there is no result."""
    from submitit.core.utils import FailedJobError

    has_traceback = isinstance(error, FailedJobError)
    message = str(error).rpartition(TRACEBACK_RULE)[0] if has_traceback else str(error)
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return " ".join(lines[-1:] if has_traceback else lines[:2])
