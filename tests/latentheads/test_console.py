"""Lines on standard output and standard error."""

from __future__ import annotations

import io

import pytest

from latentheads.console import print_message


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
