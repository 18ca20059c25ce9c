"""Plain values, as annotations want them and as JSON has them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from torch import nn

from latentheads.decoding.translate import Decoding
from latentheads.models import Network
from latentheads.training.options import Training
from latentheads.values import (
    OPTION_ALIASES,
    CommandLineText,
    convert,
    convert_fields,
    finite,
    make_group,
    shown,
)


def test_numbers_that_json_does_not_know_become_null_however_deep_they_stand() -> None:
    said = {"a": [1, math.nan, (math.inf, 2.5)], "b": {"c": -math.inf, "d": "nan", "e": None}}
    found = {"a": [1, None, [None, 2.5]], "b": {"c": None, "d": "nan", "e": None}}
    assert finite(said) == found
    assert json.loads(json.dumps(finite(said), allow_nan=False)) == found


Colour = Enum("Colour", ["red", "green"])


@dataclass(frozen=True)
class Options:
    size: int = 3
    names: tuple[str, ...] = ()
    norm: Literal["pre", "post"] = "pre"
    share: float | None = None
    out: Path = Path()
    heads: str | int = ""
    told: Mapping[str, Any] = field(default_factory=dict)
    loud: bool = False


def test_options_are_converted_as_their_annotations_want_them() -> None:
    names: Any = [Path("a"), np.str_("b")]
    norm: Any = np.str_("post")
    options = Options(np.int64(5), names, norm, np.float32(0.5), "here")  # type: ignore[arg-type]
    convert_fields(options)
    assert options == Options(5, ("a", "b"), "post", 0.5, Path("here"))
    assert {type(name) for name in options.names} == {str}
    kinds = [type(value) for value in vars(options).values()]
    assert kinds[:4] == [int, tuple, str, float]
    options = Options(loud=np.True_)  # type: ignore[arg-type]
    convert_fields(options)
    assert options.loud is True


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": True}, "size must be a whole number, got True"),
        ({"size": 2.0}, "size must be a whole number, got 2.0"),
        ({"names": "ab"}, "names must be a list of texts, got 'ab'"),
        ({"norm": "both"}, "norm must be one of pre, post; got 'both'"),
        ({"norm": ["pre"]}, "norm must be one of pre, post; got ['pre']"),
        ({"share": "x"}, "share must be a number, got 'x'"),
        ({"heads": [3]}, "heads must be a text or a whole number, got [3]"),
        ({"told": 3}, "told must be a mapping, got 3"),
        ({"told": CommandLineText("{a")}, "told must be a mapping, got '{a'"),
        ({"told": CommandLineText("{a: 1, a: 2}")}, "told must be a mapping, got '{a: 1, a: 2}'"),
        ({"loud": 1}, "loud must be true or false, got 1"),
        ({"out": nn.Linear(2, 3)}, "out must be a path, got Linear(in_features=2, out_features=3"),
        ({"out": nn.Sequential(nn.Tanh())}, "out must be a path, got Sequential"),
    ],
)
def test_an_option_of_another_kind_costs_one_line(options: Any, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        convert_fields(Options(**options))
    assert str(refused.value).startswith(message)
    assert len(str(refused.value).splitlines()) == 1


def test_a_name_of_an_enum_is_its_member_and_another_is_refused() -> None:
    assert convert("colour", Colour, "green") is Colour.green
    with pytest.raises(ValueError, match=r"^colour must be one of red, green; got 'pink'$"):
        convert("colour", Colour, "pink")


def test_a_long_value_is_shown_in_part() -> None:
    assert shown("x" * 200) == "'" + "x" * 79 + " ..."


def test_names_of_other_programs_lead_to_options_that_exist() -> None:
    groups = {"train": Training, "decode": Decoding, "network": Network}
    for alias, option in OPTION_ALIASES.items():
        group, _, name = option.rpartition(".")
        if group in groups:
            with pytest.raises(ValueError, match=f"^unknown option '{alias}': did you mean {name}"):
                make_group(groups[group], {alias: 1})
