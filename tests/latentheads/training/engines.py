"""A part of a corpus to train on, and whether two trainings end alike."""

from __future__ import annotations

from itertools import islice
from typing import Any

import torch
from torch import Tensor

from latentheads.corpora import Part, Rows
from latentheads.corpora.loader import StepLoader
from latentheads.training.engine import Engine
from latentheads.training.options import make_training
from tests.tiny import attach, build


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


def make_engine(device: str, source: Part | StepLoader | None = None, **options: Any) -> Engine:
    torch.manual_seed(0)
    model = build(prior="cascaded", layers=1)
    guide = attach("tied", model).to(device)
    if "precision" in options:  # half of float64 is refused
        model, guide = model.float(), guide.float()
    plan: dict[str, Any] = {"tokens": 29, "warmup_steps": 2, **options}
    return Engine(model.to(device), guide, source or part(), make_training(plan), seed=5)


def update(engine: Engine, number: int) -> list[Tensor]:
    """Some updates further; the weights then."""
    with engine.noise.active():
        for given in islice(engine.loader.steps(engine.loader_state), number):
            engine._update(engine.objective, given)
    return [weight.detach().clone() for weight in engine.objective.parameters()]
