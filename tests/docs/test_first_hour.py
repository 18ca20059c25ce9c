"""The commands of the first hour run one after another, and print what the pages show."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from itertools import chain
from pathlib import Path

import pytest

from tests.docs.hour import BOTH, MINIATURES, RUN, SECTIONS, output_of
from tests.docs.pages import FENCE, ROOT, Page, among, numbers
from tests.experiments.programs import succeed

TRAINING = {
    "--data.sentences": "30",
    "--data.held_out": "3",
    "--network.width": "8",
    "--network.feed_forward": "8",
    "--network.heads": "4",
    "--train.steps": "1",
    "--train.report_every": "1",
    "--train.warmup_steps": "1",
    "--train.tokens": "128",
    "--num_samples": "2",
    "--decode.max_new_tokens": "4",
}
TINY = {
    "run": TRAINING,
    "compare": TRAINING | {"--seeds": "0,1"},
    "analyse": {"--sentences": "4", "--relevance": "0"},
    "report": {"--sentences": "4", "--shown": "1", "--num_samples": "2"},
    "prune": {"--sentences": "4", "--timed": "2", "--rounds": "1"},
    "align": {},
}
"""Options of the programs that make a command small."""
REPLACED = {"--gates.start": "-3"}
"""Other values of options where a command has them: after two steps no gate has closed."""
ALONE = {"--train_only", "--data.tasks.names"}
"""Options of comparisons that have one seed here: no later command reads a second one."""
HELD_OUT = "held_out=2000", "sentences=99, held_out=30"
"""Sentences of the texts that are aligned: of the page, and of a test."""


def shrink(program: str, words: list[str]) -> list[str]:
    """The words of a command, with the sizes of a test."""
    sizes = TINY[program] | {name: x for name, x in REPLACED.items() if name in words}
    if ALONE & {*words} and "--seeds" in sizes:
        sizes["--seeds"] = "0"
    dropped = {k for i, word in enumerate(words) if word in sizes for k in (i, i + 1)}
    kept = [word for i, word in enumerate(words) if i not in dropped]
    return [*kept, *chain.from_iterable(sizes.items())]


def execute(words: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a command of a page in this process, small; returns what a program prints."""
    if words == ["make", "run"]:
        words = RUN.split()
    python, file, *rest = words
    if python in ("grep", "head"):  # which print what another command wrote
        assert [*Path().glob(rest[-1])]
        return ""
    if any("-seed2" in word for word in rest):  # no small comparison has a third seed
        return ""
    assert python == "python"
    if file.startswith("experiments/"):
        program = Path(file).stem
        return succeed(f"{program}.py", *shrink(program, rest)).stdout
    monkeypatch.setattr(sys, "argv", [file, *rest])
    runpy.run_path(file, run_name="__main__")
    return ""


@pytest.mark.usefixtures("as_the_programs_do")
def test_every_command_runs_in_the_order_of_the_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later ones use the runs and the files of earlier ones."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    printed: list[str] = []
    for language, text in chain.from_iterable(FENCE.findall(page.text) for page in BOTH):
        if language == "python":
            name = re.match(r"# (\w+\.py)\n", text)
            assert name is not None, text
            Path(name[1]).write_text(text.replace(*HELD_OUT), encoding="utf-8")
        lines = text.replace("\\\n", " ").splitlines() if language == "bash" else ()
        printed += [execute(shlex.split(line, comments=True), monkeypatch) for line in lines]
    assert len(printed) > 15
    assert any(output.startswith("AER 0.") for output in printed)
    assert Path("runs", "report.html").is_file()


def heading_of(value: object) -> str:
    return value.splitlines()[0] if isinstance(value, str) else ""


@pytest.mark.parametrize(("page", "section"), SECTIONS, ids=heading_of)
def test_shown_output_is_that_of_the_commands(page: Page, section: str) -> None:
    """Line by line, in order; ``...`` stands for lines that are left out, or the end of one."""
    blocks = [text for language, text in FENCE.findall(section) if language == "text"]
    printed = iter(output_of(section).read_text("utf-8").splitlines() if blocks else ())
    for line in "".join(blocks).splitlines():
        start, dots, _ = line.partition("...")
        if start.strip():
            equal = (text.startswith(start) if dots else text == line for text in printed)
            assert any(equal), line


@pytest.mark.parametrize(("page", "section"), SECTIONS, ids=heading_of)
def test_figures_of_the_text_are_those_of_the_output(page: Page, section: str) -> None:
    """Or of the first run, which others start with; published ones those of the page of papers."""
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "", FENCE.sub("", section))
    sources = [output_of(section), output_of(SECTIONS[0][1])]
    if page is MINIATURES:
        sources[1] = ROOT / "docs" / "papers.md"
    computed_figures = [numbers(path.read_text("utf-8")) for path in sources if path.is_file()]
    figures = [abs(float(text)) for text in chain.from_iterable(computed_figures)]
    for text in numbers(prose):
        assert among(text.removeprefix("-"), figures), text


@pytest.mark.parametrize("page", BOTH, ids=str)
def test_figures_are_small_files(page: Page) -> None:
    for name in re.findall(r"\]\(([\w-]+\.png)\)", page.text):
        assert (page.path.parent / name).stat().st_size <= 150_000
