"""Many runs at once, with stand-ins of milliseconds for the runs, here and on Slurm's stand-in."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from submitit.core import submission
from submitit.core.core import Job as SubmittedJob
from submitit.core.utils import FailedJobError
from submitit.slurm.test_slurm import mocked_slurm

from latentheads.errors import UnfinishedError
from latentheads.experiments.cli.errors import interrupted_by_signals
from latentheads.experiments.comparison import jobs
from latentheads.experiments.comparison.jobs import (
    LOG_FILE,
    RunJob,
    make_slots,
    run_jobs,
    run_on_slurm,
)
from latentheads.files import lock_folder
from tests.experiments.comparison.stand_in import STAND_IN, make
from tests.experiments.processes import ended, fork_off, heeded


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(jobs, "GRACE_SECONDS", 0.01)


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_no_more_run_at_once_than_there_are_places(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make(tmp_path, *[["--wait", "0.5", "--meet", "2"]] * 5)
    run_jobs(made, [{"OMP_NUM_THREADS": "3"}] * 2)
    seen = [int((job.folder / "seen").read_text()) for job in made]
    assert max(seen) == 2
    for number, job in enumerate(made):
        assert (job.folder / "configuration").read_text() == f"seed: {number}\n"
        assert (job.folder / "threads").read_text() == "3"
        text = (job.folder / LOG_FILE).read_text()
        assert re.fullmatch(r"begun 20.*\nfirst words\nlast words\n\n", text)
    text = capsys.readouterr().out.splitlines()
    assert [line for line in text if line.endswith("started")] == [
        f"run-{n}: started" for n in range(5)
    ]
    assert re.fullmatch(r"\[5/5\] run-\d: done", text[-1])


def test_one_that_fails_keeps_no_other_from_running(tmp_path: Path) -> None:
    made = make(tmp_path, [], ["--status", "2"], [])
    with pytest.raises(
        UnfinishedError, match="1 of 3 runs failed: run-1 ended with status 2: last words"
    ):
        run_jobs(made, [{"OMP_NUM_THREADS": "1"}])
    assert all((job.folder / "seen").exists() for job in made)


def test_one_that_is_killed_is_named(tmp_path: Path) -> None:
    killing = [sys.executable, "-S", "-c", "import os; os.kill(os.getpid(), 9)"]
    with pytest.raises(UnfinishedError, match=r"run-0 ended with SIGKILL: begun"):
        run_jobs(make(tmp_path, [], program=killing), [{}])


def stop_when_begun(runs: Sequence[RunJob], monkeypatch: pytest.MonkeyPatch) -> None:
    """Presses Ctrl-C as soon as all of some runs have begun."""

    def sleep(_: float) -> None:
        time.sleep(0.01)
        if all((job.folder / "configuration").exists() for job in runs):
            raise KeyboardInterrupt

    clock = SimpleNamespace(sleep=sleep, monotonic=time.monotonic)
    monkeypatch.setattr(jobs, "time", clock)


def test_ctrl_c_ends_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = make(tmp_path, *[["--wait", "60"]] * 3)
    stop_when_begun(runs[:2], monkeypatch)
    monkeypatch.setattr(jobs, "GRACE_SECONDS", 1.0)
    statuses, end = list[int](), jobs._end

    def end_and_record(processes: Sequence[subprocess.Popen[bytes]]) -> None:
        end(processes)
        statuses.extend(process.returncode for process in processes)

    monkeypatch.setattr(jobs, "_end", end_and_record)
    with pytest.raises(KeyboardInterrupt):
        run_jobs(runs, [{"OMP_NUM_THREADS": "1"}] * 2)
    for job in runs[:2]:
        log = (job.folder / LOG_FILE).read_text()
        assert "first words" in log
        assert "last words" not in log
    assert statuses == [-signal.SIGTERM] * 2
    assert not runs[2].folder.exists()


LOCKING = """
import pathlib, sys, time
from latentheads.experiments.comparison.jobs import end_with_stdin
from latentheads.files import lock_folder
end_with_stdin()
folder = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
lock_folder(folder)
(folder / "locked").touch()
time.sleep(120)
"""


def test_runs_end_when_who_has_started_them_is_killed(tmp_path: Path) -> None:
    """Their folders are free, and the same command goes on."""
    runs = make(tmp_path, [], [], program=[sys.executable, "-c", LOCKING])
    process = fork_off(run_jobs, runs, [{"OMP_NUM_THREADS": "1"}] * 2, path=tmp_path / "said")
    _wait_for(lambda: all((job.folder / "locked").exists() for job in runs))
    process.kill()
    assert ended(process) == -signal.SIGKILL
    for job in runs:
        _wait_for(lambda folder=job.folder: _is_free(folder))


def _is_free(folder: Path) -> bool:
    with suppress(OSError):
        os.close(lock_folder(folder))
        return True
    return False


def _wait_for(condition: Callable[[], bool], seconds: int = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_ctrl_c_pressed_again_ends_a_run_that_ignores_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{STAND_IN}"
    (job,) = make(tmp_path, ["--wait", "60"], program=[sys.executable, "-S", "-c", deaf])
    stop_when_begun([job], monkeypatch)
    presses, ends = iter((KeyboardInterrupt, KeyboardInterrupt)), list[int]()
    wait = subprocess.Popen.wait

    def press_and_wait(self: subprocess.Popen[bytes], timeout: float) -> None:
        if press := next(presses, None):
            raise press
        ends.append(wait(self, 60))

    monkeypatch.setattr(subprocess.Popen, "wait", press_and_wait)
    with pytest.raises(KeyboardInterrupt):
        run_jobs([job], [{"OMP_NUM_THREADS": "1"}])
    assert ends == [-signal.SIGKILL]


def test_each_gpu_has_one_run_at_a_time(tmp_path: Path) -> None:
    waits = ("--wait", "0.2", "--meet")
    runs = make(tmp_path, *([*waits, number] for number in ("2", "2", "4", "4")))
    run_jobs(runs, make_slots(1, (3, 5)))
    assert max(int((job.folder / "seen").read_text()) for job in runs) == 2
    devices = [(job.folder / "device").read_text() for job in runs]
    assert devices[:2] == ["3", "5"]
    assert sorted(devices) == ["3", "3", "5", "5"]


def test_gpus_take_turns_and_threads_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(7))
    assert make_slots(3, ()) == [{"OMP_NUM_THREADS": "2"}] * 3
    both = make_slots(1, (0, 2))
    assert [index["CUDA_VISIBLE_DEVICES"] for index in both] == ["0", "2"]
    assert [slot["CUDA_VISIBLE_DEVICES"] for slot in make_slots(3, (0, 2))] == ["0", "2", "0"]
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert make_slots(3, ()) == [{"OMP_NUM_THREADS": "5"}] * 3


@pytest.mark.parametrize("signals", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_work_as_ctrl_c_does(signals: signal.Signals) -> None:
    with heeded(signals):
        before = signal.getsignal(signals)
        with pytest.raises(KeyboardInterrupt), interrupted_by_signals():
            os.kill(os.getpid(), signals)
        assert signal.getsignal(signals) is before


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupted_by_signals():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_was_said_before_stays_in_the_log(tmp_path: Path) -> None:
    made = make(tmp_path, [])
    for _ in range(2):
        run_jobs(made, [{"OMP_NUM_THREADS": "1"}])
    assert (tmp_path / "run-0" / LOG_FILE).read_text().count("first words") == 2


@contextmanager
def slurm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Slurm's stand-in of submitit: whoever waits runs the next job of the array."""
    with mocked_slurm() as mocked:
        numbers = count()

        def run_next(_: float) -> None:
            with mocked.job_context(f"12_{next(numbers)}"), suppress(OSError):
                submission.process_job(folder)

        monkeypatch.setattr("submitit.helpers.time.sleep", run_next)
        yield


