"""What uncertainty is worth, as the program tells it."""

from __future__ import annotations

import json
import re
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest

import latentheads as lh
from latentheads.batch import EOS
from latentheads.contrib.uncertainty import ConfidenceEstimator, Figure
from latentheads.contrib.uncertainty.scaling import MAX_TEMPERATURE, MIN_TEMPERATURE
from latentheads.experiments import uncertainty
from latentheads.experiments.reliability.results import EvaluationResults
from latentheads.experiments.reliability.systems import KINDS, System, group_runs, make_systems
from latentheads.experiments.reliability.tables import _note_temperature_limits, write_tables
from latentheads.experiments.reliability.texts import open_texts, read_others
from tests.experiments.programs import SHORT, TINY, assert_refused, inside, succeed
from tests.latentheads.contrib.page.runs import make_run, small_corpus
from tests.tiny import sizes
from tests.typechecking import unchecked

QUICK = ["--members=2", "--resamples=40", "--sentences=6", "--fitted=5"]


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two runs that differ in their seed; with logits as sites, which take noise."""
    out = tmp_path_factory.mktemp("seeds")
    trained = out / "tiny"
    words = [
        "--latents=logits",
        "--logits.prior=delta",
        "--guide=tied",
        "--decode.max_new_tokens=8",
    ]
    succeed("run.py", *words, *TINY, *SHORT, "--out", str(trained))
    for seed in (0, 1):
        run = Path(shutil.copytree(trained, out / f"tiny-seed{seed}"))
        text = (run / "config.yaml").read_text(encoding="utf-8")
        assert "\nseed: 0\n" in text
        text = text.replace("\nseed: 0\n", f"\nseed: {seed}\n")
        assert "\n  max_new_tokens: 8\n" in text
        text = text.replace("\n  max_new_tokens: 8\n", "\n  max_new_tokens: 2\n")
        (run / "config.yaml").write_text(text)
    return [str(out / f"tiny-seed{seed}") for seed in (0, 1)]


def test_systems_are_tried_and_told_of(seeds: list[str], tmp_path: Path) -> None:
    file, out = tmp_path / "verse.txt", tmp_path / "out"
    file.write_text("the cat sleeps\n\nthe old dog sees the cat\n", encoding="utf-8")
    words = ["--noise=.5", "--varied=2", "--others", f"verse={file}", "--out", str(out)]
    done = inside("uncertainty.py", *seeds, *QUICK, *words)
    assert done.returncode == 0, done.stderr
    assert "note: verse: 1 empty or too long lines of verse.txt were skipped" in done.stderr
    assert done.stdout.endswith(f"written to {out}\n")
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 100
    names = ["tiny", "tiny, noise 0.5", "tiny, 2 seeds"]  # it was trained without dropout
    record = json.loads((out / "uncertainty.json").read_text("utf-8"), parse_constant=pytest.fail)
    systems = {system["system"]: system for system in record["systems"]}
    assert list(systems) == names
    assert record["sentences"] == {"test": 6, "permuted": 6, "verse": 2}
    assert record["options"]["checkpoint"] == "reported"
    assert record["versions"]["latentheads"] == lh.__version__
    assert record["options"]["others"] == [f"verse={file}"]
    assert [systems[name]["passes"] for name in names] == [1, 2, 2]
    assert [len(systems[name]["temperatures"]) for name in names] == [2, 2, 1]
    assert systems["tiny"]["figures"]["nll"]["p"] is None
    assert "roc_verse_unlike" in systems["tiny, noise 0.5"]["figures"]
    table = pd.read_csv(out / "uncertainty.csv")
    (row,) = table[(table.system == "tiny") & (table.figure == "nll")].to_dict("records")
    values = [float(word) for word in row["each"].split()]
    assert row["score"] == pytest.approx(np.mean(values), rel=1e-4)
    pictures = {path.stem for path in out.glob("*.png")}
    assert pictures == {"reliability", "rejection", "calibration", "quality", "others"}


NONE = "is for systems dropout, heads, both, noise: --systems"
MISTAKES = [
    ("--members=1", "--members: must be at least 2, got 1"),
    ("--systems=alone,guess", "system must be one of alone, dropout"),
    ("--systems=alone --noise=1", "noise is for the system noise, which --systems does not name"),
    ("--systems=alone,ensemble --members=3", f"members {NONE} has none of them"),
    ("--systems=alone,heads --varied=2", f"varied {NONE} and the runs"),
    ("--systems=heads", "systems: the runs allow none of these: heads needs heads"),
    ("--others news", "others must be NAME=PATH, NAME an identifier; got 'news'"),
    ("--others news=nowhere.en", "there is no file nowhere.en"),
]


@pytest.mark.parametrize(("words", "says"), MISTAKES)
def test_a_mistake_costs_one_line(tiny_run: Path, words: str, says: str) -> None:
    assert_refused("uncertainty.py", str(tiny_run), *words.split(), says=says)


@pytest.mark.parametrize(
    ("step", "left"),
    [("run_evaluation", "nothing was written"), ("write", "what was written is in out")],
)
def test_who_stops_it_is_told_what_is_left(
    step: str, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(uncertainty, "run_evaluation", lambda options: (None, Path("out")))
    monkeypatch.setattr(uncertainty, step, stop)
    done = inside("uncertainty.py", "run")
    assert (done.returncode, done.stderr) == (130, f"uncertainty.py: stopped; {left}\n")


def test_runs_of_different_settings_are_groups_of_their_own(tmp_path: Path) -> None:
    corpus = small_corpus()
    runs = [make_run(tmp_path / name, corpus) for name in ("plain-0", "plain-1", "other")]
    for run, seed in zip(runs, (0, 1, 0), strict=True):
        run.settings.__dict__["seed"] = seed
    runs[2].settings.__dict__["num_samples"] = 3
    groups = group_runs(runs)
    assert [(group.name, len(group.runs)) for group in groups] == [("plain", 2), ("other", 1)]
    systems = make_systems(groups, [*KINDS], 3, 1.0)
    actual = [(system.name, system.kind, len(system.ensembles)) for system in systems]
    assert actual == [
        ("plain", "alone", 2),
        ("plain, heads", "heads", 2),
        ("plain, 2 seeds", "ensemble", 1),
        ("other", "alone", 1),
        ("other, heads", "heads", 1),
    ]
    runs[2].heads = {"encoder.0.self": [0]}
    runs[2].settings = runs[1].settings
    assert [len(group.runs) for group in group_runs(runs)] == [2, 1]
    runs[1].settings.__dict__["seed"] = 0
    both = f"{runs[0].path} and {runs[1].path} have the same settings and seed 0: give one"
    with pytest.raises(ValueError, match=re.escape(both)):
        group_runs(runs)


def test_systems_with_dropout_are_of_networks_that_have_it(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", small_corpus(), network=sizes(attention_dropout=0.3))
    systems = make_systems(group_runs([run]), [*KINDS], 3, 0.0)
    assert [system.kind for system in systems] == ["alone", "dropout", "heads", "both"]


def test_a_system_alone_is_held_against_no_other() -> None:
    evaluation: Any = SimpleNamespace(temperature=1.0, seconds=0.5, members=3)
    texts: Any = SimpleNamespace(others={}, sizes={"test": 30})
    figures = {"nll": Figure(2.0, 1.0, 3.0, 0.0, 0.0, 0.0, None, [2.0])}
    one = EvaluationResults([System("mine", "alone", [], [])], [[evaluation]], [figures], texts)
    tables = write_tables(one)
    assert "mine    2.000" in tables
    assert "fewer than" not in tables
    assert "Less the first system's" not in tables


def test_of_a_difference_as_much_is_told_as_is_known() -> None:
    evaluation: Any = SimpleNamespace(temperature=1.0, seconds=0.5, members=3)
    texts: Any = SimpleNamespace(others={}, sizes={"test": 29})
    nan = float("nan")
    figure = Figure(2.0, 1.0, 3.0, 0.5, 0.25, 0.75, 0.5, [2.0])
    figures = {
        "nll_scaled": figure,
        "ece_scaled": Figure(2.0, nan, nan, 0.5, nan, nan, None, [2.0]),
        "prr_log_prob": Figure(nan, nan, nan, nan, nan, nan, None, [nan]),
    }
    systems = [System(name, "alone", [], []) for name in ("one", "two")]
    tables = write_tables(EvaluationResults(systems, [[evaluation]] * 2, [figures] * 2, texts))
    *_, differences, _, few = tables.splitlines()
    assert differences.split() == ["two", "+0.500", "[+0.250,", "+0.750]", "+0.500"]
    assert few == "fewer than 30 sentences: intervals are too narrow, and p too small"


def test_a_run_that_writes_nothing_costs_no_other_figure(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = Path(shutil.copytree(tiny_run, tmp_path / "run")), tmp_path / "out"
    search = "latentheads.contrib.uncertainty.ensembles.search"
    monkeypatch.setattr(search, lambda model, batch, *_: [[EOS]] * len(batch))
    done = inside("uncertainty.py", str(run), *QUICK, "--out", str(out))
    assert (done.returncode, done.stderr) == (0, "run: evaluated\n")
    table = pd.read_csv(out / "uncertainty.csv").set_index("figure").score
    assert table[["right", "own_ece_line"]].isna().all()
    assert table["nll"] > 0


def test_a_sentence_is_resampled_together_with_its_permuted_copy(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    permute = "latentheads.experiments.reliability.texts._permute"
    monkeypatch.setattr(permute, lambda part, seed: part)  # a copy like its original
    done = inside("uncertainty.py", str(tiny_run), *QUICK, "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(tmp_path / "out" / "uncertainty.csv").set_index("figure")
    ends = table.loc["roc_permuted_log_prob", ["score", "low", "high"]]
    assert ends.tolist() == [0.5, 0.5, 0.5]


def test_pieces_are_permuted_and_the_end_stays(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", small_corpus())
    texts, notes = open_texts([run], {}, 2, 1, 0)
    assert notes == []
    assert (len(texts.valid), len(texts.test)) == (1, 2)
    permuted = texts.others["permuted"]
    pairs = zip(permuted.sources or (), texts.test.sources or (), strict=True)
    for one, other in pairs:
        assert sorted(one.tolist()) == sorted(other.tolist())
        assert one[-1] == 2


def test_what_cannot_be_tried_is_refused(tmp_path: Path) -> None:
    text = make_run(tmp_path / "text", small_corpus(text=True))
    with pytest.raises(ValueError, match="is a language model: give runs that translate text"):
        open_texts([text], {}, 2, 1, 0)
    with pytest.raises(ValueError, match="others: news is taken, choose another name"):
        read_others(["news=a", "news=b"])


def test_translations_come_with_how_sure_the_run_is(tiny_run: Path, tmp_path: Path) -> None:
    file, links = tmp_path / "sure.txt", tmp_path / "links.txt"
    words = [f"--confidence={file}", "--doubt=1", f"--alignments={links}", "--buffer=1"]
    done = inside("translate.py", str(tiny_run), *words, text="the cat sleeps\n\nthe dog\n")
    assert done.returncode == 0, done.stderr
    lines = file.read_text(encoding="utf-8").split("\n")
    assert (lines[1], lines[3], len(lines)) == ("", "", 4)
    for index, written in enumerate(done.stdout.splitlines()):
        if written:
            score, marked = lines[index].split("\t")
            assert 0 < float(score) < 1
            assert marked == " ".join(f"[{word}]" for word in written.split())
    assert len(links.read_text(encoding="utf-8").splitlines()) == 3


def test_a_calibration_that_is_kept_is_not_fitted_again(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sure, kept = tmp_path / "sure.txt", tmp_path / "kept.json"
    words = (str(tiny_run), f"--confidence={sure}", f"--calibration={kept}")
    translate = partial(inside, "translate.py", *words, text="the cat sleeps\n")
    assert translate().returncode == 0
    fitted = sure.read_text(encoding="utf-8")
    monkeypatch.setattr(ConfidenceEstimator, "_fit", None)
    assert translate().returncode == 0
    assert sure.read_text(encoding="utf-8") == fitted
    says = "kept.json was fitted with num_beams 1, got 3"
    assert_refused("translate.py", *words, "--num_beams=3", says=says, text="the cat\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            "--alignments=same.txt --confidence=./same.txt",
            "need a file each, got ./same.txt",
        ),
        (
            "--confidence=sure.txt --num_samples=4",
            "--num_samples has no effect here: it needs a run",
        ),
        ("--doubt=.3", "--doubt is for --confidence FILE"),
        ("--calibration=c", "--calibration is for --confidence FILE"),
        ("--confidence=c --calibration=./c", "need a file each, got ./c"),
        ("--confidence=sure.txt --doubt=1.5", "--doubt: must be at most 1, got 1.5"),
        ("--confidence=nowhere/sure.txt", "--confidence: cannot write nowhere/sure.txt: No such"),
    ],
)
def test_a_mistake_of_confidence_costs_one_line(tiny_run: Path, words: str, says: str) -> None:
    assert_refused("translate.py", str(tiny_run), *words.split(), says=says, text="the cat\n")


def test_a_file_is_read_until_there_are_enough_lines(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", small_corpus())
    verse = tmp_path / "verse.txt"
    verse.write_text("\n" * 9 + "a b\na\nb\n", encoding="utf-8")
    texts, (note,) = open_texts([run], {"verse": verse}, 2, 1, 0)
    assert len(texts.others["verse"]) == 2
    assert note == "verse: 9 empty or too long lines of verse.txt were skipped"
    verse.write_text("\n" * 9, encoding="utf-8")
    with pytest.raises(ValueError, match=r"verse.txt has no line that the runs can translate"):
        open_texts([run], {"verse": verse}, 2, 1, 0)


def test_a_temperature_at_the_end_of_its_range_is_noted() -> None:
    temperatures = {"cold": [1.0, MIN_TEMPERATURE], "warm": [1.2, 2.9], "hot": [MAX_TEMPERATURE]}
    evaluations = [
        [mock.Mock(temperature=t) for t in temperature] for temperature in temperatures.values()
    ]
    results = mock.Mock(names=list(temperatures), evaluations=evaluations)
    end = "T is at a limit of its range, 0.33 to 3.00"
    actual = [*unchecked(_note_temperature_limits)(results)]
    assert actual == [f"cold: {end}", f"hot: {end}"]
