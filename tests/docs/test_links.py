"""Every link and every file that a page names is there, and every page stands on the site."""

from __future__ import annotations

import re

import pytest

import latentheads as lh
from latentheads import data, guides, inference, latents, models, plot, pruning
from latentheads.contrib import align, hf, speech, uncertainty
from latentheads.contrib import page as page_of_runs
from latentheads.experiments.cli.main import PROGRAMS
from tests.docs.pages import (
    CHANGES,
    CONTRIBUTING,
    NOTEBOOKS,
    PAGES,
    README,
    REPORTS,
    ROOT,
    Page,
    rows_of,
)
from tests.experiments.programs import STUDIES

TOP = ("docs", "experiments", "guides", "latentheads", "models", "tests")
ELSEWHERE = ("http://", "https://")


def page(name: str) -> Page:
    return Page(ROOT / "docs" / f"{name}.md")


@pytest.mark.parametrize(
    "given_page", [*PAGES, *REPORTS, NOTEBOOKS, CHANGES, CONTRIBUTING], ids=str
)
def test_every_link_leads_to_a_file_and_a_heading(given_page: Page) -> None:
    for link in given_page.links:
        if link.startswith(ELSEWHERE):
            continue
        name, _, anchor = link.partition("#")
        path = (given_page.path.parent / name).resolve() if name else given_page.path
        assert path.is_file(), link
        assert not anchor or anchor in Page(path).anchors, link


@pytest.mark.parametrize("given_page", [*PAGES, CHANGES, CONTRIBUTING], ids=str)
def test_every_file_that_is_named_is_there(given_page: Page) -> None:
    for code in given_page.inline:
        path = re.fullmatch(rf"(?:{'|'.join(TOP)})/[\w./-]*", code)
        if path and not re.search(r"\b[A-Z]{2,}\b", code):
            assert (ROOT / code).exists(), code


def test_every_page_stands_in_the_contents_and_nothing_else_does() -> None:
    contents = "".join(page("index").blocks("{toctree}"))
    named = set(re.findall(r"^(?:.*<)?([a-z-]+)>?(?:\*\*)?$", contents, re.MULTILINE))
    assert named - {"self"} == {one_page.path.stem for one_page in PAGES[1:]} - {"index"}


def test_every_program_shows_its_help() -> None:
    matches = re.findall(r"^```{program-help} (\w+)$", page("programs").text, re.MULTILINE)
    assert matches == list(PROGRAMS)
    assert {*PROGRAMS} <= page("programs").anchors
    studies = page("programs").sections[-1]
    assert {f"{name}.py" for name in STUDIES} == {row[0].strip("`") for row in rows_of(studies)}


def test_every_room_of_the_library_stands_on_the_page_of_how_it_is_built() -> None:
    library = ROOT / "latentheads"
    rooms = {str(path.parent.relative_to(library)) for path in library.glob("*/__init__.py")}
    rooms |= {f"contrib/{path.parent.name}" for path in library.glob("contrib/*/__init__.py")}
    assert len(rooms) > 10
    text = page("architecture").text
    assert {room for room in rooms if f"`{room}/`" not in text} == {"runs"}
    assert "`latentheads/runs/`" in page("architecture").text


def test_every_preset_is_listed() -> None:
    listed = [re.sub(r".*\(|\).*", "", row[0]) for row in rows_of(page("programs").sections[1])]
    files = (ROOT / "experiments" / "presets").glob("*.yaml")
    assert sorted(listed) == sorted(f"../experiments/presets/{file.name}" for file in files)


@pytest.mark.parametrize(
    ("location", "names"),
    [
        ("latentheads", {*lh.__all__} - {*lh.PACKAGES}),
        ("latentheads.data", {*data.__all__}),
        ("latentheads.models", {*models.__all__} - {"PRIORS"}),
        ("latentheads.guides", {*guides.__all__} - {"GUIDES", "RECIPES"}),
        ("latentheads.latents", {*latents.__all__}),
        ("latentheads.inference", {*inference.__all__}),
        ("latentheads.contrib.align", {*align.__all__}),
        ("latentheads.contrib.page", {*page_of_runs.__all__}),
        ("latentheads.contrib.plot", {*plot.__all__}),
        ("latentheads.contrib.hf", {*hf.__all__} - {"LIKELIHOODS", "latent"}),
        ("latentheads.pruning", {*pruning.__all__}),
        ("latentheads.contrib.speech", {*speech.__all__}),
        ("latentheads.contrib.uncertainty", {*uncertainty.__all__}),
    ],
)
def test_every_public_name_stands_on_the_page_of_the_api(location: str, names: set[str]) -> None:
    listed: dict[str, set[str]] = {}
    where = ""
    for line in "".join(page("api").blocks("{eval-rst}")).splitlines():
        if line.startswith(".. currentmodule::"):
            where = line.split()[-1]
        elif re.fullmatch(r"   \w+", line):
            listed.setdefault(where, set()).add(line.strip())
    assert listed[location] == names, f"list each name under {location} in docs/api.md"


def test_the_first_page_is_short() -> None:
    lines = README.text.splitlines()
    assert len(lines) <= 120
    assert max(map(len, lines)) <= 120


def test_the_changes_of_a_version_are_short() -> None:
    assert len(CHANGES.text.splitlines()) <= 150
