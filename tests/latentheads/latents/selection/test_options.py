"""Options of a selection: those of a strategy stand in its class."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from latentheads.latents.selection.options import SelectionOptions
from latentheads.latents.selection.strategies import (
    STRATEGIES,
    GroupStrategy,
    SelectionStrategy,
    StaticStrategy,
    Strategy,
    make_selector,
)
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
    selector = SelectionOptions(name, "decoder-self").selector(3, ("de", "nl"), ("en",))
    candidates = 0 if name == "static" else 6
    assert selector == make_selector(name, 3, candidates, ("decoder-self",), 2, 1)
    options = SelectionOptions(name, "decoder-self")
    assert (options.label, options.fixes_task_weights) == (name, name == "static")


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


@pytest.mark.parametrize(
    ("given", "sources", "targets", "advice"),
    [
        ("group", ("en",), ("de", "nl"), "encoder-self, where there is one task: decoder-self"),
        ("group", ("de", "nl"), ("en",), "decoder-self, where there is one task: encoder-self"),
        ("group", ("de", "nl"), ("de", "nl"), ""),
        ("group", ("en",), ("de",), ""),
        ("static", ("en",), ("de", "nl"), ""),
    ],
)
def test_candidates_that_no_task_needs_are_named(
    given: Strategy, sources: tuple[str, ...], targets: tuple[str, ...], advice: str
) -> None:
    options = SelectionOptions(given)
    selector = options.selector(2, sources, targets)
    types = ("encoder-self", "decoder-self")
    blocks = [SimpleNamespace(block=SimpleNamespace(attention_type=name)) for name in types]
    model: Any = SimpleNamespace(selector=selector, selecting_blocks=blocks)
    acts, _, others = advice.partition(": ")
    said = f"selection also acts on {acts}: selection.blocks {others} leaves it out"
    assert options.advice(model) == (said if advice else "")
