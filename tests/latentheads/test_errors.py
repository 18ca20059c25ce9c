"""What is said in one line reaches a terminal as text alone."""

from __future__ import annotations

import io

from latentheads.errors import print_message, printable, shown


def test_control_characters_are_written_out() -> None:
    assert printable("a\x1b[31m\u202eb\nc\td") == "a\\x1b[31m\\u202eb\nc\td"
    assert printable("a\nb", allowed="") == "a\\nb"
    file = io.StringIO()
    print_message("written to \x1b[31m", file)
    assert file.getvalue() == "written to \\x1b[31m\n"


def test_a_long_value_is_shown_in_part() -> None:
    assert shown("x" * 200) == "'" + "x" * 79 + " ..."
