"""A package of someone else's adds a prior, a metric, a section of the report and a program."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tomllib
from ast import literal_eval
from importlib.metadata import entry_points
from json import dumps
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import latentheads as lh
from latentheads import options, plugins
from latentheads.experiments.cli.main import main
from latentheads.guides import GUIDES
from latentheads.latents.logits.priors import PRIORS
from latentheads.metrics.scores import SCORES
from latentheads.options import OptionError
from latentheads.runs.reporter import Reporter
from latentheads.runs.results import complete
from latentheads.runs.settings import Settings
from tests.attack.process import start
from tests.experiments.programs import FORKS, ROOT, SHORT, TINY

PLUGIN = ROOT / "tests" / "plugin"
TRAIN_AND_COUNT = """
import sys


def main(words):
    import torch
    for name in [*sys.modules]:
        if name.partition(".")[0] == "latentheads":
            del sys.modules[name]
    torch.set_default_dtype(torch.float32)
    from latentheads.experiments.cli.main import main
    from latentheads.experiments.comparison.summary import COLUMNS
    print([*COLUMNS.values()])
    return main(["run", *words]) or main(["count-heads", words[-1]])
"""
"""Imports the library anew, as a process does that has the package from its beginning."""


def read_project(folder: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    return project["project"]


def write_metadata(folder: Path, name: str, groups: dict[str, dict[str, str]]) -> None:
    """What pip writes of a package beside its modules."""
    metadata = folder / f"{name.replace('-', '_')}-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    lines = []
    for group, points in groups.items():
        lines += [f"[{group}]", *(f"{point} = {value}" for point, value in points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The folder of an environment that has the package."""
    folder = tmp_path / "installed"
    folder.mkdir()
    shutil.copy(PLUGIN / "toy_heads.py", folder)
    write_metadata(folder, "toy-heads", read_project(PLUGIN)["entry-points"])
    return folder


@FORKS
def test_a_package_adds_a_prior_a_metric_a_section_and_a_program(
    installed: Path, tmp_path: Path
) -> None:
    out = str(tmp_path / "run")
    words = ["--latents=logits", "--logits.prior=sharp", "--logits.prior.scale=0.25"]
    (installed / "train_and_count.py").write_text(TRAIN_AND_COUNT)
    words += [*TINY, *SHORT, "--network.layers=1", "--out", out]
    done = start("train_and_count", *words, folder=ROOT, modules=installed)
    assert done.status == 0, done.error
    assert {"length", "length less first row"} <= {*literal_eval(done.out.splitlines()[0])}
    assert done.out.endswith("\n6\n")
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["toy"] == {"scale": 0.25, "sites": 3}
    assert results["head_divergence"] > 0
    assert "length" in {row["name"] for row in results["test"]}
    assert (tmp_path / "run" / "kl.png").is_file()
    assert "missing" not in results


def test_its_program_is_listed_with_its_package(
    installed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(installed))
    assert main(["--help"]) == 0
    assert "\n  count-heads  of the package toy-heads\n" in capsys.readouterr().out
    assert main(["count-head"]) == 2
    assert ", prune, count-heads; got 'count-head'\n" in capsys.readouterr().err


