"""Options of a selection: those of a strategy stand in its class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import pytest

from latentheads.latents.options import ModelShape
from latentheads.latents.selection.options import SelectionOptions
from latentheads.latents.selection.strategies import (
    STRATEGIES,
    GroupStrategy,
    SelectionStrategy,
    StaticStrategy,
    Strategy,
    make_selector,
)
from latentheads.names import ATTENTION_TYPES
from latentheads.options import OptionError, from_dict, to_dict
from tests.typechecking import unchecked


def test_an_editor_completes_the_names_that_there_are() -> None:
    assert get_args(Strategy) == tuple(STRATEGIES) == tuple(SelectionStrategy.choices())


@pytest.mark.parametrize(
    ("given", "strategy"),
    [
        ("group", GroupStrategy()),
        ({"class": "group", "candidates": 6}, GroupStrategy(6)),
        (StaticStrategy("de,nl"), StaticStrategy("de,nl")),
    ],
)
def test_a_strategy_is_a_name_or_a_class_with_options(
    given: Any, strategy: SelectionStrategy
) -> None:
    options = SelectionOptions(given)
    assert options.strategy == strategy
    assert from_dict(SelectionOptions, to_dict(options)) == options


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_makes_its_selector(name: Strategy) -> None:
    shape = ModelShape(3, ATTENTION_TYPES, sources=("de", "nl"), targets=("en",))
    selector = SelectionOptions(name, "decoder-self").make(shape)
    candidates = 0 if name == "static" else 6
    assert selector == make_selector(name, 3, candidates, ("decoder-self",), 2, 1)
    options = SelectionOptions(name, "decoder-self")
    assert (options.label, options.fixes_task_weights) == (name, name == "static")
    assert not options.acts_on_encoder
    assert SelectionOptions(name).acts_on_encoder


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidates": 6}, "candidates is not an option: did you mean strategy.candidates?"),
        ({"families": "de"}, "families is not an option: did you mean strategy.families?"),
        (
            {"strategy": {"class": "static", "candidates": 6}},
            "strategy.candidates is not an option of static, but of bernoulli, subset, group",
        ),
        (
            {"strategy": {"families": "de"}},
            "strategy.families is not an option of bernoulli, but of static",
        ),
    ],
)
def test_an_option_without_effect_cannot_be_said(options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        unchecked(SelectionOptions)(**options)
    assert str(refused.value) == message


def test_tasks_of_a_family_share_a_set_and_others_have_one_of_their_own() -> None:
    sets = StaticStrategy("nl,de").arguments(3, ("en", "de"), ("de", "fr", "nl", "cs"))
    assert sets == {"source_sets": (0, 1), "target_sets": (0, 1, 0, 2)}


BOTH = ("encoder-self", "decoder-self")


@pytest.mark.parametrize(
    ("blocks", "sources", "targets", "selecting"),
    [
        ("auto", ("en",), ("de", "nl"), BOTH[1:]),
        ("auto", ("de", "nl"), ("en",), BOTH[:1]),
        ("auto", ("de", "nl"), ("de", "nl"), BOTH),
        ("auto", ("en",), ("de",), BOTH),
        ("encoder-self", ("en",), ("de", "nl"), BOTH[:1]),
        ("all", ("en",), ("de", "nl"), ATTENTION_TYPES),
    ],
)
def test_the_sides_with_several_tasks_select(
    blocks: str, sources: tuple[str, ...], targets: tuple[str, ...], selecting: tuple[str, ...]
) -> None:
    shape = ModelShape(2, ATTENTION_TYPES, sources=sources, targets=targets)
    assert SelectionOptions("group", blocks).make(shape).attention_types == selecting


def test_a_language_model_selects_in_its_decoder() -> None:
    for tasks in (("news",), ("news", "talk")):
        shape = ModelShape(2, BOTH[1:], sources=tasks, targets=tasks)
        assert SelectionOptions("group").make(shape).attention_types == BOTH[1:]
