"""A sweep over the number of heads: one table, one figure, finished runs used again."""

from __future__ import annotations

import csv
import re
from itertools import product
from pathlib import Path

import pytest

from tests.experiments.programs import SHORT, assert_refused, inside, painted, succeed

pytestmark = pytest.mark.usefixtures("as_the_programs_do")

FEW = ["--data.sentences=40", "--data.held_out=3", *SHORT, "--num_samples=1"]
FEW += ["--network.width=8", "--network.feed_forward=8"]


def test_a_sweep_writes_its_table_and_figure_and_reuses_runs(tmp_path: Path) -> None:
    words = ["--recipes", "transformer,coda-released", "--seeds=0", *FEW, "--train.steps=1"]
    words += ["--decode.max_new_tokens=4", "--network.layers=2", "--out", str(tmp_path)]
    stdout = succeed("sweep.py", *words, "--head_numbers", "2,4").stdout
    assert stdout.count("parameters; corpus") == 4
    assert re.search(r"^coda-released +4 ", stdout, re.MULTILINE)
    with (tmp_path / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    named = [(row["recipe"], row["heads"]) for row in rows]
    assert named == [*product(("transformer", "coda-released"), "24")]
    plain, wide, fused, wide_fused = (int(row["parameters"]) for row in rows)
    blocks = 3
    assert plain == wide
    assert fused - plain == blocks * (24 * 2**2 + 9 * 2)
    assert wide_fused - plain == blocks * (24 * 4**2 + 9 * 4)
    assert all(row["bleu"] and row["elbo"] and row["head_divergence"] for row in rows)
    written = (tmp_path / "table.md").read_text()
    titles, _, plain_cells, _, fused_cells, *_ = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in written.splitlines()[:6]
    )
    columns = dict(zip(titles, fused_cells, strict=True))
    assert columns["seeds"] == "1"
    assert columns["exact log p"] == "" != columns["IWAE"]
    assert float(columns["ELBO less first recipe"]) == pytest.approx(
        float(rows[2]["elbo"]) - float(rows[0]["elbo"]), abs=1e-4
    )
    assert dict(zip(titles, plain_cells, strict=True))["ELBO less first recipe"] == ""
    assert "a bound below the exact log p of another model shows nothing" in written
    with painted():
        again = succeed("sweep.py", *words, "--head_numbers=4,2").stdout
    assert (tmp_path / "heads.png").stat().st_size > 5000
    assert "parameters; corpus" not in again


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--head_numbers=3", "head_numbers must divide the width 8, got 3"),
        ("--recipes=coda+group --head_numbers=3", "must divide the width 8, got 3"),
        ("--network.heads=4", "--network.heads belongs to run.py: here use --head_numbers"),
    ],
)
def test_a_mistake_costs_one_line_and_status_two(words: str, message: str, tmp_path: Path) -> None:
    given = ["--head_numbers=2", *FEW, f"--out={tmp_path}", *words.split()]
    assert_refused("sweep.py", *given, says=message)


def test_a_file_may_say_the_numbers_of_heads(tmp_path: Path) -> None:
    config = tmp_path / "sweep.yaml"
    config.write_text("head_numbers: [2, 3]\nrecipes: [transformer]\nnetwork: {heads: 8}\n")
    done = inside("sweep.py", "--config", str(config), *FEW, f"--out={tmp_path}")
    note = "note: network.heads of --config is left out: sweep.py takes --head_numbers"
    message = f"{config}: head_numbers must divide the width 8, got 3"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"sweep.py: {note}\nsweep.py: error: {message}\n"
