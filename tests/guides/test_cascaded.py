"""The cascade as a posterior: free at the start, paid for once it is used."""

from __future__ import annotations

import torch

from latentheads.batch import Batch
from latentheads.guides import Cascaded
from latentheads.inference.bound import terms, traces
from tests.tiny import NoiseTape, attach, build


def test_it_starts_at_an_independent_prior(batch: Batch) -> None:
    model = build().eval()
    bound_terms = terms(model, Cascaded(model).double(), batch)
    assert torch.equal(bound_terms.total_kl, torch.zeros(3))


def test_it_reads_its_own_chain_one_block_down(batch: Batch) -> None:
    model = build().eval()
    guide = attach("cascaded", model)
    _, model_trace = traces(model, guide, batch)
    for block in model.blocks:
        distribution = model_trace.nodes[block.site()]["fn"]
        c, family = distribution.context, guide.families[block.key]
        if block.is_lowest:
            assert distribution.location is c.scores
            continue
        stack, _, kind = block.name.split(".")
        below = model_trace.nodes[f"{stack}.{block.layer - 1}.{kind}.logits"]["value"]
        assert c.below is below
        assert torch.allclose(distribution.location, c.scores + family.location.fusion(below))


def test_the_link_costs_half_the_squared_logits_below(batch: Batch, tape: NoiseTape) -> None:
    model = build("language-model").eval()
    guide = Cascaded(model, link=True).double()
    _, model_trace = traces(model, guide, batch)
    tape.rewind()
    kl = terms(model, guide, batch).kl["decoder.1.self.logits"]
    context = model_trace.nodes["decoder.1.self.logits"]["fn"].context
    below = context.below.square().sum(1) * context.mask.latent
    assert torch.allclose(kl, 0.5 * below.sum((-1, -2)))


def test_scale_is_learned_only_if_asked() -> None:
    model = build("language-model")
    learned, fixed = (
        sum(p.numel() for p in Cascaded(model, learned_scale=learn).parameters())
        for learn in (True, False)
    )
    assert learned - fixed == 2 * 3


def test_against_the_paper_prior_the_cascade_is_free(batch: Batch, tape: NoiseTape) -> None:
    """The same location in prior and posterior leaves only the price of the scale."""
    model = build("language-model", prior="cascaded").eval()
    guide = Cascaded(model, link=True, scale=0.5, learned_scale=False).double()
    fusion = guide.families["decoder_1_self"].location.fusion
    prior = next(m.prior for m in model.modules() if getattr(m, "block", None) == model.blocks[1])
    fusion.load_state_dict(prior.location.fusion.state_dict())
    guide_trace, _ = traces(model, guide, batch)
    kl = terms(model, guide, batch).kl
    for name, value in kl.items():
        pairs = guide_trace.nodes[name]["fn"].context.mask.pairs
        price = 0.5 * (0.25 - 1) - torch.tensor(0.5).log()
        assert torch.allclose(value, 3 * pairs * price)
