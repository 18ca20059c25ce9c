"""What belongs together by way of others is one group."""

from __future__ import annotations

from itertools import permutations

from latentheads.experiments.studies.preparing.disjoint_sets import Groups

JOINED = [("b", "c"), ("e", "d"), ("c", "a"), ("f",)]


def test_a_group_is_named_by_its_first_member_whatever_the_order() -> None:
    for order in permutations(JOINED):
        groups = Groups[str]()
        for members in order:
            groups.join(*members)
        assert [groups.find(each) for each in "abcdef"] == ["a", "a", "a", "d", "d", "f"]


def test_only_what_was_joined_is_known() -> None:
    groups = Groups[int]()
    groups.join(3, 2)
    assert 3 in groups
    assert 5 not in groups
    assert groups.find(5) == 5
