"""The notebooks: each runs as a script, and what is shown is what is edited."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from latentheads.contrib.plot import report_sections
from latentheads.runs import reporter
from tests.docs.commands import accept, commands
from tests.docs.pages import Page
from tests.experiments.programs import ROOT

FOLDER = ROOT / "experiments" / "notebooks"
SCRIPTS = sorted(FOLDER.glob("[0-9]*.py"))
MOST = 1_000_000
"""Bytes of a notebook."""

every_script = pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)


def cells_of_script(script: Path) -> list[tuple[str, str]]:
    """The kind and the text of every cell of a percent script."""
    cells = []
    for part in re.split(r"^# %%", script.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        kind, _, text = part.partition("\n")
        if kind.strip() == "[markdown]":
            text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.split("\n"))
        cells.append(("markdown" if kind.strip() else "code", text.strip()))
    return cells


def read_notebook(script: Path) -> list[dict[str, Any]]:
    """The cells of the notebook beside a script."""
    cells: list[dict[str, Any]] = json.loads(script.with_suffix(".ipynb").read_text())["cells"]
    return cells


def shorten_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs draw nothing and translate nothing for their own report, which other tests look at."""
    monkeypatch.setattr(report_sections, "_save", lambda *_: None)
    monkeypatch.setattr(reporter, "translate_part", lambda *given: list(given[3].references))


@every_script
@pytest.mark.usefixtures("as_the_programs_do")
@pytest.mark.filterwarnings("ignore:no head has P above")  # of a network that is not trained
def test_it_runs_as_a_script_in_a_smoke_size(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LATENTHEADS_SMOKE", "1")
    shorten_reports(monkeypatch)
    runpy.run_path(str(script), run_name="__main__")


@every_script
def test_the_notebook_has_the_cells_of_its_script(script: Path) -> None:
    shown = [(cell["cell_type"], "".join(cell["source"])) for cell in read_notebook(script)]
    assert shown == cells_of_script(script)
    (kind, first), (_, second), *_ = shown
    assert (kind, first[:2]) == ("markdown", "# ")
    assert "**You learn**" in first
    assert "python experiments/" in first
    assert "LATENTHEADS_SMOKE" in second
    assert "## Limits" in shown[-1][1]


@every_script
def test_what_is_shown_was_run_in_full_and_names_no_machine(script: Path) -> None:
    path = script.with_suffix(".ipynb")
    code = [cell for cell in read_notebook(script) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    texts = json.dumps([drop_pictures(output) for output in outputs])
    assert not re.findall(r"/(?:home|root|tmp|usr|work|Users)/", texts)
    assert path.stat().st_size < MOST


def drop_pictures(output: dict[str, Any]) -> dict[str, Any]:
    kept = {kind: datum for kind, datum in output.get("data", {}).items() if kind != "image/png"}
    return {**output, "data": kept}


@every_script
def test_its_commands_are_ones_that_the_programs_accept(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, imports, *cells = [text for _, text in cells_of_script(script)]
    guides = ModuleType("my_guides")
    for text in (imports, *(text for text in cells if text.startswith("class Damped"))):
        exec(compile(text, "my_guides.py", "exec"), guides.__dict__)
    monkeypatch.setitem(sys.modules, "my_guides", guides)
    (tmp_path / "first.md").write_text(first, encoding="utf-8")
    page_commands = commands(Page(tmp_path / "first.md"))
    assert page_commands
    for program, *words in page_commands:
        accept(program, words)


@every_script
def test_every_file_that_is_named_is_there(script: Path) -> None:
    prose = "".join(text for kind, text in cells_of_script(script) if kind == "markdown")
    for name in re.findall(r"`((?:docs|experiments|tests)/[\w./-]+|0\d_\w+)`", prose):
        assert (ROOT / name).exists() or (FOLDER / f"{name}.ipynb").exists(), name


def test_every_notebook_stands_in_the_list() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((\d\w+)\.ipynb\)", text) == [script.stem for script in SCRIPTS]
    assert sorted(FOLDER.glob("*.ipynb")) == [script.with_suffix(".ipynb") for script in SCRIPTS]


def test_the_gaps_that_are_told_are_those_of_the_table() -> None:
    cells = read_notebook(FOLDER / "02_exact_gaps.py")
    texts = ["".join(cell["source"]) for cell in cells]
    sentence = next(text for text in texts if text.startswith("All rows bound"))
    shown = [output.get("data", {}) for cell in cells for output in cell.get("outputs", ())]
    tables = ["".join(data.get("text/plain", "")) for data in shown]
    table = next(text for text in tables if "ELBO less tied's" in text)
    rows = {line[:31].strip(): line[31:].split() for line in table.splitlines()}
    # the columns are ELBO, KL, exact log p, gap, gap of the prior, ...
    given_source, (*_, information) = rows["cascaded, conditioned on source"], rows["exact"][:2]
    gaps = *given_source[3:5], rows["cascaded"][3], rows["mean-field"][3]
    expected = [f"{float(value):.2f}" for value in (*gaps, information)]
    assert re.findall(r"\d\.\d\d\b", sentence) == expected
