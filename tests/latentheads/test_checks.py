"""Words of options are refused in one form, and their lists are read by one rule."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from latentheads.checks import (
    check_choice,
    check_number,
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
