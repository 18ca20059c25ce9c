"""The plan for a GPU in miniature: real parts of tiny size, done once, and the report of them."""

from __future__ import annotations

import fcntl
import io
import json
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from latentheads.experiments.studies.gpu import main
from latentheads.experiments.studies.machine import agreement, speed
from latentheads.experiments.studies.machine.jobs import Job, Journal
from latentheads.experiments.studies.machine.report import write_report
from tests.experiments.programs import assert_refused, status_of


def run_here(job: Job, log: Path, seconds: float) -> int:
    """Runs a job in this process, in float32 as a process of its own does."""
    before, message = torch.get_default_dtype(), io.StringIO()
    torch.set_default_dtype(torch.float32)
    program, *words = job.words
    try:
        with redirect_stdout(message), redirect_stderr(message):
            return status_of(import_module(program).main, *words)
    finally:
        torch.set_default_dtype(before)
        log.write_text(message.getvalue())


def refuse(job: Job, log: Path, seconds: float) -> Any:
    raise AssertionError(f"{job.name} is done")


def test_every_part_runs_in_miniature_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the suite, which this is in, and the benchmarks, which have tests of their own."""
    for measuring in (agreement, speed):
        few = {name: measuring.RECIPES[name] for name in ("transformer", "cascaded")}
        monkeypatch.setattr(measuring, "RECIPES", few)
    parts = ["agreement", "speed", "train"]
    words = ["--device=cpu", "--smoke", f"--out={tmp_path}", f"--parts={','.join(parts)}"]
    assert main(words, run_here) == 0, capsys.readouterr().out
    jobs = json.loads((tmp_path / "jobs.json").read_text())
    assert list(jobs) == parts
    assert {job["state"] for job in jobs.values()} == {"done"}
    report = (tmp_path / "report.md").read_text()
    for title in ("Jobs", "Agreement", "Speed", "Training"):
        assert f"\n## {title}" in report
    rows = json.loads((tmp_path / "agreement.json").read_text())["rows"]
    assert {row["precision"] for row in rows} == {"fp32", "bf16"}
    assert all(abs(row["off"]) < (1e-5 if row["precision"] == "fp32" else 0.03) for row in rows)
    assert any(row["off"] for row in rows)
    rows = json.loads((tmp_path / "speed.json").read_text())["rows"]
    assert not [row["why"] for row in rows if row["why"]]
    assert all(row["ms"] > 0 for row in rows)
    results = tmp_path / "runs/train/transformer-seed0/results.json"
    assert json.loads(results.read_text())["steps"] == 3
    assert "| train/transformer-seed0 | 3 |" in report
    assert main(words, refuse) == 0
    with pytest.raises(SystemExit):
        main([words[0], words[2], "--parts=suite"], refuse)
    stderr = capsys.readouterr().err
    assert "agreement is done otherwise, see --small; choose another --out" in stderr


def test_a_folder_that_another_process_writes_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--device=cpu", "--smoke", f"--out={tmp_path}", "--parts=suite"]
    (tmp_path / "jobs.json").write_text("{}")
    with (tmp_path / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(SystemExit, match="1"):
            main(words, refuse)
    stderr = capsys.readouterr().err
    assert stderr.count("\n") == 1
    assert "another process is writing it; choose another --out" in stderr
    assert str(tmp_path) in stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "jobs.json"]
    assert main(words, lambda job, log, seconds: 0) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--parts=suite,all"], "no part 'all': choose from suite, agreement, "),
        (["--device=cpu", "--parts=train,large"], "--parts train: it needs --data with a folder m"),
        (
            ["--device=cpu", "--parts=compiled", "--smoke"],
            "compiled: --smoke leaves it out",
        ),
    ],
)
def test_what_cannot_be_done_costs_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused("gpu.py", *words, says=message)
    assert not [*tmp_path.iterdir()]


def test_what_was_not_begun_stands_in_the_report(tmp_path: Path) -> None:
    """A job that fails gives the program status 1, and its last line a place in the table."""

    def fail(job: Job, log: Path, seconds: float) -> int:
        log.write_text("it began\nno | card\n")
        return 1

    words = ["--device=cpu", "--smoke", f"--out={tmp_path}", "--parts=suite,agreement"]
    assert main(words, fail) == 1
    report = (tmp_path / "report.md").read_text()
    assert "| suite | failed | 0 | no / card |" in report
    journal = Journal.open(tmp_path)
    text = write_report(journal, "cpu", ["suite", "later"]).read_text()
    assert "| later | not begun |  |  |" in text
