"""Disjoint sets (union-find): groups of what belongs together, directly or through others."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

__all__ = ["Groups"]

Member = TypeVar("Member", bound=Any)


class Groups(Generic[Member]):
    """Disjoint sets of members that can be ordered; the first member of a set names it."""

    def __init__(self) -> None:
        self._above: dict[Member, Member] = {}

    def __contains__(self, member: Member) -> bool:
        return member in self._above

    def join(self, *members: Member) -> None:
        """Puts the groups of members together; of one alone, makes a group."""
        first, *others = sorted(map(self.find, members))
        for other in others:
            self._above[other] = first

    def find(self, member: Member) -> Member:
        """The first member of its group."""
        while (above := self._above.setdefault(member, member)) != member:
            self._above[member] = self._above[above]  # the next search is shorter
            member = above
        return member
