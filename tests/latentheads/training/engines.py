"""A part of a corpus to train on, and whether two trainings end alike."""

from __future__ import annotations

import torch
from torch import Tensor

from latentheads.corpora import Part, Rows
from latentheads.training.engine import Engine


def part(sentences: int = 31) -> Part:
    generator = torch.Generator().manual_seed(3)

    def rows(types: int) -> Rows:
        lengths = torch.randint(1, 7, (sentences,), generator=generator).tolist()
        draw = (torch.randint(4, types, (n,), generator=generator).tolist() for n in lengths)
        return Rows.of([*row, 2] for row in draw)

    return Part(rows(13), rows(11))


def outcome(engine: Engine) -> list[Tensor]:
    return [p.detach().clone() for p in engine.objective.parameters()]


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
