"""Prompts of a task, and the tokens that are right or wrong after them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, SupportsIndex

import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from latentheads.checks import check_as_many
from latentheads.errors import shown

Rows = Sequence[Sequence[int] | Tensor | NDArray[Any]] | Tensor | NDArray[Any]
"""Tokens of each prompt."""


@dataclass(frozen=True)
class Prompts:
    """Prompts of a task.

    Attributes:
        inputs: The arguments of the network, a row for each prompt; padding is on the right, or
            ``position_ids`` are given.
        scored: True at the positions whose next token is scored; the same number in every prompt.
        right: Tokens that are right after each prompt, filled up with -1; for a logit difference.
        wrong: Tokens that are wrong.
    """

    inputs: Mapping[str, Tensor]
    scored: Bool[Tensor, "prompt position"]
    right: Int[Tensor, "prompt right"] | None = None
    wrong: Int[Tensor, "prompt wrong"] | None = None

    def __post_init__(self) -> None:
        sides = {"right": self.right, "wrong": self.wrong}
        answers = {name: tokens for name, tokens in sides.items() if tokens is not None}
        for name, value in (*self.inputs.items(), *answers.items()):
            check_as_many(f"rows of {name}", value, "those of scored", self.scored)
        for name, tokens in answers.items():
            if len(missing := (tokens < 0).all(-1).nonzero()):
                raise ValueError(f"{name} has no token after prompt {int(missing[0])}")
        if self.right is not None and self.wrong is not None:
            is_both = (self.right[:, :, None] == self.wrong[:, None]) & (self.right >= 0)[..., None]
            for row, column, _ in is_both.nonzero()[:1].tolist():
                token = int(self.right[row, column])
                raise ValueError(f"right and wrong both have token {token} after prompt {row}")
        check_padding(self.inputs)
        counts = self.scored.sum(-1)
        if len(counts) == 0 or not counts[0] or (counts != counts[0]).any():
            raise ValueError("scored must be True at the same number of positions, at least one")

    def __repr__(self) -> str:
        rows, positions = self.scored.shape
        scored = f"{int(self.scored[0].sum())} of {positions} positions scored"
        sides = (name for name in ("right", "wrong") if getattr(self, name) is not None)
        return f"Prompts({', '.join([f'{rows:,} prompts', scored, *sides])})"

    def __len__(self) -> int:
        return len(self.scored)

    def __getitem__(self, rows: Tensor | slice) -> Prompts:
        """Some of the prompts."""
        sides = {
            name: None if tokens is None else tokens[rows]
            for name, tokens in (("right", self.right), ("wrong", self.wrong))
        }
        inputs = {name: value[rows] for name, value in self.inputs.items()}
        return replace(self, inputs=inputs, scored=self.scored[rows], **sides)

    @classmethod
    def of(
        cls,
        token_ids: Rows,
        right: Rows | None = None,
        wrong: Rows | None = None,
        pad: int = 0,
    ) -> Prompts:
        """Makes prompts whose last token's prediction is scored.

        Args:
            token_ids: The tokens of each prompt.
            right: Tokens that are right after it.
            wrong: Tokens that are wrong.
            pad: A token for the end of shorter prompts; ``attention_mask`` hides it.

        Example:
            >>> right, wrong = [[1], [2]], [[2], [1]]
            >>> prompts = lh.contrib.circuits.Prompts.of([[3, 4, 5], [6, 7]], right, wrong)
            >>> prompts.scored.tolist()
            [[False, False, True], [False, True, False]]
        """
        rows = _list_rows("token_ids", token_ids)
        if not rows or not all(rows):
            raise ValueError(f"a prompt has at least one token, got {shown(token_ids)}")
        lengths = torch.tensor([len(tokens) for tokens in rows])
        position = torch.arange(int(lengths.max()))
        inputs = {
            "input_ids": _fill_up(rows, pad),
            "attention_mask": (position < lengths[:, None]).long(),
        }
        sides = [
            None if tokens is None else _fill_up(_list_rows(name, tokens), -1)
            for name, tokens in (("right", right), ("wrong", wrong))
        ]
        return cls(inputs, position == lengths[:, None] - 1, *sides)


def check_padding(inputs: Mapping[str, Tensor]) -> None:
    """Raises a ValueError for padding on the left, where a network counts positions from it."""
    for name in ("attention_mask", "decoder_attention_mask"):
        mask = inputs.get(name)
        is_right = mask is None or mask.ndim != 2 or bool((mask.long().diff(dim=-1) <= 0).all())
        if not is_right and not any("position_ids" in argument for argument in inputs):
            raise ValueError(f"{name} must have its padding on the right, or position_ids be given")


def _list_rows(name: str, rows: Rows) -> list[Sequence[int]]:
    listed: list[Any] = [row.tolist() if hasattr(row, "tolist") else row for row in rows]
    if any(
        not isinstance(row, Sequence) or any(not isinstance(x, SupportsIndex) for x in row)
        for row in listed
    ):
        raise ValueError(f"{name} must be a list of tokens for each prompt, got {shown(rows)}")
    return listed


def _fill_up(rows: Sequence[Sequence[int]], filler: int) -> Int[Tensor, "row column"]:
    """Rows of equal length."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[filler] * (width - len(row))] for row in rows])
