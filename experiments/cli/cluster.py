"""Runs on a cluster: an array of jobs that submitit hands in, https://github.com/facebookincubator/submitit.

A run whose time is up, or whose node is taken away, is put back into the queue and goes on from its
last checkpoint: it is the same command that is started again.
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

from latentheads.experiments.cli.jobs import (
    POLL,
    PROGRAM,
    RunJob,
    Table,
    ended_by_signals,
    name_failure,
    open_command,
    refuse_failures,
)
from latentheads.packages import need_package

__all__ = ["ClusterRun", "run_on_cluster"]


ENDS = 100
"""How often a run is put back into the queue because its time was up."""

ANSWERED = (signal.SIGTERM, signal.SIGUSR2)
"""Signals that Slurm sends to all processes of a node whose time is up, or that is taken away."""

RULE = "\n" + 22 * "-" + "\n"
"""What submitit writes before a trace, and behind it."""

WEEK = 7 * 24 * 60
"""Minutes that a run has on this machine, if nothing else is asked for."""


class ClusterRun:
    """A run as a node of a cluster starts it.

    Args:
        job: The run.
        program: The words that start one.
    """

    def __init__(self, job: RunJob, program: Sequence[str] = PROGRAM) -> None:
        self.job, self.program = job, program

    def __call__(self) -> int:
        """Runs it, and gives its status."""
        with open_command(self.job, self.program) as (words, log):
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
                preexec_fn=_leave_to_submitit,
            )
        return done.returncode

    def checkpoint(self) -> Any:
        """What is put back into the queue: the same again, which goes on with what there is."""
        from submitit.helpers import DelayedSubmission

        words = [word for word in self.job.words if not word.startswith("--overwrite")]
        return DelayedSubmission(ClusterRun(replace(self.job, words=words), self.program))


def _leave_to_submitit() -> None:
    """Lets a run go on until submitit has put it back into the queue and ends it.

    One that ended by itself would have failed.
    """
    for each in ANSWERED:
        signal.signal(each, signal.SIG_IGN)


def run_on_cluster(
    runs: Sequence[ClusterRun],
    launcher: str,
    parallel: int,
    options: Mapping[str, Any],
    folder: Path,
) -> None:
    """Hands in all runs as one array, and waits for them.

    Args:
        runs: The runs.
        launcher: slurm; or local, which starts processes on this machine.
        parallel: Runs at once, at most.
        options: What the cluster is asked for, in submitit's words, as ``slurm_partition``.
        folder: Where submitit keeps what it hands in, and what the nodes say.

    Raises:
        ValueError: submitit is not installed, an option is not its own, Slurm is not told how long
            a run may take, or it refuses the runs.
        UnfinishedError: Some have failed; it names them, and the last words of each.
    """
    executor = _make_executor(launcher, parallel, options, folder)
    with _naming(launcher), executor.batch():
        waiting = {executor.submit(run): run.job for run in runs}
    table, failed = Table(len(runs)), []
    try:
        with ended_by_signals():
            while waiting:
                time.sleep(POLL)
                for handed in [handed for handed in waiting if handed.done()]:
                    job = waiting.pop(handed)
                    failure = _find_failure(handed, job)
                    failed += [failure] if failure else []
                    table.end(failure or f"{job.name}: done")
                table.show(list(waiting.values()))
    finally:  # the others are not waited for: the same command hands them in again
        for handed in waiting:
            handed.cancel(check=False)  # one that has just ended keeps no other in the queue
    refuse_failures(failed, len(runs))


def _make_executor(launcher: str, parallel: int, options: Mapping[str, Any], folder: Path) -> Any:
    submitit = need_package("submitit")
    with _naming(launcher):
        if launcher == "slurm":
            ends, own = {"slurm_max_num_timeout": ENDS}, {"slurm_array_parallelism": parallel}
            _refuse_five_minutes(options)
        else:
            ends, own = {}, {"timeout_min": WEEK}
        executor = submitit.AutoExecutor(folder=folder, cluster=launcher, **ends)
        executor.update_parameters(**{"name": "latentheads", **own, **options})
    return executor


def _refuse_five_minutes(options: Mapping[str, Any]) -> None:
    """Refuses runs whose time nobody has said: submitit would ask for five minutes each."""
    if not {"timeout_min", "slurm_timeout_min", "slurm_time"} & options.keys():
        said = "the minutes that a run may take on a node, as '{timeout_min: 600}'"
        raise ValueError(f"launcher_options must say timeout_min, {said}")


@contextmanager
def _naming(launcher: str) -> Iterator[None]:
    """Names what submitit, or the cluster itself, refuses."""
    try:
        yield
    except (AssertionError, NameError, RuntimeError, TypeError, ValueError) as reason:
        raise ValueError(f"launcher {launcher}: {' '.join(str(reason).split())}") from reason


def _find_failure(handed: Any, job: RunJob) -> str:
    """The reason why a run has failed; empty if it has not."""
    trouble = handed.exception()
    if trouble is None:
        return name_failure(job, handed.result())
    return f"{job.name} was not run to its end: {_heart_of(trouble) or repr(trouble)}"


def _heart_of(trouble: BaseException) -> str:
    """What submitit says of a run: the error behind its trace, or that nothing came of it."""
    from submitit.core.utils import FailedJobError

    traced = isinstance(trouble, FailedJobError)
    said = str(trouble).rpartition(RULE)[0] if traced else str(trouble)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return " ".join(lines[-1:] if traced else lines[:2])