@pytest.mark.usefixtures("one_thread")
def test_slurm_runs_an_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = make(tmp_path, [], [], ["--status", "2"])
    options = {"partition": "gpu", "time": 7, "gpus_per_node": 1}
    message = "^1 of 3 runs failed: run-2 ended with status 2: last words$"
    with slurm(tmp_path / "nodes", monkeypatch), pytest.raises(UnfinishedError, match=message):
        run_on_slurm(runs, 2, options, tmp_path / "nodes")
    assert capsys.readouterr().out.startswith("3 runs submitted, their nodes' logs are in /")
    for job in runs:
        assert (job.folder / LOG_FILE).read_text().endswith("first words\nlast words\n\n")
    paths = SubmittedJob(tmp_path / "nodes", job_id="12").paths
    lines = paths.submission_file.read_text().splitlines()
    assert {f"#SBATCH --{line}" for line in ("array=0-2%2", "partition=gpu", "time=7")} <= {*lines}


def test_a_run_that_a_node_cannot_start_is_named_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = make(tmp_path, [], [], program=["/nowhere/python"])
    message = rf"run-0 was not run to its end \(\w+\): see {tmp_path}/nodes/12_0_0_log.err"
    with slurm(tmp_path / "nodes", monkeypatch), pytest.raises(UnfinishedError, match=message):
        run_on_slurm(runs, 2, {"time": 7}, tmp_path / "nodes")


