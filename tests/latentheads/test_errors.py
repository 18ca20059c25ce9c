"""What is said in one line reaches a terminal as text alone."""

from __future__ import annotations

from latentheads.errors import shown


def test_a_long_value_is_shown_in_part() -> None:
    assert shown("x" * 200) == "'" + "x" * 79 + " ..."
