"""A sweep over the number of heads: one table, one figure, finished runs used again."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from tests.experiments.programs import SHORT, painted, status_of

pytestmark = pytest.mark.usefixtures("as_the_programs_do")

FEW = [
    "--data.sentences=40",
    "--data.held_out=3",
    "--network.width=8",
    "--network.feed_forward=8",
    *SHORT,
    "--samples=1",
]
BRIEF = ["--train.steps=1", "--decode.max_tokens=4"]


def test_a_sweep_writes_its_table_and_figure_and_reuses_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from latentheads.experiments import sweep

    recipes = ["--recipes", "transformer,coda-released", "--seeds=0"]
    words = [*recipes, *FEW, *BRIEF, "--network.layers=2", "--out", str(tmp_path)]
    assert sweep.main([*words, "--head_numbers", "2,4"]) == 0
    said = capsys.readouterr().out
    assert said.count("parameters; corpus") == 4
    assert re.search(r"^coda-released +4 ", said, re.MULTILINE)
    with (tmp_path / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["recipe"], row["heads"]) for row in rows] == [
        ("transformer", "2"),
        ("transformer", "4"),
        ("coda-released", "2"),
        ("coda-released", "4"),
    ]
    plain, wide, fused, wide_fused = (int(row["parameters"]) for row in rows)
    blocks = 3
    assert plain == wide
    assert fused - plain == blocks * (24 * 2**2 + 9 * 2)
    assert wide_fused - plain == blocks * (24 * 4**2 + 9 * 4)
    assert all(row["bleu"] and row["elbo"] and row["head_divergence"] for row in rows)
    with painted():
        assert sweep.main([*words, "--head_numbers=4,2"]) == 0
    assert (tmp_path / "heads.png").stat().st_size > 5000
    assert "parameters; corpus" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--head_numbers=3", "head_numbers must divide the width 8, got 3"),
        (
            "--recipes=coda+group --train.select_gradient=score --head_numbers=3",
            "must divide the width 8, got 3",
        ),
        ("--head_numbers=2,x", "--head_numbers must be a list of whole numbers"),
        ("--head_numbers=2,2", "head_numbers must differ from each other, got 2,2"),
        ("--network.heads=4", "--network.heads belongs to run.py: sweep.py takes --head_numbers"),
        ("--recipes=coda,codda", "unknown recipe 'codda'"),
        ("--seeds=0,0", "seeds must differ from each other, got 0,0"),
    ],
)
def test_a_mistake_costs_one_line_and_status_two(
    words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from latentheads.experiments import sweep

    given = ["--head_numbers=2", *FEW, f"--out={tmp_path}", *words.split()]
    assert status_of(sweep.main, *given) == 2
    error = capsys.readouterr().err
    assert error.startswith("sweep.py: error: ")
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_who_stops_it_is_told_what_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from latentheads.experiments import sweep

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "train_all", stop)
    words = ["--head_numbers=2", *FEW, f"--out={tmp_path}", "--overwrite"]
    assert status_of(sweep.main, *words) == 130
    said = "sweep.py: stopped; without --overwrite the same command goes on; what is finished is in"
    assert capsys.readouterr().err == f"{said} {tmp_path}\n"


def test_a_file_may_say_the_numbers_of_heads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from latentheads.experiments import sweep

    config = tmp_path / "sweep.yaml"
    config.write_text("head_numbers: [2, 3]\nrecipes: [transformer]\nnetwork: {heads: 8}\n")
    words = ["--config", str(config), *FEW]
    assert status_of(sweep.main, *words, f"--out={tmp_path}") == 2
    note = "note: network.heads of a file is left out: sweep.py takes --head_numbers"
    said = f"{config}: head_numbers must divide the width 8, got 3"
    assert capsys.readouterr().err == f"sweep.py: {note}\nsweep.py: error: {said}\n"