def test_ctrl_c_leaves_no_run_in_the_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the cluster has forgotten the first one."""

    def stop(_: float) -> NoReturn:
        raise KeyboardInterrupt

    def refuse(words: Sequence[str], **_: Any) -> NoReturn:
        raise subprocess.CalledProcessError(1, words)

    runs, cancelled = make(tmp_path, [], []), list[Sequence[str]]()
    with mocked_slurm(), monkeypatch.context() as patch:
        patch.setattr("submitit.helpers.time.sleep", stop)
        patch.setattr(subprocess, "check_call", refuse)
        patch.setattr(subprocess, "call", lambda words, **_: cancelled.append(words))
        with pytest.raises(KeyboardInterrupt):
            run_on_slurm(runs, 2, {"time": 7}, tmp_path / "nodes")
    assert cancelled == [["scancel", "12_0"], ["scancel", "12_1"]]


@pytest.mark.usefixtures("one_thread")
def test_what_is_put_back_into_the_queue_goes_on_with_what_there_is(tmp_path: Path) -> None:
    (job,) = make(tmp_path, ["--overwrite=true"])
    again = job.checkpoint()
    assert again.function == replace(job, words=[])
    assert again.result() == 0


@pytest.mark.parametrize("restarts", ["", "1"])
def test_a_run_whose_node_is_lost_goes_on_with_what_there_is(
    restarts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm starts the same job again, and counts that in a variable."""
    if restarts:
        monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)
    overwrites = "import sys; sys.exit('--overwrite=true' in sys.argv)"
    program = [sys.executable, "-S", "-c", overwrites]
    (job,) = make(tmp_path, ["--overwrite=true"], program=program)
    assert job() == (0 if restarts else 1)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR2"])
def test_a_signal_that_submitit_answers_does_not_end_a_run(name: str, tmp_path: Path) -> None:
    """Slurm sends it to both, and a run that has ended is not put back into the queue."""
    sends = f"import os, signal; os.kill(os.getpid(), signal.{name})"
    (job,) = make(tmp_path, [], program=[sys.executable, "-S", "-c", sends])
    assert job() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition": "gpu"}, r"^slurm\.time must be the minutes .*; got None$"),
        ({"time": "2-00:00:00"}, r"^slurm\.time must be the minutes .*; got '2-00:00:00'$"),
        ({"time": 7, "partitoin": "gpu"}, r"^slurm: Unavailable parameter.*\['partitoin'\]"),
    ],
)
def test_an_option_that_slurm_has_not_is_named(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with mocked_slurm(), pytest.raises(ValueError, match=message):
        run_on_slurm(make(tmp_path, []), 1, options, tmp_path)


def test_what_slurm_refuses_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> NoReturn:
        raise FailedJobError("sbatch: error: invalid partition: gpu\nsbatch: error: Batch job\n")

    message = r"^slurm: sbatch: error: invalid partition: gpu sbatch: error: Batch job$"
    with mocked_slurm(), monkeypatch.context() as patch:
        patch.setattr("submitit.core.utils.CommandFunction", lambda *_, **__: refuse)
        with pytest.raises(ValueError, match=message):
            run_on_slurm(make(tmp_path, [], []), 2, {"time": 7}, tmp_path / "nodes")


def test_without_slurm_or_submitit_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"^slurm: Could not detect .srun., are you indeed on"):
        run_on_slurm(make(tmp_path, []), 1, {"time": 7}, tmp_path)
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ValueError, match=r"^slurm needs submitit: pip .*latentheads\[slurm\]"):
        run_on_slurm(make(tmp_path, []), 1, {"time": 7}, tmp_path)
