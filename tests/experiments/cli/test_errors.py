"""One line and a status, whatever a program ends by; limits that are named."""

from __future__ import annotations

import ast
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from latentheads.checks import check_items, check_least, check_seed
from latentheads.console import print_message
from latentheads.errors import UnfinishedError
from latentheads.experiments.cli.errors import (
    collecting_errors,
    error_handling,
    name_options,
    print_result,
    streaming,
    warn_unknown,
)
from latentheads.files import atomic_write
from latentheads.options import OptionError
from tests.experiments.processes import ended, fork_off
from tests.experiments.programs import ROOT, command, deserted
from tests.typechecking import unchecked

SHORT = "some.py: error: out of memory"
ASKED = "bytes asked for at once"
TORCH = "can't allocate memory: you tried to allocate 51539607552 bytes. Error code 12"
SIZES = "Storage size calculation overflowed with sizes=[1000000000, 1000000000, 1000000000]"
NUMPY = "Unable to allocate 745. GiB for an array with shape (100000000000,) and data type float64"
GLOO = "[/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:44979."
LOST = "some.py: error: lost the connection to another process, whose output may say why"
NAN, HUGE = math.nan, 2**63


@pytest.mark.parametrize(
    ("raised", "status", "line"),
    [
        (ValueError("width must be\neven"), 2, "some.py: error: width must be even"),
        (MemoryError(), 1, f"{SHORT}; half is left"),
        (RuntimeError(TORCH), 1, f"{SHORT}: 51,539,607,552 {ASKED}; half is left"),
        (MemoryError(NUMPY), 1, f"{SHORT}: 745. GiB asked for at once; half is left"),
        (RuntimeError(SIZES), 1, f"{SHORT}; half is left"),
        (RuntimeError(GLOO), 1, f"{LOST}; half is left"),
        (UnfinishedError("a"), 1, "some.py: error: a; half is left"),
        (OSError("disk full"), 1, "some.py: error: disk full; half is left"),
        (FloatingPointError("step 3"), 1, "some.py: error: step 3; half is left"),
        (KeyboardInterrupt(), 130, "some.py: stopped; nothing is left"),
    ],
)
def test_a_program_ends_with_one_line(
    raised: BaseException, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        pytest.raises(SystemExit) as left,
        error_handling("some.py", "half is left", "nothing is left"),
    ):
        raise raised
    assert left.value.code == status
    assert capsys.readouterr() == ("", f"{line}\n")


def test_a_reader_that_goes_away_ends_a_program_in_silence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with deserted(), pytest.raises(SystemExit) as left:
        print_result("some.py", "a table")
    assert left.value.code == 141
    assert capsys.readouterr() == ("", "")


def test_work_whose_reader_goes_away_ends_in_silence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with deserted(), pytest.raises(SystemExit) as left, error_handling("some.py", "half is left"):
        print("half", flush=True)
    assert left.value.code == 141
    assert capsys.readouterr() == ("", "")


def test_what_is_no_mistake_of_the_users_is_not_hidden() -> None:
    with (
        pytest.raises(TypeError, match="own"),
        error_handling("some.py", user_errors=(ValueError,)),
    ):
        raise TypeError("our own")
    with pytest.raises(ValueError, match="own"), error_handling("some.py", user_errors=()):
        raise ValueError("our own")
    for around in (error_handling("some.py"), streaming("some.py")):
        with pytest.raises(RuntimeError, match="own"), around:
            raise RuntimeError("our own")


def test_a_part_with_a_fault_of_its_own_leaves_the_other_parts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A guide of the user's own, say: its writer is told where."""
    failed = list[str]()
    for reason in (RuntimeError("sizes differ"), NameError("no such name"), TypeError("no call")):
        with collecting_errors(failed, "mine", ()):
            raise reason
        assert capsys.readouterr().err.startswith("Traceback")
    assert failed == [
        "mine: RuntimeError: sizes differ",
        "mine: NameError: no such name",
        "mine: no call",
    ]
    with pytest.raises(ValueError, match="own"), collecting_errors(failed, "mine", ()):
        raise ValueError("our own")


def test_a_line_whose_reader_is_gone_ends_no_work() -> None:
    print_message("to nobody", None)
    with deserted():
        for line in ("first", "once more"):
            print_message(line, sys.stdout)
        print("and nothing fails at the end", flush=True)
    full = open("/dev/full", "w")  # noqa: SIM115
    print_message("a line", full)
    with pytest.raises(OSError, match="No space left"):  # what is no mention is not lost in silence
        full.close()


def test_an_option_of_the_library_is_spelled_as_on_the_command_line() -> None:
    error = OptionError("train.stpes", " is not an option", ["train.steps", "train.keep"])
    assert name_options(error) == (
        "--train.stpes is not an option: did you mean --train.steps or --train.keep?"
    )
    assert name_options(OptionError("", ": two\nlines")) == "two lines"
    assert name_options(ValueError("width must be even")) == "width must be even"


