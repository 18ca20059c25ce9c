"""The attack itself: what it counts as a failure, and its quick part.

``make attack`` does the whole.
"""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import torch
from safetensors.torch import load_file

from latentheads.training import checkpoints
from tests.attack.__main__ import (
    KINDS,
    Verdict,
    _read_verdicts,
    attempt,
    choose_quick,
    choose_trials,
    main,
    table,
)
from tests.attack.damage import FORGED
from tests.attack.grounds import GRAMMAR, PLANS, _write_text
from tests.attack.process import Ended, Limits, Moment, start
from tests.attack.trial import Arena, Fault, Ground, Trial, TrialError, check
from tests.experiments.programs import FORKS, SHORT, TINY, succeed

LINE = "step 1,024 of 3,000, 15.7 steps/s, about 2 min left; bound -5.6 nats/token\n"
BAR = "  0%|          | 0/9 [00:00<?, ?step/s]\r 11%|#  | 1/9 [00:01]\n"


def ended(status: int = 0, error: str = "", late: bool = False) -> Ended:
    return Ended("run", status, "", error, 1.0, 0, late, 0)


@pytest.mark.parametrize(
    "end",
    [
        ended(),
        ended(0, "run.py: not in the vocabulary: x\n"),
        ended(2, "run.py: error: width must be even, got 7\n"),
        ended(1, f"{BAR}run.py: error: x\n"),
        ended(1, f"{LINE}run.py: error: x\n"),
        ended(0, "note: 6 of 6 gated heads stay open, not 3\n"),
    ],
)
def test_success_and_one_line_pass(end: Ended) -> None:
    assert check(end) is end


@pytest.mark.parametrize(
    ("end", "fault"),
    [
        (ended(1, "Traceback (most recent call last):\nValueError: x\n"), "traceback"),
        (ended(0, "Traceback (most recent call last):\nin a thread\n"), "traceback"),
        (ended(-signal.SIGSEGV), "traceback"),
        (ended(-signal.SIGXCPU, late=True), "hang"),
        (ended(2), "other"),
        (ended(2, "run.py: error: one\nrun.py: error: two\n"), "other"),
        (ended(2, "error: x\n"), "other"),
        (ended(0, "UserWarning: x\n"), "other"),
        (ended(3, "run.py: error: x\n"), "other"),
    ],
)
def test_everything_else_fails(end: Ended, fault: Fault) -> None:
    with pytest.raises(TrialError) as caught:
        check(end)
    assert caught.value.fault == fault


def test_a_status_may_be_asked_for() -> None:
    assert check(ended(-signal.SIGKILL), -signal.SIGKILL).status == -9
    with pytest.raises(TrialError, match="ended with status 2"):
        check(ended(2, "run.py: error: x\n"), 0)


PROGRAM = """
import sys, time
def main(words):
    if words[0] == "fail": raise KeyError(words[0])
    if words[0] == "sleep": time.sleep(60)
    if words[0] == "mistake": sys.exit("victim.py: error: " + sys.stdin.read())
    for name in words: open("made/" + name, "w").write(name)
    print("made", len(words))
"""


@pytest.fixture
def victim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A program to attack, where it is started."""
    (tmp_path / "victim.py").write_text(PROGRAM)
    (tmp_path / "made").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("victim", None)


@FORKS
def test_a_program_ends_as_it_does_by_itself(victim: Path) -> None:
    done = start("victim", "a", "b", folder=victim)
    assert (done.status, done.out, done.error, done.late) == (0, "made 2\n", "", False)
    done = start("victim", "mistake", folder=victim, text=b"what")
    assert (done.status, done.error) == (1, "victim.py: error: what\n")
    with pytest.raises(TrialError, match=r"^victim: KeyError: 'fail'$"):
        check(start("victim", "fail", folder=victim))
    with pytest.raises(TrialError, match=r"^victim did not end"):
        check(start("victim", "sleep", folder=victim, limits=Limits(sleep=0.1)))


@FORKS
def test_a_program_is_killed_at_an_act_on_files(victim: Path) -> None:
    made = Path("made")
    assert start("victim", "a", "b", "c", folder=victim, watched=made).acts == 3
    for path in (victim / "made").iterdir():
        path.unlink()
    moment = Moment(act=2)
    done = start("victim", "a", "b", "c", folder=victim, watched=made, moment=moment)
    assert (done.status, done.acts) == (-signal.SIGKILL, 2)
    assert [path.name for path in (victim / "made").iterdir()] == ["a"]


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    """Where every run has one file, which nobody trained."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "results.json").write_text("{}")
    return Arena(tmp_path, lambda top, name: Ground(tmp_path / "run", ()))


