"""What a family may not return, said in one line before anything is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro.distributions as dist
import pytest
import torch

from latentheads import Batch, Head_ELBO, HeadContext, terms
from latentheads.distributions import NormalHeads
from latentheads.families import Family
from latentheads.guides import Guide
from latentheads.names import Block
from tests.tiny import HEADS, attach, build

SITE = "^site 'decoder.0.self.logits': a family must return a distribution of heads"
WRONG: dict[str, tuple[Callable[[HeadContext], Any], str]] = {
    "tensor": (lambda c: c.scores, rf"{SITE}, such as NormalHeads, got Tensor$"),
    "nothing": (lambda c: None, rf"{SITE}, such as NormalHeads, got NoneType$"),
    "no event": (
        lambda c: dist.Normal(c.scores, 1.0),
        rf"{SITE}, queries and keys of shape \(3, 4, 4\), sentences \(3,\); "
        r"got shape \(\), sentences \(3, 3, 4, 4\)$",
    ),
    "too few heads": (
        lambda c: NormalHeads(c.scores[:, :2], c),
        rf"{SITE}, .*; got shape \(2, 4, 4\), sentences \(3,\)$",
    ),
    "too few sentences": (
        lambda c: NormalHeads(c.scores[:2], c),
        rf"{SITE}, .*; got shape \(3, 4, 4\), sentences \(2,\)$",
    ),
    "scale of heads as of keys": (
        lambda c: NormalHeads(c.scores, c, torch.ones(HEADS)),
        r"^scale must spread over heads, queries and keys \(3, 4, 4\), such as \(3, 1, 1\), "
        r"got \(3,\)$",
    ),
    "negative scale": (
        lambda c: NormalHeads(c.scores, c, -0.5),
        r"^scale must be positive, got -0.5$",
    ),
}
every_mistake = pytest.mark.parametrize("mistake", WRONG)


class Mistaken(Family):
    def __init__(self, mistake: str) -> None:
        super().__init__()
        self.mistake = mistake

    def forward(self, context: HeadContext) -> Any:
        return WRONG[self.mistake][0](context)


class MistakenGuide(Guide):
    def __init__(self, model: Any, mistake: str) -> None:
        self.mistake = mistake
        super().__init__(model)

    def family(self, block: Block) -> Family:
        return Mistaken(self.mistake)

    def posterior(self, block: Block, context: HeadContext) -> Any:
        return self.families[block.key](context)


@every_mistake
def test_a_guide_is_refused_what_is_no_law_of_its_heads(mistake: str, batch: Batch) -> None:
    model = build("language-model").eval()
    guide = MistakenGuide(model, mistake)
    for ask in (terms, Head_ELBO(analytic=True).loss):
        with pytest.raises(ValueError, match=WRONG[mistake][1]):
            ask(model, guide, batch)


@every_mistake
def test_so_is_a_prior(mistake: str, batch: Batch) -> None:
    model = build("language-model").eval()
    model.decoder.layers[0].inner.prior = Mistaken(mistake)
    with pytest.raises(ValueError, match=WRONG[mistake][1]):
        terms(model, attach("tied", model), batch)


def test_one_law_for_all_sentences_is_a_law_for_each(batch: Batch) -> None:
    class Alike(Guide):
        def family(self, block: Block) -> Family:
            return Constant()

    class Constant(Family):
        def forward(self, context: HeadContext) -> NormalHeads:
            return NormalHeads(torch.zeros(context.scores.shape[-3:]), context)

    model = build("language-model").eval()
    assert terms(model, Alike(model), batch).elbo.shape == (3,)
