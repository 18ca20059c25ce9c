"""Runs on a cluster: a real one of this machine, and Slurm's stand-in of submitit itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from submitit.core import submission
from submitit.core.core import Job as Handed
from submitit.core.utils import FailedJobError, UncompletedJobError
from submitit.slurm.test_slurm import mocked_slurm

from latentheads.errors import UnfinishedError
from latentheads.experiments.cli import cluster
from latentheads.experiments.cli.cluster import ClusterRun, run_on_cluster
from latentheads.experiments.cli.jobs import LOG_FILE
from tests.experiments.cli.stand_in import PROGRAM, make


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "POLL_SECONDS", 0.05)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_a_cluster_of_this_machine_runs_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [ClusterRun(job, PROGRAM) for job in make(tmp_path, [], ["--status", "2"])]
    said = "1 of 2 runs failed: run-1 ended with status 2: last words"
    with pytest.raises(UnfinishedError, match=said):
        run_on_cluster(runs, "local", 1, {"timeout_min": 3}, tmp_path / "nodes")
    assert (tmp_path / "run-0" / LOG_FILE).read_text().endswith("first words\nlast words\n\n")
    assert "run-0: done" in capsys.readouterr().out


def test_a_node_on_which_a_run_cannot_be_started_says_why(tmp_path: Path) -> None:
    runs = [ClusterRun(job, ["/nowhere/python"]) for job in make(tmp_path, [])]
    said = r"run-0 was not run to its end: FileNotFoundError: \[Errno 2\] .*: '/nowhere/python'$"
    with pytest.raises(UnfinishedError, match=said):
        run_on_cluster(runs, "local", 1, {}, tmp_path / "nodes")


def test_a_run_of_which_nothing_came_says_how_it_ended(tmp_path: Path) -> None:
    """Also where its log tells of a trace."""
    lines = ["Job 12 (task: 0) with path /a", "has not produced any output (state: TIMEOUT)"]
    trouble = UncompletedJobError("\n".join([*lines, "Error stream produced:", "-" * 40, "trace"]))
    handed = SimpleNamespace(exception=lambda: trouble)
    (job,) = make(tmp_path, [])
    said = f"run-0 was not run to its end: {' '.join(lines)}"
    assert cluster._describe_failure(handed, job) == said


def test_slurm_is_asked_for_an_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [ClusterRun(job, PROGRAM) for job in make(tmp_path, [], [], [])]
    options = {"slurm_partition": "gpu", "timeout_min": 7, "gpus_per_node": 1}
    with mocked_slurm() as slurm:
        waits = 0

        def run_one(_: float) -> None:
            nonlocal waits
            with slurm.job_context(f"12_{waits}"):
                submission.process_job(tmp_path / "nodes")
            waits += 1

        monkeypatch.setattr(cluster.time, "sleep", run_one)
        run_on_cluster(runs, "slurm", 2, options, tmp_path / "nodes")
    assert waits == 3
    assert all((run.job.folder / LOG_FILE).exists() for run in runs)
    asked = Handed(tmp_path / "nodes", job_id="12").paths.submission_file.read_text().splitlines()
    for line in ("--array=0-2%2", "--partition=gpu", "--time=7", "--gpus-per-node=1"):
        assert f"#SBATCH {line}" in asked


def test_what_slurm_refuses_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise FailedJobError("sbatch: error: invalid partition: gpu\nsbatch: error: Batch job\n")

    runs = [ClusterRun(job, PROGRAM) for job in make(tmp_path, [], [])]
    said = r"^launcher slurm: sbatch: error: invalid partition: gpu sbatch: error: Batch job$"
    with mocked_slurm(), monkeypatch.context() as patch:
        patch.setattr("submitit.core.utils.CommandFunction", lambda *_, **__: refuse)
        with pytest.raises(ValueError, match=said):
            run_on_cluster(runs, "slurm", 2, {"timeout_min": 7}, tmp_path / "nodes")


def test_who_stops_it_leaves_no_run_in_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the cluster does not know the first one any more."""

    def stop(_: float) -> NoReturn:
        raise KeyboardInterrupt

    def refuse(words: Sequence[str], **_: Any) -> NoReturn:
        raise subprocess.CalledProcessError(1, words)

    runs, cancelled = [ClusterRun(job, PROGRAM) for job in make(tmp_path, [], [])], []
    with mocked_slurm(), monkeypatch.context() as patch:
        patch.setattr(cluster.time, "sleep", stop)
        patch.setattr(subprocess, "check_call", refuse)
        patch.setattr(subprocess, "call", lambda words, **_: cancelled.append(words))
        with pytest.raises(KeyboardInterrupt):
            run_on_cluster(runs, "slurm", 2, {"slurm_time": 7}, tmp_path / "nodes")
    assert cancelled == [["scancel", "12_0"], ["scancel", "12_1"]]


def test_what_is_put_back_into_the_queue_is_the_same_again(tmp_path: Path) -> None:
    run = ClusterRun(*make(tmp_path, ["--overwrite=true"]), PROGRAM)
    again = run.checkpoint()
    assert again.function.job.words == [], "it goes on with what there is"
    assert again.result() == 0
    assert (tmp_path / "run-0" / LOG_FILE).exists()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR2"])
def test_a_signal_that_submitit_answers_does_not_end_a_run(name: str, tmp_path: Path) -> None:
    """Slurm sends it to both, and a run that has ended is not put back into the queue."""
    sends = f"import os, signal; os.kill(os.getpid(), signal.{name})"
    (job,) = make(tmp_path, [])
    assert ClusterRun(job, [sys.executable, "-S", "-c", sends])() == 0


@pytest.mark.parametrize(
    ("launcher", "options", "said"),
    [
        ("local", {"slurm_partitoin": "gpu"}, "launcher local: .*slurm_partitoin"),
        ("local", {"mem_gb": "8GB"}, '^launcher local: Parameter "mem_gb" expected type'),
        ("local", {"nodes": 2}, "^launcher local: LocalExecutor can use only one node"),
        ("slurm", {"slurm_mem": "8GB"}, "^launcher slurm: launcher_options must contain timeout_m"),
    ],
)
def test_an_option_that_is_none_is_named(
    launcher: str, options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with mocked_slurm(), pytest.raises(ValueError, match=said):
        run_on_cluster([], launcher, 1, options, tmp_path)


def test_on_this_machine_a_run_has_its_time_and_a_name_of_ones_own(tmp_path: Path) -> None:
    """submitit itself would put it back after two minutes, and give it up soon."""
    executor = cluster._make_executor("local", 1, {"name": "mine"}, tmp_path)
    assert executor.parameters["timeout_min"] == cluster.WEEK_MINUTES
    assert executor.parameters["name"] == "mine"
    brief = cluster._make_executor("local", 1, {"timeout_min": 3}, tmp_path)
    assert brief.parameters["timeout_min"] == 3


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ValueError, match=r"^launcher needs submitit: pip .*latentheads\[slurm\]"):
        run_on_cluster([], "slurm", 1, {}, tmp_path)