def test_the_seed_says_which_trials_and_what_they_do(arena: Arena) -> None:
    names = [
        [trial.name for trial in choose_trials(arena, ["damage"], 20, seed, "")]
        for seed in (3, 3, 4)
    ]
    assert names[0] == names[1] != names[2]
    assert len(set(names[0])) == 20
    one = choose_trials(arena, ["damage"], None, 0, names[0][0])
    assert [trial.name for trial in one] == names[0][:1]


def test_a_trial_is_the_same_whatever_was_tried_before(arena: Arena) -> None:
    drawn: list[float] = []
    trial = Trial("kills", "x", lambda arena, rng: drawn.append(rng.random()))
    for seed in (0, 0, 1):
        assert attempt(arena, trial, seed) == Verdict("kills", "x")
    assert drawn[0] == drawn[1] != drawn[2]


def test_an_unknown_name_is_refused(arena: Arena) -> None:
    with pytest.raises(ValueError, match="damage has no trial 'x'"):
        choose_quick(arena, {"damage": ["x"]})


def test_weights_that_no_run_would_write_are_forged(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    for name in ("with weights that are NaN", "with weights that are infinite"):
        checkpoints.save(path, {"model.w": torch.ones(3)}, {"step": 1})
        FORGED[name](path, Random(0))
        assert not load_file(path)["model.w"].isfinite().any()
        with pytest.raises(ValueError, match=r"model\.w"):
            checkpoints.load(path)


def test_the_table_counts_by_kind() -> None:
    faults = (None, "hang", None, "lost training")
    rows = [Verdict("kills", str(index), fault) for index, fault in enumerate(faults)]
    head, kills = (line.split() for line in table(rows).splitlines())
    assert head[:4] == ["kind", "tries", "passed", "tracebacks"]
    assert kills == ["kills", "4", "2", "0", "1", "1", "0"]


def test_a_verdict_that_was_cut_short_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "seed-0.jsonl"
    assert _read_verdicts(path) == {}
    path.write_text('{"kind": "kills", "name": "x", "fault": null, "said": ""}\n{"kind": "ki')
    assert _read_verdicts(path) == {("kills", "x"): Verdict("kills", "x")}


def test_the_runs_that_are_attacked_have_options_that_are_accepted(tmp_path: Path) -> None:
    """Else each trial would end with the same error, and attack nothing."""
    _write_text(tmp_path)
    lines = [plan if plan[0] == "--data=pairs" else (*GRAMMAR, *plan) for plan in PLANS.values()]
    for words in lines:
        succeed("run.py", *(word.format(text=tmp_path) for word in words), "--print_config")


@FORKS
@pytest.mark.usefixtures("as_the_programs_do")
def test_the_quick_part_finds_nothing(
    tiny_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On the run that other tests share; this process has loaded what the programs need."""
    half = Path(shutil.copytree(tiny_run, tmp_path / "half"))
    (half / "results.json").unlink()
    places = {"finished": tiny_run, "half": half}

    def make(top: Path, name: str) -> Ground:
        return Ground(places[name], (*TINY, *SHORT), seconds=0.5, acts=40)

    monkeypatch.setattr("tests.attack.__main__.open_arena", lambda top: Arena(top, make))
    monkeypatch.setattr("tests.attack.__main__.import_programs", lambda: None)
    status = main(["--quick", "--out", str(tmp_path / "out")])
    out, error = capsys.readouterr()
    assert (status, error) == (0, ""), out + error
    assert out.count("\n") == 2 + len(KINDS)
