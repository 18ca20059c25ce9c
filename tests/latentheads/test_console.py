"""Lines on standard output and standard error."""

from __future__ import annotations

import io
import sys

import pytest

from latentheads import console
from latentheads.console import bars_shown, print_message, show_progress
from tests.terminal import Terminal, showing_progress


class Stopped(io.StringIO):
    """A stream in which Ctrl-C is pressed as soon as something is written."""

    def write(self, text: str) -> int:
        super().write(text)
        raise KeyboardInterrupt


def test_ctrl_c_leaves_no_line_without_its_end() -> None:
    stream = Stopped()
    with pytest.raises(KeyboardInterrupt):
        print_message("step 1 of 2", stream)
    assert stream.getvalue() == "step 1 of 2\n"


def test_what_takes_long_shows_a_bar_in_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for file, seconds, is_shown in (
        (Terminal(), 0.0, True),
        (Terminal(), 60.0, False),
        (io.StringIO(), 0.0, False),
    ):
        monkeypatch.setattr(sys, "stderr", file)
        monkeypatch.setattr(console, "DELAY", seconds)
        assert list(show_progress([3, 4], "counting", "number")) == [3, 4]
        assert ("counting" in file.getvalue()) == is_shown
    with showing_progress() as stream:
        for are_shown in (False, True):
            assert "counting" not in stream.getvalue()
            with bars_shown(are_shown):
                assert list(show_progress([3, 4], "counting", "number")) == [3, 4]
        assert "counting" in stream.getvalue()
