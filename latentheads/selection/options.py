"""Heads selected for each task, on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from latentheads.checks import check_known, split_items
from latentheads.names import ATTENTION_TYPES, parse_attention_types
from latentheads.selection.selector import Selector
from latentheads.selection.strategies import make_selector
from latentheads.values import convert_fields

__all__ = ["SelectionOptions"]


@dataclass(frozen=True)
class SelectionOptions:
    """Which heads speak for each task.

    Attributes:
        select: Each task has its own choice among more heads than it uses: every candidate on its
            own (selection), exactly so many (subset), one of each group (group); or a fixed set of
            heads for each task or family of tasks (static); or none. Behind a ``+`` it is part of
            a guide's or recipe's name, as in ``cascaded+group``.
        candidates: Heads of a block to choose from; 0: twice those that speak.
        select_chains: Chains whose blocks select: all that there are, or some, comma between.
        families: With static, tasks that share a set of heads, as ``de,nl|fr,ro|cs``; empty: each
            task has its own.
    """

    select: Literal["none", "selection", "subset", "group", "static"] = "none"
    candidates: int = 0
    select_chains: str = "encoder-self,decoder-self"
    families: str = ""

    def __post_init__(self) -> None:
        convert_fields(self)
        if parse_attention_types(self.select_chains) == ():
            raise ValueError(
                f"select_chains must name a chain: all, or some of {','.join(ATTENTION_TYPES)}"
            )

    def selector(
        self, heads: int, sources: Sequence[str], targets: Sequence[str]
    ) -> Selector | None:
        """Makes the selector of a model; None where all heads speak.

        Args:
            heads: Of every block.
            sources: Names of the tasks that the encoder tells apart.
            targets: The same for the decoder.
        """
        if self.select == "none":
            return None
        sides = {"source_sets": sources, "target_sets": targets}
        return make_selector(
            self.select,
            heads,
            self.candidates or 2 * heads,
            parse_attention_types(self.select_chains) or ATTENTION_TYPES,
            len(sources),
            len(targets),
            **{name: self._sets_of(sources, targets, side) for name, side in sides.items()},
        )

    def _sets_of(
        self, sources: Sequence[str], targets: Sequence[str], side: Sequence[str]
    ) -> tuple[int, ...]:
        """The family of every task of a side; those in none have one of their own."""
        if not self.families:
            return ()
        families = [split_items(family) for family in self.families.split("|")]
        named = [name for family in families for name in family]
        for name in named:
            check_known("task", name, dict.fromkeys([*sources, *targets]), "families")
        if len(set(named)) < len(named):
            twice = next(name for name in named if named.count(name) > 1)
            raise ValueError(f"families: task {twice!r} is in two families")
        keys = [next((tuple(f) for f in families if name in f), (name,)) for name in side]
        order = list(dict.fromkeys(keys))
        return tuple(order.index(key) for key in keys)