def test_a_program_that_streams_ends_with_one_line_for_want_of_memory(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as left, streaming("some.py"):
        raise RuntimeError("CUDA out of memory. Tried to allocate 48.0 GiB. GPU 0 has")
    assert left.value.code == 1
    assert capsys.readouterr() == ("", f"{SHORT}: 48.0 GiB asked for at once\n")


@pytest.mark.parametrize("value", [0, -1, NAN])
def test_a_figure_out_of_range_is_named(value: float) -> None:
    check_least({"num_beams": 1, "num_samples": None}, num_beams=1, num_samples=0)
    with pytest.raises(ValueError, match=f"^num_beams must be at least 1, got {value}$"):
        check_least({"num_beams": value}, num_beams=1)


@pytest.mark.parametrize("value", ["5", 1.5, [2]])
def test_what_is_no_number_and_a_fraction_of_what_is_counted_are_named(value: Any) -> None:
    kind = "whole number" if isinstance(value, float) else "number"
    with pytest.raises(
        ValueError, match=f"^num_beams must be a {kind}, got {re.escape(repr(value))}$"
    ):
        check_least({"num_beams": value}, num_beams=1)
    with pytest.raises(ValueError, match=r"^seed must be a whole number, got "):
        unchecked(check_seed)(value)
    check_least({"noise": 1.5}, noise=0.0)


@pytest.mark.parametrize("value", [HUGE, 1e30, math.inf])
def test_what_is_too_large_is_not_called_too_small(value: float) -> None:
    statement = re.escape(f"length_penalty must be at least 0 and less than 2^63, got {value}")
    with pytest.raises(ValueError, match=f"^{statement}$"):
        check_least({"length_penalty": value}, length_penalty=0)


def test_numbers_named_twice_are_refused() -> None:
    check_items("seeds", [3, 1])
    for items, given in (([3, 3], "3,3"), ([], "none")):
        with pytest.raises(
            ValueError, match=f"^seeds must be at least one, each once, got {given}$"
        ):
            check_items("seeds", items)
    check_seed(HUGE - 1)
    for seed, bound in ((-1, "0"), (HUGE, "0 and less than 2\\^63")):
        with pytest.raises(ValueError, match=f"^seed must be at least {bound}, got {seed}$"):
            check_seed(seed)


def test_ctrl_c_while_libraries_are_loaded_costs_one_line(tmp_path: Path) -> None:
    interrupted = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    for name in ("torch", "numpy", "pandas", "yaml"):
        (tmp_path / f"{name}.py").write_text(interrupted)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command("run.py"), env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == -2  # by SIGINT, which a shell shows as 130
    assert (done.stdout, done.stderr) == ("", "run.py: stopped\n")


BEGINNING = "latentheads.experiments.cli.startup"
PROGRAMS = [
    path
    for folder in (ROOT / "experiments", ROOT / "experiments" / "studies")
    for path in sorted(folder.glob("*.py"))
    if "__main__" in path.read_text()
]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_every_program_minds_ctrl_c_before_it_loads_anything(path: Path) -> None:
    imports = [item for item in ast.parse(path.read_text()).body if isinstance(item, ast.Import)]
    names = [alias.name for node in imports for alias in node.names]
    outside = [n for n in names if n.partition(".")[0] not in sys.stdlib_module_names]
    assert outside[0] == BEGINNING
    froms = [e for e in ast.parse(path.read_text()).body if isinstance(e, ast.ImportFrom)]
    late = [e for e in froms if str(e.module).partition(".")[0] not in sys.stdlib_module_names]
    assert min(e.lineno for e in late) > imports[names.index(BEGINNING)].lineno


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_the_status_of_every_program_is_that_of_its_process(path: Path) -> None:
    *_, main, last = ast.parse(path.read_text()).body
    assert isinstance(main, ast.FunctionDef)
    assert main.returns is not None
    call = {"None": "main()", "int": "sys.exit(main())"}[ast.unparse(main.returns)]
    assert ast.unparse(last) == f"if __name__ == '__main__':\n    {call}"


def test_some_unknown_words_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    warn_unknown("some.py", ["ab", "x" * 99, *map(str, range(9))])
    stderr = capsys.readouterr().err
    cut = "x" * 80 + " ..."
    named = ", ".join(map(str, range(8)))
    assert stderr == f"some.py: not in the vocabulary: ab, {cut}, {named} and 1 more\n"


def stop_while_writing(number: signal.Signals, file: Path) -> None:
    with error_handling("some.py", on_interrupt="nothing is left"), atomic_write(file) as partial:
        partial.write_text("half")
        signal.raise_signal(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_a_file_is_written_leaves_nothing(
    number: signal.Signals, tmp_path: Path
) -> None:
    folder, given_path = tmp_path / "folder", tmp_path / "said"
    folder.mkdir()
    (folder / "file").write_text("older")
    assert (
        ended(fork_off(stop_while_writing, number, folder / "file", path=given_path))
        == 128 + number
    )
    assert given_path.read_text() == "some.py: stopped; nothing is left\n"
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("file", "older")]


def stop_while_cleaning_up() -> None:
    with error_handling("some.py"):
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.raise_signal(number)
            print("cleaned up", flush=True)


def test_further_signals_do_not_break_off_the_cleanup(tmp_path: Path) -> None:
    process = fork_off(stop_while_cleaning_up, path=tmp_path / "said")
    assert ended(process) == 128 + signal.SIGTERM
    assert (tmp_path / "said").read_text() == "cleaned up\nsome.py: stopped\n"
