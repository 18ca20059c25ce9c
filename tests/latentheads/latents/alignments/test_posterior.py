"""Posteriors of alignments: what each of their parts says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from latentheads.batch import Batch
from latentheads.latents.alignments.posterior import AlignmentPosterior, _PairScores
from latentheads.layers.target_encoder import TargetEncoder
from tests.guides.attached import attach
from tests.latentheads.latents.alignments.models import SHAPES, aligned


@torch.no_grad()
def test_a_head_is_told_where_the_one_below_explains_the_word() -> None:
    pair = _PairScores(2, target_conditioned=True)
    assert pair.explained is not None
    pair.explained.fill_(0.7)
    lower, own = torch.randn(2, 1, 5, 3).unbind()
    computed_pair = pair(torch.randn(1, 5, 2), torch.randn(1, 3, 2), [lower, own])
    wanted = 0.7 * torch.einsum("ntr,nts->ntrs", lower.softmax(-1), own)
    torch.testing.assert_close(computed_pair, wanted)


@pytest.mark.parametrize("shape", ["two heads", "two blocks"])
def test_each_head_has_a_weight_of_its_own_for_what_positions_say(shape: str, batch: Batch) -> None:
    guide: Any = attach("mean-field", aligned(SHAPES[shape]))
    guide(batch)
    sites = guide.trace.nodes.items()
    distributions = [site["fn"].parameters for name, site in sites if name.endswith("choice")]
    (weight,) = (item for name, item in guide.named_parameters() if name.endswith("lexical"))
    heads = [scores for distribution in distributions for scores in distribution.scores.unbind(-2)]
    for head, scores in enumerate(heads):
        (grad,) = torch.autograd.grad(scores.square().sum(), weight, retain_graph=True)
        assert grad.nonzero().flatten().tolist() == [head]


def test_all_blocks_of_a_pass_read_one_encoding_of_the_target(batch: Batch) -> None:
    guide: Any = attach("cascaded", aligned(SHAPES["two blocks"]))
    (encoder,) = (part for part in guide.modules() if isinstance(part, TargetEncoder))
    lengths = list[int]()
    encoder.register_forward_hook(lambda module, args, output: lengths.append(output.shape[1]))
    guide(batch)
    guide(replace(batch, target=batch.target[:, :2]))
    assert lengths == [batch.scored.shape[1], 2]
    *_, prior = (
        site["infer"]["prior"] for site in guide.trace.nodes.values() if "prior" in site["infer"]
    )
    (posterior,) = {*guide.find_posteriors(AlignmentPosterior).values()}
    for target in (batch.target[:, :2], batch.target[:, 1:3]):  # other words of the same pass
        posterior.posterior_of(prior, replace(batch, target=target))
    assert len(lengths) == 4
    short = replace(batch, target=batch.target[:, :2])
    first = posterior.posterior_of(prior, short).parameters.scores
    (again := posterior.posterior_of(prior, short).parameters.scores).sum().backward()
    first.sum().backward()  # of another graph
    with torch.no_grad():
        for parameter in posterior.parameters():
            parameter.add_(0.5)
    assert not torch.equal(posterior.posterior_of(prior, short).parameters.scores, again)
