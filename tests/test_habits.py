"""What a public project has beside its code: workflows, hooks, a version in one place."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

import latentheads
from tests.experiments.programs import ROOT
from tests.lowest import read_project

GITHUB = ROOT / ".github"
FILES = [ROOT / ".pre-commit-config.yaml", *sorted(GITHUB.rglob("*.yml"))]


def load(name: str) -> Any:
    return yaml.safe_load((GITHUB / "workflows" / name).read_text("utf-8"))


def commands_of(workflow: Any) -> list[str]:
    """What the jobs of a workflow run."""
    return [
        step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_is_yaml(path: Any) -> None:
    assert yaml.safe_load(path.read_text("utf-8"))


def test_every_python_that_is_declared_is_tested() -> None:
    pattern = re.compile(r"Programming Language :: Python :: (3\.\d+)")
    declared = [
        match[1]
        for classifier in read_project()["classifiers"]
        if (match := pattern.match(classifier))
    ]
    tested = load("ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert tested == declared
    assert read_project()["requires-python"] == f">={declared[0]}"


def test_every_target_that_a_workflow_makes_is_there() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    made = {
        match[1] for line in commands_of(load("ci.yml")) if (match := re.match(r"make (\w+)", line))
    }
    assert made == {"test", "lowest", "docs"}
    assert made <= targets


def test_the_version_is_that_of_the_project() -> None:
    assert latentheads.__version__ == read_project()["version"]
    assert "__version__" in dir(latentheads)