def test_a_class_is_found_by_its_name_in_python(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.setattr(options, "load_options", plugins.load_options.__wrapped__)
    with mock.patch.dict(PRIORS), mock.patch.dict(SCORES), mock.patch.dict(sys.modules):
        assert lh.latents.LogitsOptions(prior="sharp").prior.options == {"scale": 0.1}


def test_a_name_of_a_table_keeps_its_meaning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        text = "from latentheads.guides import GUIDES, Tied\n"
        text += f"class Mine(Tied): name = {name!r}\nGUIDES['exact'] = GUIDES['mine'] = Mine\n"
        (tmp_path / f"{name}_guides.py").write_text(text)
        points = {plugins.OPTIONS: {name: f"{name}_guides"}}
        write_metadata(tmp_path, f"{name}-heads", points)
    monkeypatch.syspath_prepend(str(tmp_path))
    exact = GUIDES["exact"]
    with mock.patch.dict(GUIDES):
        with pytest.warns(UserWarning, match="adds no GUIDES") as warned:
            plugins.load_options.__wrapped__()
        assert GUIDES["exact"] is exact
        assert GUIDES["mine"].name == "first"
    pattern = r"^latentheads\.options '{0}' of the package {0}-heads adds no GUIDES\['{1}'\]: "
    actual = [str(warning.message) for warning in warned]
    expected = (("first", "exact"), ("second", "exact"), ("second", "mine"))
    for message, names in zip(actual, expected, strict=True):
        assert re.match(pattern.format(*names), message)


def test_a_name_that_is_taken_and_a_module_that_fails_cost_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = {
        plugins.PROGRAMS: {"run": "toy:main", "lost": "no_such_module:main"},
        plugins.OPTIONS: {"toy": "no_such_module"},
    }
    write_metadata(tmp_path, "other-heads", groups)
    monkeypatch.syspath_prepend(str(tmp_path))
    taken = r"^latentheads\.programs 'run' of the package other-heads is left out: "
    with pytest.warns(UserWarning, match=taken):
        assert main(["lost"]) == 2
    lost = "latentheads.programs 'lost' of the package other-heads cannot be loaded: ModuleNotFound"
    assert capsys.readouterr().err.startswith(f"latentheads: error: {lost}")
    with pytest.warns(UserWarning, match="'toy' of the package other-heads cannot be loaded: Mod"):
        assert plugins.load_options.__wrapped__()
    with pytest.raises(OptionError, match="must be one of delta, "):
        lh.latents.LogitsOptions(prior="sharp")


SECTIONS = """
import numpy as np
import torch


def draw(reporter):
    numbers = {"a": np.float32(0.5), "b": torch.ones(2), "c": np.arange(3), "d": float("nan")}
    return {"drawn": numbers}


def add_rows(reporter):
    return ["row"]


def add_object(reporter):
    return {"thing": object}


def replace_test(reporter):
    return {"test": 3}


def draw_again(reporter):
    return {"drawn": 5}


def fail(reporter):
    return 1 / 0
"""


def test_a_section_that_fails_costs_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What JSON does not take, and a name of the report's own, are failures too."""
    (tmp_path / "some_sections.py").write_text(SECTIONS)
    names = ("draw", "add_rows", "add_object", "replace_test", "draw_again", "fail")
    points = {f"{index} {name}": f"some_sections:{name}" for index, name in enumerate(names)}
    write_metadata(tmp_path, "some-heads", {plugins.REPORT_SECTIONS: points})
    monkeypatch.syspath_prepend(str(tmp_path))
    reporter = Reporter(Settings(), *(mock.Mock(tasks=(), source="") for _ in range(4)))
    results: dict[str, Any] = {"test": []}
    sections = reporter.sections(results)
    written: list[str] = []
    complete(results, {name: sections[name] for name in points}, lambda x: written.append(dumps(x)))
    taken = "the report has {} already: choose another name"
    missing = {
        "1 add_rows": "a section must return a mapping of values by name, got ['row']",
        "2 add_object": "thing: Object of type type is not JSON serializable",
        "3 replace_test": taken.format("test"),
        "4 draw_again": taken.format("drawn"),
        "5 fail": "ZeroDivisionError: division by zero",
    }
    assert json.loads(written[-1]) == {
        "test": [],
        "drawn": {"a": 0.5, "b": [1, 1], "c": [0, 1, 2], "d": None},
        "missing": {name: f"package some-heads: {why}" for name, why in missing.items()},
    }


def test_the_librarys_own_sections_are_those_that_are_installed() -> None:
    """Where they differ the environment is of an older state: ``make`` installs it again."""
    declared = read_project(ROOT)["entry-points"]
    for group, points in declared.items():
        own = [p for p in entry_points(group=group) if p.dist and p.dist.name == "latentheads"]
        assert {point.name: point.value for point in own} == points, "run make: it installs again"
