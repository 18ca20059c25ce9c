"""The study of circuits: what its program refuses, and the command that it records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from latentheads.experiments.studies import head_circuits
from latentheads.experiments.studies.circuits.intervals import wilson_interval
from latentheads.experiments.studies.circuits.report import planted
from latentheads.metrics.seeds import spread
from tests.experiments.programs import assert_refused

PLANTED = {
    "planted": [1, 0, 0, 0],
    "inclusion": [0.9, 0.1, 0.1, 0.8],
    "area_under_curve": {"posterior": 1.0},
    "gaps": {"mean-field": {"gap": 0.1}},
}


def _write_tables(out: Path, prompts: int = 32) -> None:
    """A table of two heads, of which all prompts need the first most."""
    table = {
        "layer": 27,
        "intervention": "counterfactual",
        "labels": ["L27H0", "L27H1"],
        "divergence": [[value] * prompts for value in (-2.0, -0.1, -1.0, 0.0)],
    }
    out.mkdir(exist_ok=True)
    (out / "agreement-27-counterfactual.json").write_text(json.dumps(table))


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    out, results = tmp_path / "out", tmp_path / "results"
    words = (f"--out={out}", f"--results={results}")
    assert_refused("head_circuits.py", "report", *words, says=f"attributions in {out} must be at")
    assert_refused("head_circuits.py", "inclusion", *words, says="tables of these tasks")
    _write_tables(out)
    (out / "agreement-attributions.json").write_text('{"task": "agreement", "scores": {}}')
    assert_refused("head_circuits.py", "report", *words, says=f"planted networks in {out} must be")
    (out / "planted-0.json").write_text(json.dumps(PLANTED))
    assert_refused("head_circuits.py", "report", *words, says="tasks must be at least 2, got 1")
    _write_tables(out, prompts=8)
    says = "counterfactual.json: prompts must be at least 17, got 8"
    assert_refused("head_circuits.py", "report", *words, says=says)
    assert not any(results.iterdir())


@pytest.mark.usefixtures("as_the_programs_do")
def test_means_over_networks_are_those_of_their_files(tmp_path: Path) -> None:
    for seed, area in enumerate((0.1, 0.3, 0.8)):
        network = PLANTED | {"area_under_curve": {"posterior": 1.0, "gradient": area}}
        (tmp_path / f"planted-{seed}.json").write_text(json.dumps(network))
    report = planted(tmp_path)
    assert report["area"]["gradient"] == pytest.approx([*spread([0.1, 0.3, 0.8])], abs=1e-12)
    differences = report["area_less_posterior"]["gradient"]
    assert differences == pytest.approx([*spread([-0.9, -0.7, -0.2])], abs=1e-12)
    assert report["kept_above_half"] == [1.0, *wilson_interval(3, 3)]
    assert report["off_below_half"] == pytest.approx([2 / 3] * 3, abs=1e-12)


@pytest.mark.parametrize("part", ["tables", "attributions", "joint"])
def test_a_network_is_a_folder(part: str, tmp_path: Path) -> None:
    words = (part, str(tmp_path / "gone"), f"--out={tmp_path}", f"--results={tmp_path}")
    assert_refused("head_circuits.py", *words, says="there is no folder ")


@pytest.mark.parametrize(
    ("part", "option"),
    [("tables", "out"), ("planted", "out"), ("joint", "results"), ("few-prompts", "results")],
)
def test_a_folder_that_cannot_be_written_is_named_before_the_work(
    part: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(head_circuits, "WRITERS", {})
    words = (part, f"--{option}=file/x")
    assert_refused("head_circuits.py", *words, says=f"--{option}: cannot write file/x: Not a dir")


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("--prompts=-1", "--prompts: must be at least 0, got -1"),
        ("--layers=27,x", "--layers: must be a whole number, got 'x'"),
    ],
)
def test_numbers_name_their_option(word: str, says: str) -> None:
    assert_refused("head_circuits.py", "tables", word, says=says)


def test_commands_have_the_penalty_and_the_temperature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    _write_tables(out)
    options = ["--tasks=agreement", "--layers=27", "--penalty=0.0123456789", "--tau=0.25"]
    words = [*options, f"--out={out}", f"--results={tmp_path}"]
    assert head_circuits.main(["inclusion", *words]) == 0
    record = json.loads((tmp_path / "inclusion-counterfactual.json").read_text("utf-8"))
    (row,) = record["inclusion"]
    assert (row["penalty"], row["tau"]) == (0.0123456789, 0.25)
    assert "--layers 27 --penalty 0.0123456789 --tau 0.25" in record["command"]

    def joint_posterior(*_: Any) -> dict[str, Any]:
        return {}

    monkeypatch.setattr(head_circuits, "load_network", lambda _: (None, None))
    monkeypatch.setattr(head_circuits, "joint_posterior", joint_posterior)
    assert head_circuits.main(["joint", *words]) == 0
    record = json.loads((tmp_path / "joint.json").read_text("utf-8"))
    assert record["command"].endswith("--layers 27 --penalty 0.0123456789 --tau 0.25")
