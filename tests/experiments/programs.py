"""The programs as a user starts them, in this process."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from matplotlib.figure import Figure

from latentheads.contrib.plot import report_sections
from latentheads.experiments.cli.options import read_program
from latentheads.experiments.comparison.recipes import ComparisonOptions, Plan, plan_all
from latentheads.metrics.scores import Scores
from latentheads.runs.reporter import Reporter
from latentheads.runs.results import Results

ROOT = Path(__file__).parents[2]
SMALL = [
    "--data.sentences=60",
    "--data.held_out=12",
    "--network.width=8",
    "--network.feed_forward=8",
    "--network.heads=2",
]
STUDIES = {path.stem for path in (ROOT / "experiments" / "studies").glob("[!_]*.py")}
"""Programs that no wheel holds."""
TINY = [*SMALL, "--decode.max_new_tokens=8"]
"""Of a translation: who has not learned to end a sentence goes on for long."""

SHORT = ["--train.steps=2", "--train.report_every=2", "--train.tokens=128", "--num_samples=2"]
CUDA = pytest.param(
    ["--device", "cuda"],
    marks=pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is here"),
)
"""Words that are a mistake on a machine without a GPU."""

FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
"""Of a test that forks a process which has threads."""


BLANK = b"\x89PNG"
PAINT, PICTURE = Figure.savefig, report_sections._save


@contextmanager
def unpainted() -> Iterator[None]:
    """Figures are made, and their files too, but nothing stands in them.

    Those of a run's report are not even made: that takes longer than a tiny run.
    """

    def write_blank(figure: Figure, path: Path, **_: Any) -> None:
        Path(path).write_bytes(BLANK)

    def leave_blank(reporter: Reporter, name: str, *_: Any) -> None:
        (reporter.folder.path / f"{name}.png").write_bytes(BLANK)

    with (
        mock.patch.object(Figure, "savefig", write_blank),
        mock.patch.object(report_sections, "_save", leave_blank),
    ):
        yield


@contextmanager
def made() -> Iterator[None]:
    """Figures of a run's report are made after all, and nothing stands in their files."""
    with mock.patch.object(report_sections, "_save", PICTURE):
        yield


@contextmanager
def painted() -> Iterator[None]:
    """Figures are made and painted after all."""
    with (
        mock.patch.object(Figure, "savefig", PAINT),
        mock.patch.object(report_sections, "_save", PICTURE),
    ):
        yield


@contextmanager
def deserted() -> Iterator[None]:
    """Standard output is a pipe that nobody reads; that it is closed at the end costs nothing."""
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as pipe, redirect_stdout(pipe):
        yield


def module_of(program: str) -> str:
    """The module of a program, with or without ``.py``."""
    name = program.removesuffix(".py")
    return f"latentheads.experiments.{'studies.' if name in STUDIES else ''}{name}"


def command(name: str, *words: str) -> list[str]:
    file = ROOT / "experiments" / ("studies" if Path(name).stem in STUDIES else "") / name
    return [sys.executable, str(file), *words]


def status_of(main: Callable[[list[str]], Any], *words: str) -> Any:
    """The status that a program ends with in this process."""
    try:
        return main(list(words)) or 0
    except SystemExit as left:
        return left.code or 0


def inside(name: str, *words: str, text: str | bytes = b"") -> subprocess.CompletedProcess[str]:
    """Runs a program in this process, in float32 as a user has it."""
    main = import_module(module_of(name)).main
    given = text.encode() if isinstance(text, str) else text
    out, error = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO()
    before, stdin = torch.get_default_dtype(), sys.stdin
    torch.set_default_dtype(torch.float32)
    sys.stdin = io.TextIOWrapper(io.BytesIO(given))
    try:
        with redirect_stdout(out), redirect_stderr(error):
            status = status_of(main, *words)
    finally:
        torch.set_default_dtype(before)
        sys.stdin = stdin
    statement = out.buffer.getvalue().decode()
    return subprocess.CompletedProcess([*words], status, statement, error.getvalue())


Say = Callable[..., tuple[int, list[str], str]]


def ask(name: str, run: str, text: bytes | str, *words: str) -> tuple[int, list[str], str]:
    """Gives a text to the program of a run: its status, its lines and what it said on stderr."""
    done = inside(name, run, *words, text=text)
    assert done.stdout == "" or done.stdout.endswith("\n")
    return done.returncode, done.stdout.split("\n")[:-1], done.stderr


def results_of(out: Path) -> dict[str, Any]:
    """The content of ``results.json``, with the scores of each part and task by their names."""
    record: dict[str, Any] = json.loads((out / "results.json").read_text("utf-8"))
    parts = {name: Scores.read(record[name]) for name in ("valid", "test", "average")}
    return record | parts | {"tasks": {n: Scores.read(rows) for n, rows in record["tasks"].items()}}


def timeless_results_of(out: Path) -> dict[str, Any]:
    """All that a run has found, but how fast it was."""
    results = results_of(out)
    test = {name: x for name, x in results["test"].items() if name != "sentences_per_second"}
    return {n: x for n, x in results.items() if n != "tokens_per_second"} | {"test": test}


def report_of(out: Path) -> Results:
    """All that a run has found, typed."""
    return Results.read(json.loads((out / "results.json").read_text("utf-8")))


def assert_one_line(done: subprocess.CompletedProcess[str], program: str, status: int = 2) -> None:
    """A mistake costs one line on standard error, and nothing on standard output."""
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(f"{program}: ")
    assert done.stderr.count("\n") == 1


def succeed(name: str, *words: str, text: str | bytes = b"") -> subprocess.CompletedProcess[str]:
    """Runs a program in this process to its good end."""
    done = inside(name, *words, text=text)
    assert done.returncode == 0, done.stderr
    return done


def assert_refused(
    name: str, *words: str, says: str, text: str | bytes = b"", quiet: bool = True
) -> None:
    """A mistake costs one line, and the line says so; ``quiet`` if nothing is printed before."""
    done = inside(name, *words, text=text)
    assert done.returncode == 2
    assert done.stdout == "" or not quiet
    assert done.stderr.startswith(f"{name}: error: ")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


def plans_of(out: Path, *words: str) -> list[Plan]:
    """The runs of a comparison's command line."""
    kind = ComparisonOptions
    common, line, options = read_program([*words, f"--out={out}"], "compare.py", "", kind)
    return plan_all(common, line, options, out, "compare.py")
