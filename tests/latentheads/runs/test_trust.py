"""Guides of one's own: what no reader would take from a run folder is not trained."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from latentheads.runs.pairs import ClassSpec
from latentheads.runs.settings import Settings

GUIDES = """
from latentheads.guides import Cascaded

class Text(Cascaded):
    def __init__(self, model, kind="soft"):
        super().__init__(model)

class Listed(Cascaded):
    def __init__(self, model, sizes=(3, 5)):
        super().__init__(model)

class Unknown(Cascaded):
    def __init__(self, model, name=None, start=0.5):
        super().__init__(model)

class Annotated(Cascaded):
    def __init__(self, model, kind: str = "soft", sizes: tuple[int, ...] = (3, 5)):
        super().__init__(model)
"""


@pytest.fixture(autouse=True)
def _own_guides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_guides.py").write_text(GUIDES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_guides", raising=False)


@pytest.mark.parametrize(
    ("name", "options", "named"),
    [
        ("Text", {}, "kind 'soft'"),
        ("Text", {"kind": "hard"}, "kind 'hard'"),
        ("Listed", {}, r"sizes \[3, 5\]"),
        ("Unknown", {"name": "x"}, "name 'x'"),
    ],
)
def test_an_option_that_could_not_be_read_again_is_refused_before_training(
    name: str, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=rf"^guide\.{named} might name code: .*str, Path") as said:
        Settings(guide=ClassSpec(f"own_guides:{name}", options))
    assert "\n" not in str(said.value)


@pytest.mark.parametrize(
    ("name", "options"),
    [("Annotated", {"kind": "a.b", "sizes": [7]}), ("Unknown", {"start": 0.7})],
)
def test_what_is_trained_is_read_again(name: str, options: dict[str, Any]) -> None:
    settings = Settings(guide=ClassSpec(f"own_guides:{name}", options))
    again = Settings.from_options(settings.to_options(), f"own_guides:{name}")
    assert again.to_yaml() == settings.to_yaml()
