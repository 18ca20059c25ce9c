"""Jobs: one after another or side by side, within their time, done once."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from latentheads.experiments.cli.jobs import interrupted_by_signals
from latentheads.experiments.studies.machine import jobs
from latentheads.experiments.studies.machine.jobs import (
    Done,
    Job,
    Journal,
    Part,
    Process,
    carry_out,
)
from tests.experiments.processes import heeded


class Scripted:
    """A job that ends when it is looked at so often, or never."""

    def __init__(self, looks: int, status: int = 0) -> None:
        self.looks, self.status = looks, status
        self.interrupted = self.stopped = False

    def poll(self) -> int | None:
        self.looks -= 1
        return None if self.looks else self.status

    def interrupt(self) -> None:
        self.interrupted = True

    def stop(self) -> None:
        self.stopped = True


class Clock:
    """Time that passes while somebody waits."""

    def __init__(self) -> None:
        self.now = 5.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(jobs, "time", found)
    return found


def work(
    journal: Journal, script: dict[str, Scripted], deadline: float, **part: float
) -> tuple[list[str], int]:
    """Carries out one part; what was started, and how many ran side by side at most."""
    started: list[str] = []
    most = 0

    def launch(job: Job, log: Path) -> Scripted:
        nonlocal most
        log.write_text(f"I am {job.name}\n\n")
        started.append(job.name)
        most = max(most, sum(script[name].looks > 0 for name in started))
        return script[job.name]

    made = Part("all", [Job(name, ("nothing",)) for name in script], **part)  # type: ignore[arg-type]
    carry_out([made], journal, deadline, launch, lambda said: None)
    return started, most


def test_jobs_run_side_by_side_and_a_failure_stops_nobody(tmp_path: Path) -> None:
    script = {"a": Scripted(3), "b": Scripted(1, 7), "c": Scripted(2), "d": Scripted(1)}
    journal, later = Journal.open(tmp_path), 1000.0
    assert work(journal, script, later, at_once=2) == (["a", "b", "c", "d"], 2)
    found = Journal.open(tmp_path).found
    assert {name: done.state for name, done in found.items()} == {
        **{"a": "done", "b": "failed", "c": "done", "d": "done"}
    }
    assert found["b"].why == "I am b"
    again = {name: Scripted(1) for name in script}
    assert work(Journal.open(tmp_path), again, later)[0] == ["b"]
    assert not [each for each in script.values() if each.stopped]


def test_a_job_that_takes_too_long_is_stopped_and_tried_again(tmp_path: Path) -> None:
    script = {"slow": Scripted(-1), "quick": Scripted(1)}
    journal = Journal.open(tmp_path)
    assert work(journal, script, 1000.0, seconds=1.0)[0] == ["slow", "quick"]
    assert (script["slow"].stopped, journal.found["slow"].state) == (True, "stopped")
    assert journal.found["slow"].seconds == pytest.approx(1.0)
    assert journal.found["quick"].state == "done"
    assert not journal.is_done(Job("slow", ()))


def test_all_that_runs_is_told_to_end_before_the_first_is_waited_for(tmp_path: Path) -> None:
    other = Scripted(-1)

    class Slow(Scripted):
        def stop(self) -> None:
            assert other.interrupted
            super().stop()

    script = {"slow": Slow(-1), "other": other}
    journal = Journal.open(tmp_path)
    assert work(journal, script, 6.0, at_once=2)[0] == ["slow", "other"]
    assert {done.state for done in journal.found.values()} == {"stopped"}
    assert other.stopped


def test_nothing_is_begun_when_the_time_is_over(tmp_path: Path) -> None:
    assert work(Journal.open(tmp_path), {"a": Scripted(1)}, 5.0)[0] == []


def test_what_runs_is_stopped_when_something_goes_wrong(tmp_path: Path) -> None:
    running = Scripted(-1)
    part = Part("all", [Job("a", ("nothing",)), Job("b", ("nothing",))], at_once=2)

    def launch(job: Job, log: Path) -> Scripted:
        if job.name == "b":
            raise OSError("no more processes")
        return running

    with pytest.raises(OSError, match="no more processes"):
        carry_out([part], Journal.open(tmp_path), 9.0, launch, lambda said: None)
    assert running.stopped


def test_a_journal_of_others_is_refused(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    journal.note(Job("a", ()), Done("failed", 1.5, "why"))
    assert Journal.open(tmp_path).found == {"a": Done("failed", 1.5, "why")}
    for text in ("[]", '{"a": 3}', '{"a": {"state": "done"}}', "{"):
        journal.file.write_text(text)
        with pytest.raises(ValueError, match=r"jobs\.json cannot be used: "):
            Journal.open(tmp_path)


def test_what_is_done_is_done_in_the_same_words(tmp_path: Path) -> None:
    """Wherever the folder has been carried; what has failed may be told something else."""
    job = Job("a", ("run", "--steps=3", f"--out={tmp_path / 'here'}"))
    journal = Journal.open(tmp_path / "here")
    journal.note(job, Done("done", 1.0))
    journal.note(Job("b", ("run",)), Done("failed", 1.0))
    journal.folder.rename(tmp_path / "there")
    journal = Journal.open(tmp_path / "there")
    same = Job("a", ("run", "--steps=3", f"--out={tmp_path / 'there'}"))
    more = Job("a", ("run", "--steps=9", f"--out={tmp_path / 'there'}"))
    assert (journal.is_done(same), journal.is_done(more)) == (True, False)
    journal.refuse_others([same, Job("b", ("run", "--steps=9"))])
    with pytest.raises(ValueError, match=r"a is done otherwise, see --steps=9 --steps=3; choose"):
        journal.refuse_others([same, more])


def test_a_process_is_ended_as_by_ctrl_c(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ("timeit", "-n1", "-r1", "print('on', flush=True); import time; time.sleep(60)")
    running = Process(Job("sleep", words, threads=1), log)
    while "on" not in log.read_text():
        assert running.poll() is None
    running.stop()
    assert running.poll() not in (None, 0)
    assert "KeyboardInterrupt" in log.read_text()


@pytest.mark.parametrize("patience", [True, False])
@pytest.mark.parametrize("how", ["poll", "stop"])
def test_what_a_job_has_started_ends_with_it(
    how: str, patience: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the job itself has ended at once; and none is killed before it has."""
    sent: list[str] = []

    class Leader:
        pid = 7

        def poll(self) -> int:
            return 1

        def wait(self, timeout: float | None = None) -> None:
            sent.append("waited for")
            if timeout is not None and not patience:
                raise subprocess.TimeoutExpired("job", timeout)

    def send(group: int, number: int) -> None:
        sent.append(signal.Signals(number).name)
        if number == signal.SIGKILL and patience:
            raise ProcessLookupError

    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: Leader())
    monkeypatch.setattr(os, "killpg", send)
    running = Process(Job("a", ("nothing",)), tmp_path / "log")
    if how == "poll":
        assert [running.poll(), running.poll()] == [1, 1]
        assert sent == ["SIGKILL"]
    else:
        running.stop()
        assert sent == ["SIGINT", "waited for", "SIGKILL", "waited for"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_what_runs(number: signal.Signals, tmp_path: Path) -> None:
    """A second one does not disturb the end."""

    class Told(Scripted):
        def poll(self) -> None:
            signal.raise_signal(number)

        def stop(self) -> None:
            signal.raise_signal(number)
            super().stop()

    running = Told(-1)
    with heeded(number):
        before = signal.getsignal(number)
        with pytest.raises(KeyboardInterrupt), interrupted_by_signals():
            work(Journal.open(tmp_path), {"a": running}, 1000.0)
        assert signal.getsignal(number) == before
    assert running.stopped
