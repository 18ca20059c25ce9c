"""JSON and YAML of others: refused before they are built."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import yaml

from latentheads.plain import parse_json, parse_yaml

VALUES = [True, False, None, 0, -7, 1.0, -2.5e-05, 1e300, math.inf, -math.inf]
DEEP = "lists and mappings may be nested at most 32 deep"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 99)), "alias *a0: aliases"),
        ("a: &a [*a]", "alias *a: aliases are not accepted"),
        ("[" * 5000, DEEP),
        ("- " * 5000, DEEP),
        ("? " * 5000, DEEP),
        ("{a: " * 5000, DEEP),
        ("a: 1 #" + "." * 2**16, "at most 65,536 characters are accepted, got 65,542"),
        ("a: !!python/object:os.system {}", "python/object:os.system': only plain"),
        ("a: !!python/object/apply:os.system [ls]", "only plain values are accepted"),
        ("a: 1\nb: {c: 1, d: 2, c: 3}", "key 'c' is repeated: name it once in a mapping"),
        ("!!bool x", "tag 'tag:yaml.org,2002:bool': only plain values"),
        ("a: " + "9" * 5000, "Exceeds the limit"),
        ("a: [", "not YAML: while parsing"),
        ("a: [1\nb: 2", "line 1, column 4, expected ',' or ']', but got ':' in line 2, column 2"),
        ("a: b: c", "not YAML: mapping values are not allowed here in line 1, column 5"),
        ("? [a]\n: b", "not YAML: while constructing a mapping"),
        ("a: 1\n---\nb: 2", "not YAML: expected a single document"),
        ("a\0", "not YAML: unacceptable character"),
    ],
)
def test_yaml_beyond_its_limits_costs_one_line(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_yaml(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "<unicode string>" not in str(caught.value)


def test_plain_yaml_is_what_it_says() -> None:
    text = "a: [1, 2.5, null, true]\nb: {c: x}\n"
    assert parse_yaml(text) == {"a": [1, 2.5, None, True], "b": {"c": "x"}}
    assert parse_yaml("[" * 32 + "]" * 32) == json.loads("[" * 32 + "]" * 32)
    assert parse_yaml("") is None
    assert parse_yaml("0x1F") == 31


@pytest.mark.parametrize(
    "text",
    [
        *("no", "No", "on", "off", "yes", "012", "0b11", "0x1_F", "1_000", "12:30", "1:30.5"),
        *("2020-01-01", "<<", "=", "1e-3"),
    ],
)
def test_words_that_yaml_1_1_alone_has_are_texts(text: str) -> None:
    assert parse_yaml(f"{text}: {text}") == {text: text}
    assert parse_yaml(yaml.safe_dump([text])) == [text]


@pytest.mark.parametrize(
    "value", ["true", "null", "", "-7", "0", "1.5e-3", ".5", "0x1F", ".inf", ".nan", "~", *VALUES]
)
def test_what_is_written_is_read_as_the_same(value: Any) -> None:
    assert parse_yaml(yaml.safe_dump([value])) == [value]


@pytest.mark.parametrize(
    "text", ["[" * 10**5, '{"a":' * 10**5, "[" * 33 + "]" * 33, "9" * 5000, "{"]
)
def test_json_beyond_its_limits_costs_one_line(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_json(text)
    assert "\n" not in str(caught.value)


def test_plain_json_is_what_it_says() -> None:
    deep = '{"a":' * 31 + "[]" + "}" * 31
    assert parse_json(deep) == json.loads(deep)
    assert parse_json('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}
