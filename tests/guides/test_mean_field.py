"""The strict product: no location reads a sampled head."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from latentheads.attention.block import HeadBlock
from latentheads.batch import Batch
from latentheads.distributions import NormalHeads
from latentheads.families import Cascade, Family, Gaussian, HeadScale
from latentheads.guides import MeanField
from latentheads.handlers import PlugIn
from latentheads.inference.bound import terms, traces
from latentheads.latents.gates.hard_gates import Gating
from latentheads.latents.logits.options import LogitsOptions
from latentheads.models import PRIORS, Translation
from latentheads.names import Block
from tests.tiny import (
    HEADS,
    KINDS,
    NOISY,
    SOURCE_TYPES,
    TARGET_TYPES,
    NoiseTape,
    attach,
    bernoulli_gate,
    build,
    sizes,
)


def posteriors(model: Any, guide: Any, batch: Batch) -> list[NormalHeads]:
    _, model_trace = traces(model, guide, batch)
    return [model_trace.nodes[block.site()]["fn"] for block in model.blocks]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prior", NOISY)
def test_no_posterior_reads_a_sampled_head_or_dropout(kind: str, prior: str, batch: Batch) -> None:
    model = build(kind, prior=prior, dropout=0.4)
    guide = attach("mean-field", model)
    first, second = (posteriors(model, guide, batch) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one.location, other.location)


class Climbing(MeanField):
    """Its families would read the logits below, were they told."""

    def family(self, block: Block) -> Family:
        return Gaussian(Cascade(block), HeadScale(block.heads))


def test_not_even_a_family_that_climbs_reads_a_sampled_head(batch: Batch) -> None:
    model = build("language-model")
    guide = Climbing(model).double()
    first, second = (posteriors(model, guide, batch)[-1].location for _ in range(2))
    assert torch.equal(first, second)


def test_other_guides_do_read_sampled_heads(batch: Batch) -> None:
    model = build("language-model")
    guide = attach("cascaded", model)
    first, second = (posteriors(model, guide, batch)[-1].location for _ in range(2))
    assert not torch.allclose(first, second)


def test_locations_are_the_corrected_scores_of_the_plain_network(batch: Batch) -> None:
    model = build(prior="cascaded").eval()
    guide = attach("mean-field", model)
    by_site = posteriors(model, guide, batch)
    with PlugIn():
        model_trace, _ = traces(model, lambda _: None, batch)
    for block, distribution in zip(model.blocks, by_site, strict=True):
        scores = model_trace.nodes[block.site()]["fn"].context.scores
        family = guide.families[block.key]
        assert torch.allclose(distribution.location, scores + family.location.fusion(scores))
        assert torch.allclose(torch.as_tensor(distribution.scale), family.scale())


def test_divergence_of_the_first_block_is_zero_at_the_start(batch: Batch) -> None:
    model = build("language-model").eval()
    kl = terms(model, MeanField(model).double(), batch).kl
    assert torch.allclose(kl["decoder.0.self.logits"], torch.zeros(3), atol=1e-12)
    assert (kl["decoder.1.self.logits"] > 0).all()


@pytest.mark.parametrize("prior", sorted(set(PRIORS) - set(NOISY)))
def test_what_has_no_noise_keeps_its_prior(prior: str, batch: Batch) -> None:
    model = build(prior=prior).eval()
    guide = attach("mean-field", model)
    assert not guide.families
    assert set(terms(model, guide, batch).how.values()) == {"fixed"}


def test_gates_keep_their_prior(batch: Batch) -> None:
    model = build(gate=bernoulli_gate()).eval()
    bound_terms = terms(model, attach("mean-field", model), batch)
    assert {bound_terms.how[b.site("gate")] for b in model.blocks} == {"tied"}


def test_the_plain_pass_takes_no_noise(batch: Batch, tape: NoiseTape) -> None:
    model = build()
    attach("mean-field", model)(batch)
    assert tape.site == len(model.blocks)


def test_who_watches_sees_the_pass_of_the_model_alone(batch: Batch) -> None:
    """The plain pass may begin when blocks below have already run."""
    gates = Gating(HEADS, ("encoder-self",))
    model = Translation(
        *(SOURCE_TYPES, TARGET_TYPES, sizes(dropout=0.4)),
        latents=[LogitsOptions(blocks="decoder-self"), gates],
    ).double()
    guide, seen = attach("mean-field", model), []
    blocks = [module for module in model.modules() if isinstance(module, HeadBlock)]
    for module in blocks:
        module.hooks.append(lambda *_, name=module.block.name: seen.append((name, model.training)))
    guide(batch)
    assert sorted(seen) == sorted((module.block.name, True) for module in blocks)
    assert all(len(module.hooks) == 1 for module in blocks)


def test_a_network_without_latents_needs_no_posterior(batch: Batch) -> None:
    model = build(blocks="none").eval()
    bound_terms = terms(model, MeanField(model).eval(), batch)
    assert bound_terms.kl == {}
