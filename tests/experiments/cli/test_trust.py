"""What is trusted is what an option or a run names; more is a mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from latentheads.experiments.cli.options import read_settings
from latentheads.experiments.cli.trust import check_trusted, select_trusted
from latentheads.options import OptionError


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder that names a class of its author's own."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text("guide: {class: 'mine.sub:Guide'}\n")
    return folder


@pytest.mark.parametrize(
    "options",
    [
        {"guide": "mine.sub:Guide"},
        {"guide": {"class": "mine.sub.Guide", "scale": 2}},
        {"logits": {"prior": {"class": "mine.sub:Guide"}}},
        {"recipes": "coda, independent+mine.sub:Guide+gates"},
    ],
)
def test_a_class_that_an_option_names_is_trusted(options: dict[str, Any]) -> None:
    check_trusted({"mine.sub:Guide"}, options)
    with pytest.raises(OptionError, match=r"^trust a:B is used by nothing: no option or run names"):
        check_trusted({"mine.sub:Guide", "a:B"}, options)


def test_so_is_one_that_a_run_names(run: Path) -> None:
    check_trusted({"mine.sub:Guide"}, runs=[run])
    with pytest.raises(OptionError, match=r"^trust mine:Guide is used by nothing"):
        check_trusted({"mine:Guide"}, {"data": "grammar"}, [run])
    check_trusted(
        {"mine:Guide"}, runs=[run, run / "nowhere"]
    )  # whoever reads it says what is wrong


def test_each_run_of_several_is_told_what_it_names(run: Path) -> None:
    trusted = "a:B,mine.sub:Guide,c:D"
    assert select_trusted(trusted, {"guide": "c:D"}, [run]) == "c:D,mine.sub:Guide"
    assert select_trusted(trusted, {"guide": "cascaded"}) == ""


def test_a_command_line_is_refused_in_one_line(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        read_settings(["--trust", "mine.sub:Guide"], "run.py", "")
    error = "run.py: error: --trust mine.sub:Guide is used by nothing: no option or run names it\n"
    assert capsys.readouterr().err == error
    words = ["--trust", "mine.sub:Guide", "--start", str(run)]
    assert read_settings(words, "run.py", "")[0].start == str(run)
