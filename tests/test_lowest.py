"""Declared versions: every package has a floor, and the pinned version stands on it."""

from __future__ import annotations

import re

import pytest

from tests.lowest import PROJECT, lowest, read_project

PINNED = re.compile(r"([\w.-]+)==([\w.]+)")


def release(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def test_every_pinned_version_is_at_or_above_its_floor() -> None:
    pins = dict(PINNED.findall((PROJECT.parent / "constraints.txt").read_text(encoding="utf-8")))
    pinned = {re.sub("[-_.]", "-", name.lower()): version for name, version in pins.items()}
    for name, floor in lowest(read_project()).items():
        assert release(pinned[name.lower()]) >= release(floor), name


def test_extras_of_a_package_are_no_part_of_its_constraint() -> None:
    project = {"dependencies": ["a[b,c]>=1.2"], "optional-dependencies": {"test": ["d-e>=3"]}}
    assert lowest(project) == {"a": "1.2", "d-e": "3"}


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (["a"], "a must be a name, >= and a version"),
        (["a>=1,<2"], "a>=1,<2 must be a name, >= and a version"),
        (["a>=1", "a>=2"], "a has two floors"),
    ],
)
def test_a_package_without_one_floor_is_refused(declared: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        lowest({"dependencies": declared})
