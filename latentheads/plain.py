"""Plain values in JSON and YAML of limited depth; YAML without references, tags or repeated keys.

Neither JSON nor YAML can run code here, but a short text of either can exhaust memory: the depth of
its content is checked before it is traversed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import yaml

from latentheads.errors import shorten

MAX_YAML_BYTES = 2**16
"""Most bytes of a configuration: a long one has a tenth of them."""

MAX_YAML_ERROR = 400
"""Most characters of an error of PyYAML, which may quote the file."""

MAX_DEPTH = 32
"""Most levels of nested lists and mappings."""


def parse_json(text: str) -> Any:
    """Parses JSON.

    Raises:
        ValueError: It is not JSON, or nested too deeply.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise _too_deep() from None
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in _nested(parent)]
        if not level:
            return value
    raise _too_deep()


def parse_yaml(text: str) -> Any:
    """Parses YAML of plain values.

    Raises:
        ValueError: It is not YAML, too long or too deep, or has an alias, a tag or a repeated key.
    """
    if len(text) > MAX_YAML_BYTES:
        raise ValueError(f"at most {MAX_YAML_BYTES:,} characters are accepted, got {len(text):,}")
    try:
        return yaml.load(text, _PlainLoader)
    except yaml.YAMLError as error:
        message = shorten(" ".join(_explain_yaml(error).split()), MAX_YAML_ERROR)
        raise ValueError(f"not YAML: {message}") from error


class _PlainLoader(yaml.SafeLoader):
    """Loads YAML without aliases, tags and repeated keys, up to a maximum depth.

    The words of YAML 1.1 that are no values in YAML 1.2 are texts: no (Norwegian), 12:30, 012,
    2020-01-01. All texts are quoted that PyYAML writes and this reads as another value.
    """

    depth = 0
    yaml_implicit_resolvers: dict[Any, Any] = {  # noqa: RUF012
        None: [
            (f"tag:yaml.org,2002:{kind}", re.compile(rf"({pattern})\Z"))
            for kind, pattern in {
                "null": "~|null|Null|NULL|",
                "bool": "true|True|TRUE|false|False|FALSE",
                "int": "[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+",
                "float": r"([-+]?[0-9]+\.[0-9]*|\.[0-9]+)([eE][-+][0-9]+)?|[-+]?\.inf|\.nan",
            }.items()
        ]
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Makes a mapping, after checking that no key of it is repeated."""
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        if repeated := [key for key, count in keys.items() if count > 1]:
            message = f"key {shorten(repr(repeated[0]))} is repeated: name it once in a mapping"
            raise ValueError(message)
        return super().construct_mapping(node, deep)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Composes a node, after checking aliases, tags and depth."""
        event: Any = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"alias *{shorten(str(event.anchor))}: aliases are not accepted")
        if event.tag:
            raise ValueError(f"tag {shorten(repr(event.tag))}: only plain values are accepted")
        is_collection = isinstance(event, yaml.CollectionStartEvent)
        self.depth += is_collection
        if self.depth > MAX_DEPTH:
            raise _too_deep()
        node = super().compose_node(parent, index)
        self.depth -= is_collection
        return node


def _explain_yaml(error: yaml.YAMLError) -> str:
    """What is wrong with YAML, and where: the lines that PyYAML quotes are left out."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return str(error).replace('in "<unicode string>", ', "at ")
    described = ((error.context, error.context_mark), (error.problem, error.problem_mark))
    parts = []
    for what, mark in described:
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        if what:
            parts.append(f"{what}{where}")
    return ", ".join(parts)


def _nested(value: Any) -> Iterator[Any]:
    """The lists and mappings directly inside a value."""
    children = value.values() if isinstance(value, dict) else value
    if isinstance(value, (dict, list)):
        yield from (child for child in children if isinstance(child, (dict, list)))


def _too_deep() -> ValueError:
    return ValueError(f"lists and mappings may be nested at most {MAX_DEPTH} deep")
