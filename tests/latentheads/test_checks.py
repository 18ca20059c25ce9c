"""Words of options are refused in one form."""

from __future__ import annotations

import pytest

from latentheads.checks import check_known, check_word, check_words


def test_a_word_that_an_option_does_not_know_is_refused_with_those_that_it_knows() -> None:
    check_word("part", "valid", ("valid", "test"))
    with pytest.raises(ValueError, match=r"^part must be one of valid, test; got 'dev'$"):
        check_word("part", "dev", ("valid", "test"))


def test_of_several_options_the_first_wrong_word_is_refused() -> None:
    known = {"side": ("source", "target"), "part": {"valid": 1, "test": 2}}
    check_words({"side": "target", "part": "test"}, **known)
    with pytest.raises(ValueError, match=r"^part must be one of valid, test; got None$"):
        check_words({"side": "source", "part": None}, **known)


def test_a_name_that_nothing_has_is_refused_with_those_that_there_are() -> None:
    check_known("prior", "delta", {"delta": 1, "coda": 2})
    with pytest.raises(ValueError, match=r"^unknown prior 'dlta': choose from delta, coda$"):
        check_known("prior", "dlta", {"delta": 1, "coda": 2})
    with pytest.raises(ValueError, match=r"^unknown task 'de' of x: choose from en, or none$"):
        check_known("task", "de", ("en",), "x", ", or none")
