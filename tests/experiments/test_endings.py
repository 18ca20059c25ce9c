"""One line and a status, whatever a program ends by; limits that are named."""

from __future__ import annotations

import ast
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.experiments.programs import ROOT, command

NAN, HUGE = math.nan, 2**63


@pytest.mark.parametrize(
    ("raised", "status", "line"),
    [
        (ValueError("width must be\neven"), 2, "some.py: error: width must be even"),
        (OSError("disk full"), 1, "some.py: error: disk full; half is left"),
        (FloatingPointError("step 3"), 1, "some.py: error: step 3; half is left"),
        (KeyboardInterrupt(), 130, "some.py: stopped; nothing is left"),
        (OSError("a\x1b[2J\nb é"), 1, "some.py: error: a\\x1b[2J\\nb é; half is left"),
    ],
)
def test_a_program_ends_with_one_line(
    raised: BaseException, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from endings import ending

    with pytest.raises(SystemExit) as left, ending("some.py", "half is left", "nothing is left"):
        raise raised
    assert left.value.code == status
    assert capsys.readouterr() == ("", f"{line}\n")


def test_what_is_no_mistake_of_the_users_is_not_hidden() -> None:
    from endings import ending

    with pytest.raises(TypeError, match="own"), ending("some.py", mistakes=(ValueError,)):
        raise TypeError("our own")
    with pytest.raises(ValueError, match="own"), ending("some.py", mistakes=()):
        raise ValueError("our own")


@pytest.mark.parametrize("value", [0, -1, NAN, math.inf, HUGE])
def test_a_figure_out_of_range_is_named(value: float) -> None:
    from limits import check_least

    check_least({"beam": 1, "draws": None}, beam=1, draws=0)
    with pytest.raises(ValueError, match=f"^beam must be at least 1, got {value}$"):
        check_least({"beam": value}, beam=1)


def test_numbers_are_read_and_those_named_twice_refused() -> None:
    from limits import check_seed, distinct, whole_numbers

    assert whole_numbers("seeds", "3, 1") == [3, 1]
    with pytest.raises(ValueError, match=r"^seeds must be whole numbers with commas between, got"):
        whole_numbers("seeds", "3,x")
    distinct("seeds", [3, 1])
    with pytest.raises(ValueError, match=r"^seeds must differ from each other, got 3,3$"):
        distinct("seeds", [3, 3])
    check_seed(HUGE - 1)
    for seed in (-1, HUGE):
        with pytest.raises(ValueError, match=f"^seed must lie between 0 and 2\\^63, got {seed}$"):
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


PROGRAMS = [
    path for path in sorted((ROOT / "experiments").glob("*.py")) if "__main__" in path.read_text()
]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_every_program_minds_ctrl_c_before_it_loads_anything(path: Path) -> None:
    imports = [each for each in ast.parse(path.read_text()).body if isinstance(each, ast.Import)]
    names = [alias.name for each in imports for alias in each.names]
    assert next(n for n in names if n not in sys.stdlib_module_names) == "beginning"
    froms = [e for e in ast.parse(path.read_text()).body if isinstance(e, ast.ImportFrom)]
    late = [e for e in froms if str(e.module).partition(".")[0] not in sys.stdlib_module_names]
    assert min(e.lineno for e in late) > imports[names.index("beginning")].lineno
