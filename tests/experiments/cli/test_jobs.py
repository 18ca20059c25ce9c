"""Many runs at once, with stand-ins of milliseconds for the runs."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from latentheads.errors import UnfinishedError
from latentheads.experiments.cli import jobs
from latentheads.experiments.cli.errors import interrupted_by_signals
from latentheads.experiments.cli.jobs import (
    LOG_FILE,
    RunJob,
    make_slots,
    open_command,
    parse_shard,
    run_jobs,
)
from tests.experiments.cli.stand_in import PROGRAM, make
from tests.experiments.processes import heeded


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(jobs, "GRACE_SECONDS", 0.01)


def test_no_more_run_at_once_than_there_are_places(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make(tmp_path, *[["--wait", "0.5"]] * 5)
    run_jobs(made, [{"OMP_NUM_THREADS": "3"}] * 2, PROGRAM)
    seen = [int((job.folder / "seen").read_text()) for job in made]
    assert max(seen) == 2
    for number, job in enumerate(made):
        assert (job.folder / "configuration").read_text() == f"seed: {number}\n"
        assert (job.folder / "threads").read_text() == "3"
        said = (job.folder / LOG_FILE).read_text()
        assert re.fullmatch(r"begun 20.*\nfirst words\nlast words\n\n", said)
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if line.endswith("started")] == [
        f"run-{n}: started" for n in range(5)
    ]
    assert re.fullmatch(r"\[5/5\] run-\d: done in \d+ s", said[-1])


def test_the_command_of_a_run_leaves_no_file_open(tmp_path: Path) -> None:
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    (job,) = make(tmp_path, [])
    with open_command(job, []) as (words, _):
        assert Path(words[1]).read_text() == "seed: 0\n"
    again = os.open(os.devnull, os.O_RDONLY)
    os.close(again)
    assert again == free


def test_one_that_fails_keeps_no_other_from_running(tmp_path: Path) -> None:
    made = make(tmp_path, [], ["--status", "2"], [])
    with pytest.raises(
        UnfinishedError, match="1 of 3 runs failed: run-1 ended with status 2: last words"
    ):
        run_jobs(made, [{"OMP_NUM_THREADS": "1"}], PROGRAM)
    assert all((job.folder / "seen").exists() for job in made)


def test_one_that_is_killed_is_named(tmp_path: Path) -> None:
    killing = [sys.executable, "-S", "-c", "import os; os.kill(os.getpid(), 9)"]
    with pytest.raises(UnfinishedError, match=r"run-0 ended with SIGKILL: begun"):
        run_jobs(make(tmp_path, []), [{}], killing)


def test_ctrl_c_ends_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pressed twice, too."""
    made, pressed = make(tmp_path, *[["--wait", "60"]] * 3), 0
    monkeypatch.setattr(jobs, "GRACE_SECONDS", 2.0)

    def stop_when_they_run(_: float) -> None:
        nonlocal pressed
        time.sleep(0.01)
        if pressed < 2 and all((job.folder / "configuration").exists() for job in made[:2]):
            pressed += 1
            raise KeyboardInterrupt

    clock = type("Clock", (), {"sleep": staticmethod(stop_when_they_run)})
    clock.monotonic = staticmethod(time.monotonic)
    monkeypatch.setattr(jobs, "time", clock)
    with pytest.raises(KeyboardInterrupt):
        run_jobs(made, [{"OMP_NUM_THREADS": "1"}] * 2, PROGRAM)
    assert "KeyboardInterrupt" in (made[0].folder / LOG_FILE).read_text()
    assert "last words" not in (made[1].folder / LOG_FILE).read_text()
    assert not made[2].folder.exists()


def test_a_terminal_has_a_table_that_changes(tmp_path: Path) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    (tmp_path / LOG_FILE).write_text("step 1 of 9\n")
    shown = Terminal()
    table = jobs.ProgressTable(2, shown)
    running = [RunJob("one", tmp_path, "")]
    table.show(running)
    table.end("one: done in 3 s")
    assert shown.getvalue() == "  one: step 1 of 9\n\x1b[1F\x1b[J[1/2] one: done in 3 s\n"


def test_a_file_has_a_line_a_run_each_minute(tmp_path: Path) -> None:
    (tmp_path / LOG_FILE).write_text("step 1 of 9\n")
    now, shown = [0.0], io.StringIO()
    table = jobs.ProgressTable(1, shown, lambda: now[0])
    running = [RunJob("one", tmp_path, "")]
    for now[0] in (1.0, 59.0, 61.0, 62.0, 125.0):
        table.show(running)
    assert shown.getvalue() == "  one: step 1 of 9\n" * 2


def test_gpus_take_turns_and_threads_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(jobs, "_count_cores", lambda: 7)
    assert make_slots(3, "") == [{"OMP_NUM_THREADS": "2"}] * 3
    both = make_slots(1, "0,2")
    assert [place["CUDA_VISIBLE_DEVICES"] for place in both] == ["0", "2"]
    assert [place["CUDA_VISIBLE_DEVICES"] for place in make_slots(3, "0,2")] == ["0", "2", "0"]
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert make_slots(3, "") == [{"OMP_NUM_THREADS": "5"}] * 3


@pytest.mark.parametrize("word", ["0/2", "3/2", "2", "a/b", "1/", "-1/2"])
def test_a_shard_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="shard must be I/N with I from 1 to N, as 1/4"):
        parse_shard(word)


@pytest.mark.parametrize(
    ("number", "devices", "said"), [(0, "", "at least 1, got 0"), (1, "gpu", "numbers of GPUs")]
)
def test_places_that_are_none_are_refused(number: int, devices: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_slots(number, devices)


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_work_as_ctrl_c_does(told: signal.Signals) -> None:
    with heeded(told):
        before = signal.getsignal(told)
        with pytest.raises(KeyboardInterrupt), interrupted_by_signals():
            os.kill(os.getpid(), told)
        assert signal.getsignal(told) is before


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
        run_jobs(made, [{"OMP_NUM_THREADS": "1"}], PROGRAM)
    assert (tmp_path / "run-0" / LOG_FILE).read_text().count("first words") == 2


def test_more_runs_than_a_terminal_has_lines_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs.shutil, "get_terminal_size", lambda _: (9, 5))
    shown = io.StringIO()
    table = jobs.ProgressTable(7, shown)
    table.live = True
    table.show([RunJob(f"run-{n}", tmp_path, "") for n in range(7)])
    assert shown.getvalue() == "  run-0:\n  run-1:\n  and 5 \n"


def test_a_signal_without_a_name_has_its_number(tmp_path: Path) -> None:
    job = RunJob("one", tmp_path, "")
    assert jobs.describe_failure(job, -40) == "one ended with signal 40: "
