"""The file that says how to cite the library."""

from __future__ import annotations

import yaml

from tests.docs.pages import ROOT
from tests.lowest import read_project


def test_it_names_the_version_and_the_licence_of_the_project() -> None:
    config = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = read_project()
    assert config["version"] == project["version"]
    assert config["license"] == project["license"]
    assert {"cff-version", "message", "title", "authors"} <= set(config)
