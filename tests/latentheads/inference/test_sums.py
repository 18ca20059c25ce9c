"""A KL is a sum: twice the layers, blocks, heads or sentences, twice the KL. Never a mean.

Published bounds were none because a KL was averaged over layers or pairs. Here every posterior is
as far from its prior as every other, so what stands there twice costs twice as much.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from latentheads.batch import Batch
from latentheads.families import Family, Gaussian, HeadScale, Identity
from latentheads.guides import Guide
from latentheads.inference.bound import terms
from latentheads.inference.evaluation import evaluate
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.alignments.distribution import Alignments, CategoricalParameters
from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.alignments.posterior import with_parameters
from latentheads.names import Block
from tests.latentheads.latents.alignments.models import aligned
from tests.tiny import build, rows


class Apart(Guide):
    """Half the prior's scale at every logit; alignments that like later positions better."""

    def family(self, block: Block) -> Family:
        return Gaussian(Identity(), HeadScale(block.heads, 0.5))

    def latent_posterior(self, name: str, prior: Alignments) -> Alignments:
        scores = prior.parameters.scores
        ramp = torch.arange(scores.shape[-1]).to(scores)
        return with_parameters(
            prior, CategoricalParameters(scores + ramp, first_head=prior.parameters.first_head)
        )


def pointing(num_blocks: int, heads: int, **own: Any) -> Any:
    """A model whose prior likes all positions alike."""
    model = aligned(AlignmentOptions(num_blocks, heads, "independent", 5), **own)
    for block in model.alignments.blocks:
        nn.init.zeros_(block.query.weight)
        nn.init.zeros_(block.query.bias)
    return model


def both(layers: int) -> Any:
    """Attention's heads are drawn, and above them where words point."""
    own = {"prior": "independent", "blocks": "decoder-self", "layers": layers}
    return pointing(layers, 1, **own)


TWICE = {
    "layers": (lambda: build(layers=1), lambda: build(layers=2)),
    "layers of a language model": (
        lambda: build("language-model", layers=1),
        lambda: build("language-model", layers=2),
    ),
    "heads": (lambda: build(heads=3), lambda: build(heads=6)),
    "heads of alignments": (lambda: pointing(1, 1), lambda: pointing(1, 2)),
    "blocks of alignments": (lambda: pointing(1, 1), lambda: pointing(2, 1)),
    "layers and blocks": (lambda: both(1), lambda: both(2)),
}


def total(model: Any, batch: Batch) -> list[Tensor]:
    """The whole KL as the bound, the report and the objective have it."""
    model.eval()
    guide = Apart(model).double().eval()
    bound_terms = terms(model, guide, batch)
    report = evaluate(model, guide, [batch])
    costs = []
    for weight in (0.0, 1.0):
        torch.manual_seed(1)
        objective = Head_ELBO(kl_weight=weight, analytic=True)
        costs.append(objective.differentiable_loss(model, guide, batch))
    return [
        bound_terms.total_kl.sum(),
        torch.tensor(report.kl * report.tokens),
        costs[1] - costs[0],
    ]


@pytest.mark.parametrize("what", TWICE)
def test_what_stands_there_twice_costs_twice(what: str, batch: Batch) -> None:
    once, twice = (torch.stack(total(make(), batch)) for make in TWICE[what])
    assert (once > 0.5).all()
    assert torch.allclose(once, once[0].expand(3), rtol=1e-9)
    assert torch.allclose(twice, 2 * once, rtol=1e-9)


@pytest.mark.parametrize("what", ["layers", "heads of alignments"])
def test_sentences_that_stand_there_twice_cost_twice(what: str, batch: Batch) -> None:
    model = TWICE[what][1]()
    once, twice = (
        torch.stack(total(model, rows(batch, order))) for order in ([0, 2], [0, 2, 0, 2])
    )
    assert torch.allclose(twice, 2 * once, rtol=1e-9)
