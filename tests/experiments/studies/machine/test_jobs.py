"""Jobs: one after another, within their time, done once."""

from __future__ import annotations

from pathlib import Path

import pytest

from latentheads.experiments.studies.machine import jobs
from latentheads.experiments.studies.machine.jobs import Done, Job, Journal, carry_out


class Clock:
    """Time that passes while a job runs."""

    def __init__(self) -> None:
        self.now = 5.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake_clock = Clock()
    monkeypatch.setattr(jobs, "time", fake_clock)
    return fake_clock


def work(
    journal: Journal, clock: Clock, script: dict[str, int | None], deadline: float, **own: float
) -> list[str]:
    """Carries out jobs that last 3 s, or for ever where their status is None; the started ones."""
    started: list[str] = []

    def launch(job: Job, log: Path, seconds: float) -> int | None:
        log.write_text(f"I am {job.name}\n\n")
        started.append(job.name)
        clock.now += 3.0 if script[job.name] is not None else seconds
        return script[job.name]

    made = [Job(name, ("nothing",), **own) for name in script]
    carry_out(made, journal, deadline, launch, lambda message: None)
    return started


def test_a_failure_stops_nobody_and_is_tried_again(tmp_path: Path, clock: Clock) -> None:
    script: dict[str, int | None] = {"a": 0, "b": 7, "c": 0}
    assert work(Journal.open(tmp_path), clock, script, 1000.0) == ["a", "b", "c"]
    actual = Journal.open(tmp_path).found
    states = {name: done.state for name, done in actual.items()}
    assert states == {"a": "done", "b": "failed", "c": "done"}
    assert (actual["b"].why, actual["a"].seconds) == ("I am b", 3.0)
    assert work(Journal.open(tmp_path), clock, dict.fromkeys(script, 0), 1000.0) == ["b"]


def test_a_job_that_takes_too_long_is_stopped_and_tried_again(tmp_path: Path, clock: Clock) -> None:
    """By its own time, or by that of all, after which nothing is begun."""
    journal = Journal.open(tmp_path)
    assert work(journal, clock, {"slow": None, "quick": 0}, 1000.0, seconds=1.0) == [
        "slow",
        "quick",
    ]
    assert journal.found["slow"].state == "stopped"
    assert journal.found["slow"].seconds == pytest.approx(1.0)
    assert work(journal, clock, {"slow": None, "other": 0}, clock.now + 9.0) == ["slow"]
    assert journal.found["slow"].seconds == pytest.approx(9.0)


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
