"""Help that a person can scan: what a program does, an example, and its options in groups."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping, Sequence

Groups = Mapping[str, Sequence[str]]

OF_RUNS = ("checkpoint", "trust", "device", "seed")
"""Options of every program that reads finished runs; they come last, with its help."""


def arrange_options(parser: argparse.ArgumentParser, groups: Groups) -> None:
    """Shows the options of a parser in groups; one that stands in none stays where it is."""
    actions = {action.dest: action for action in parser._actions}
    named = {name for names in groups.values() for name in names}
    for group in parser._action_groups:
        group._group_actions = [
            option for option in group._group_actions if option.dest not in named
        ]
    first, *others = parser._action_groups  # what stands without a name in front, then the rest
    parser._action_groups = [first]
    for title, names in groups.items():
        group = parser.add_argument_group(title)
        group._group_actions.extend(actions[name] for name in names if name in actions)
    parser._action_groups += [group for group in others if group._group_actions]


class Paragraphs(argparse.HelpFormatter):
    """Keeps paragraphs of a description apart, and one that is indented as it is."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = text.strip("\n").split("\n\n")
        return "\n\n".join(
            part if part.startswith("  ") else textwrap.fill(" ".join(part.split()), width)
            for part in parts
        )
