"""Words of options are refused in one form, and their lists are read by one rule."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest

from latentheads.checks import (
    check_as_many,
    check_choice,
    check_fraction,
    check_list,
    check_not_empty,
    check_number,
    check_positive,
    check_within,
)
from latentheads.contrib.hf.addresses import parse_blocks
from latentheads.data import Grammar, Tasks
from latentheads.experiments.cli.parser import typed
from latentheads.experiments.studies.gpu import parts
from latentheads.latents.options import ModelShape
from latentheads.latents.selection.options import SelectionOptions
from latentheads.latents.selection.strategies import StaticStrategy
from latentheads.models.mixing import parse_mixers
from latentheads.names import Block, parse_attention_types
from latentheads.runs.settings import DisagreementOptions, trusted_paths


def test_a_word_that_an_option_does_not_know_is_refused_with_those_that_it_knows() -> None:
    check_choice("part", "valid", ("valid", "test"))
    with pytest.raises(ValueError, match=r"^part must be one of valid, test; got 'dev'$"):
        check_choice("part", "dev", ("valid", "test"))
    with pytest.raises(ValueError, match=r"^task must be one of en, or none; got 'de'$"):
        check_choice("task", "de", {"en": 1}, ", or none")


@pytest.mark.parametrize(
    ("check", "good", "bad", "message"),
    [
        (lambda x: check_within("size", x, 1, 3), [1, 3], [0, 4, nan], "size must lie in 1 ... 3"),
        (lambda x: check_fraction("rate", x), [0.1], [0, 1, nan], "rate must be above 0 and"),
        (lambda x: check_positive("tau", x), [1, 0.1], [0, nan, inf], "tau must be positive and"),
        (lambda x: check_list("texts", x), [["a"], ()], ["a", 3], "texts must be a list, got "),
        (lambda x: check_not_empty("runs", x), ["a", [0]], [[], {}], "runs must be at least one"),
        (
            lambda x: check_as_many("targets", x, "inputs", "ab"),
            [[1, 2]],
            [[], "abc"],
            "targets must be as many as inputs, 2, got ",
        ),
    ],
)
def test_what_is_out_of_range_is_named(
    check: Callable[[Any], None], good: list[Any], bad: list[Any], message: str
) -> None:
    for value in good:
        check(value)
    for value in bad:
        with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
            check(value)


BLOCKS = [Block("decoder-self", 0, 2), Block("decoder-cross", 0, 2)]
LANGUAGES = ("de", "en", "fr")


def families(text: str) -> object:
    shape = ModelShape(2, ("decoder-self",), sources=LANGUAGES, targets=LANGUAGES)
    return SelectionOptions(StaticStrategy(text)).make(shape)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (typed(tuple[int, ...]), "0,1"),
        (parse_attention_types, "decoder-self,decoder-cross"),
        (lambda text: Grammar(tasks=Tasks(text)).mixture, "velu,mira"),
        (lambda text: DisagreementOptions(text).term, "position,output"),
        (trusted_paths, "mine:One,mine:Two"),
        (lambda text: parse_blocks(text, BLOCKS), "decoder-self,decoder-cross"),
        (families, "de,en|fr"),
        (
            lambda text: parse_mixers(text, "", "", "decoder", 2),
            "encoder=local decoder=ngram,local",
        ),
        (parts, "suite,bench"),
    ],
)
def test_blanks_around_the_commas_and_bars_of_a_list_change_nothing(
    read: Callable[[str], object], text: str
) -> None:
    spaced = text.replace(",", " ,  ").replace("|", " | ")
    assert repr(read(spaced)) == repr(read(text))


@pytest.mark.parametrize("whole", [False, True])
def test_a_truth_value_is_no_number(whole: bool) -> None:
    with pytest.raises(ValueError, match=r"^num_samples must be a (whole )?number, got True$"):
        check_number("num_samples", True, whole)
