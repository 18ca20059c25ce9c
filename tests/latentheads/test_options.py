"""Options as nested plain values: read, written, merged, and refused in one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from latentheads.values import CommandLineText, Flag

from latentheads.data import Data, Grammar, Pairs
from latentheads.latents.logits.options import PriorSpec
from latentheads.options import OptionError, flatten, from_dict, merge, options_of, to_dict
from latentheads.runs.settings import Settings
from latentheads.training.options import NAGOptimizer, Training
from tests.typechecking import unchecked


@dataclass(frozen=True)
class Shape:
    """A choice of classes."""

    @classmethod
    def choices(cls) -> Mapping[str, type[Shape]]:
        return {"round": Round, "long-box": LongBox}


@dataclass(frozen=True)
class Round(Shape):
    radius: float = 1.0


@dataclass(frozen=True)
class LongBox(Shape):
    width: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Needed:
    """A group whose first option has to be given."""

    kinds: str
    weight: float = 1.0


@dataclass(frozen=True)
class Inner:
    radius: float = 1.0

    def __post_init__(self) -> None:
        if self.radius < 0:
            raise ValueError(f"radius must be at least 0, got {self.radius}")


@dataclass(frozen=True)
class All:
    shape: Shape = Round(2.0)
    needed: Needed | None = None
    inner: Inner = field(default_factory=Inner)
    size: int = 3

    def __post_init__(self) -> None:
        if self.size > 9:
            raise ValueError(f"size must be at most 9, got {self.size}")


@pytest.mark.parametrize(
    ("values", "made"),
    [
        ({}, All()),
        ({"shape": "long-box", "size": 4}, None),
        ({"shape": {"class": "long-box", "width": 2}}, All(LongBox(2))),
        ({"shape": {"class": "LongBox", "width": 2}}, All(LongBox(2))),
        ({"shape": {"class": "long_box", "width": CommandLineText("2")}}, All(LongBox(2))),
        ({"shape": "round"}, All(Round())),
        ({"shape": {"radius": 5}}, All(Round(5.0))),
        ({"needed": "a,b"}, All(needed=Needed("a,b"))),
        ({"needed": {"class": "a", "weight": 3}}, All(needed=Needed("a", 3.0))),
        ({"needed": CommandLineText("none")}, All()),
        ({"needed": None}, All()),
    ],
)
def test_a_class_is_made_of_nested_values(values: dict[str, Any], made: All | None) -> None:
    if made is None:
        with pytest.raises(OptionError, match=r"^shape\.width is missing$"):
            from_dict(All, values)
    else:
        assert from_dict(All, values) == made


def test_options_go_to_plain_values_and_back() -> None:
    one = All(LongBox(4, ("a", "b")), Needed("a"), size=5)
    plain = to_dict(one)
    assert plain == {
        "shape": {"class": "long-box", "width": 4, "names": ["a", "b"]},
        "needed": {"kinds": "a", "weight": 1.0},
        "inner": {"radius": 1.0},
        "size": 5,
    }
    assert from_dict(All, plain) == one
    training = Training(optimizer=NAGOptimizer(momentum=0.9))
    assert from_dict(Training, to_dict(training)) == training
    assert unchecked(from_dict)(Data, to_dict(Pairs(folder="x", source="a"))) == Pairs(
        folder="x", source="a"
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sise": 3}, "sise is not an option: did you mean size?"),
        ({"radius": 3}, "radius is not an option: did you mean shape.radius or inner.radius?"),
        ({"xyz": 3}, "xyz is not an option: choose from shape, needed, inner, size"),
        ({"size": "x"}, "size must be a whole number, got 'x'"),
        ({"size": Flag()}, "size must be a whole number, got no value"),
        ({"size": 10}, "size must be at most 9, got 10"),
        ({"inner": {"radius": -1}}, "inner.radius must be at least 0, got -1.0"),
        ({"inner": 3}, "inner is a group of options: name one of them, as inner.radius"),
        ({"shape": "flat"}, "shape must be one of round, long-box; got 'flat'"),
        ({"shape": {"class": None}}, "shape must be one of round, long-box; got 'none'"),
        ({"shape": {"width": 3}}, "shape.width is not an option of round, but of long-box"),
        ({"shape": {"radus": 3}}, "shape.radus is not an option: did you mean shape.radius?"),
        ({"shape": {"class": "long-box", "width": None}}, "shape.width must be a whole number"),
        ({"needed": {"weight": 2}}, "needed.kinds is missing"),
        ({"needed": {"kinds": "a", "weight": {"b": 1}}}, "needed.weight must be a number, got {'b"),
    ],
)
def test_a_mistake_begins_with_the_path_of_its_option(values: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        from_dict(All, values)
    assert str(refused.value).startswith(message)
    assert message.startswith(refused.value.path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"momentum": 0.9}, "momentum is not an option: did you mean train.optimizer.momentum?"),
        ({"candidates": 9}, "candidates is not an option: did you mean selection.candidates?"),
        ({"guide": {"class": "cascaded", "hidden": "x"}}, "guide.hidden must be a whole number"),
        ({"guide": {"hiden": 3}}, "guide 'cascaded' has no option 'hiden'; it has hidden"),
        ({"latents": "none", "logits": {"blocks": "all"}}, "logits is not latent: say latents log"),
        (
            {"train": {"schedule": {"period": 3}}},
            "train.schedule.period is not an option of linear, b",
        ),
    ],
)
def test_so_does_one_in_the_settings_of_a_run(values: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        Settings.from_options(values)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("below", "above", "merged"),
    [
        ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}),
        ({"d": {"class": "x", "f": 1}}, {"d": {"g": 2}}, {"d": {"class": "x", "f": 1, "g": 2}}),
        ({"d": {"class": "x", "f": 1}}, {"d": {"class": "y"}}, {"d": {"class": "y"}}),
        ({"d": {"class": "x", "f": 1}}, {"d": "x"}, {"d": {"class": "x", "f": 1}}),
        ({"d": {"class": "x", "f": 1}}, {"d": "none"}, {"d": None}),
        ({"d": "x"}, {"d": {"f": 1}}, {"d": {"class": "x", "f": 1}}),
        ({"d": None}, {"d": {"f": 1}}, {"d": {"f": 1}}),
        ({"d": "x"}, {"d": "y"}, {"d": "y"}),
    ],
)
def test_values_are_laid_over_others(below: Any, above: Any, merged: Any) -> None:
    assert merge(below, above) == merged


def test_nested_values_stand_side_by_side() -> None:
    assert flatten({"a": {"b": 1, "c": {"d": 2}}, "e": [3]}) == {"a.b": 1, "a.c.d": 2, "e": [3]}


def test_every_default_of_an_option_is_what_its_annotation_wants() -> None:
    assert unchecked(from_dict)(Data, "grammar") == Grammar()
    assert set(options_of(PriorSpec)) == {"name", "options"}
    assert from_dict(PriorSpec, {"class": "cascaded", "scale": 2}).options == {"scale": 2.0}
    assert to_dict(from_dict(PriorSpec, "cascaded"))["hidden"] == 4
