"""Progress: a live line at a terminal, few lines in a file, nothing where nobody asked."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from latentheads.training.progress import ProgressDisplay
from tests.terminal import Terminal


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def lines_of(seconds: float, updates: int) -> list[str]:
    """What a file says of updates that take so many seconds each."""
    file, clock = io.StringIO(), Clock()
    with ProgressDisplay(updates, file=file, clock=clock) as display:
        for step in range(1, updates + 1):
            clock.now += seconds
            display.advance(step)
            if step == 7:
                display.log_evaluation("bound -1.5")
    return file.getvalue().splitlines()


def test_a_file_gets_a_line_after_ten_seconds_half_a_minute_a_minute_then_each_minute() -> None:
    lines = lines_of(1.0, 250)
    actual = [line.partition(",")[0] for line in lines]
    assert actual == [f"step {n} of 250" for n in (10, 30, 60, 120, 180, 240, 250)]
    assert lines[0] == "step 10 of 250, 1 steps/s, about 4 min left; at 7: bound -1.5"
    assert lines[-1] == "step 250 of 250, 1 steps/s; at 7: bound -1.5"


def test_a_thousand_updates_a_second_cost_one_line() -> None:
    assert [line.partition(",")[0] for line in lines_of(1e-3, 999)] == ["step 999 of 999"]


def test_slow_updates_are_never_told_twice() -> None:
    assert len(lines_of(100.0, 3)) == 3


def test_who_is_quiet_says_nothing() -> None:
    file = io.StringIO()
    with ProgressDisplay(2, quiet=True, file=file) as display:
        display.advance(2)
        display.log_evaluation("bound")
    assert file.getvalue() == ""


def test_what_is_broken_off_has_no_last_line() -> None:
    file = io.StringIO()
    display = ProgressDisplay(2, file=file)
    display.advance(1)
    display.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert file.getvalue() == ""


def test_a_terminal_has_one_live_line_that_goes_on_where_training_does() -> None:
    file = Terminal()
    with ProgressDisplay(9, 5, file=file) as display:
        display.advance(9)
        display.log_evaluation("bound -1.5")
    last = file.getvalue().split("\r")[-1]
    assert "9/9" in last
    assert "bound -1.5" in last
    assert file.getvalue().count("\n") == 1


def test_a_notebook_has_one_output_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    shell, states = SimpleNamespace(config={"IPKernelApp": {}}), []

    class Handle:
        def update(self, shown: dict, raw: bool) -> None:
            states.append(shown["text/plain"])

    def display(shown: dict, raw: bool, display_id: bool) -> Handle:
        states.append(shown["text/plain"])
        return Handle()

    kernel = {"IPython": SimpleNamespace(get_ipython=lambda: shell)}
    kernel["IPython.display"] = SimpleNamespace(display=display)
    for name, module in kernel.items():
        monkeypatch.setitem(sys.modules, name, module)
    clock, file = Clock(), Terminal()
    with ProgressDisplay(100, file=file, clock=clock) as shown:
        for step in range(1, 101):
            clock.now += 0.0625
            shown.advance(step)
        shown.log_evaluation("bound -1.5")
    assert [line.partition(",")[0] for line in states[:3]] == [
        f"step {n} of 100" for n in (1, 9, 17)
    ]
    assert (len(states), states[-1]) == (14, "step 100 of 100, 16 steps/s; bound -1.5")
    assert file.getvalue() == ""


def test_a_shell_that_is_no_notebook_has_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace(config={})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert lines_of(1.0, 7) == ["step 7 of 7, 1 steps/s; bound -1.5"]
