"""The ten things that must always hold, a number each: whoever changes the library keeps them.

1. Without noise the network is the Transformer of PyTorch.
2. A bound costs the passes that its guide says.
3. Under a tied guide the log-ratio and its gradient are exactly 0, dropout included.
4. Each divergence is its closed form at every pair.
5. Padding and later words change nothing.
6. The ladder of bounds ends below the exact log p(y | x): ``test_ladder.py``.
7. Every parameter of a prior is trained.
8. Decoding step by step is the whole sequence at once.
9. Published networks have their published sizes.
10. The same seed gives the same numbers.
"""

from __future__ import annotations

import math
from itertools import cycle, product
from typing import Any

import pyro
import pytest
import torch
from pyro import poutine
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.enum import get_importance_trace
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, kl_divergence

from latentheads.attention.latent import LatentAttention
from latentheads.attention.projections import MultiHeadAttention
from latentheads.batch import EOS, Batch
from latentheads.families import Identity, Point
from latentheads.guides import Tied
from latentheads.handlers import PlugIn
from latentheads.inference.bound import terms, traces
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.logits.latent import Logits
from latentheads.mask import AttentionMask, PairMask, causal
from latentheads.models import PRIORS, Network, Translation, make_prior
from latentheads.models.layers import Layer
from latentheads.models.mixers import SelfAttention
from latentheads.names import Block
from tests.crossing import in_turn, pairwise
from tests.tiny import (
    FORMS,
    HEADS,
    KINDS,
    NOISY,
    NoiseTape,
    attach,
    bernoulli_gate,
    build,
    counting,
    jiggle,
    sizes,
    small_batch,
)

every_form = pytest.mark.parametrize("form", FORMS)
every_kind = pytest.mark.parametrize("kind", KINDS)
PAIRS = [*product(["tied"], PRIORS), *zip([*FORMS][1:], cycle(NOISY))]
"""The tied guide with every prior, and every guide with a prior that has noise."""
QUERIES, KEYS, WIDTH = 5, 7, 6


def full_mask(readable: Tensor) -> PairMask:
    return PairMask.build(readable, torch.ones(readable.shape[:-1]).bool(), torch.float64)


def copy_attention(theirs: nn.MultiheadAttention, ours: MultiHeadAttention) -> None:
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.in_weight)
        theirs.in_proj_bias.copy_(ours.in_bias)
    theirs.out_proj.load_state_dict(ours.out.state_dict())


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_1_point_prior_is_the_transformer_encoder_layer(norm: Any) -> None:
    own = SelfAttention(Block("encoder-self", 0, HEADS), WIDTH, Point(Identity()))
    ours = jiggle(Layer(sizes(norm=norm), own), 0.2)
    theirs = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 7, dropout=0.0, batch_first=True, norm_first=norm == "pre"
    )
    copy_attention(theirs.self_attn, own.attention)
    for name, module in (
        ("linear1", ours.feed_forward.inner),
        ("linear2", ours.feed_forward.outer),
        ("norm1", ours.inner_step.norm),
        ("norm2", ours.feed_forward_step.norm),
    ):
        getattr(theirs, name).load_state_dict(module.state_dict())
    x = torch.randn(2, KEYS, WIDTH)
    valid = torch.arange(KEYS) < torch.tensor([7, 4])[:, None]
    actual, _ = ours(x, AttentionMask(valid, valid, dtype=torch.float64), (None, None))
    assert torch.allclose(actual, theirs(x, src_key_padding_mask=~valid), atol=1e-12)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_1_point_prior_is_the_transformer_decoder_layer(norm: Any) -> None:
    own = SelfAttention(Block("decoder-self", 0, HEADS), WIDTH, Point(Identity()))
    cross = LatentAttention(Block("decoder-cross", 0, HEADS), WIDTH, Point(Identity()))
    ours = jiggle(Layer(sizes(norm=norm), own, cross), 0.2)
    theirs = nn.TransformerDecoderLayer(
        WIDTH, HEADS, 7, dropout=0.0, batch_first=True, norm_first=norm == "pre"
    )
    copy_attention(theirs.self_attn, own.attention)
    copy_attention(theirs.multihead_attn, cross.attention)
    for name, module in (
        ("linear1", ours.feed_forward.inner),
        ("linear2", ours.feed_forward.outer),
        ("norm1", ours.inner_step.norm),
        ("norm2", ours.cross_step.norm),
        ("norm3", ours.feed_forward_step.norm),
    ):
        getattr(theirs, name).load_state_dict(module.state_dict())
    x, memory = torch.randn(2, QUERIES, WIDTH), torch.randn(2, KEYS, WIDTH)
    valid = torch.arange(KEYS) < torch.tensor([7, 4])[:, None]
    earlier = AttentionMask(torch.ones(2, QUERIES).bool(), dtype=torch.float64)
    memory_mask = full_mask(valid[:, None].expand(2, QUERIES, KEYS))
    actual, _ = ours(x, earlier, (None, None), memory, memory_mask)
    expected = theirs(x, memory, tgt_mask=~causal(QUERIES), memory_key_padding_mask=~valid)
    assert torch.allclose(actual, expected, atol=1e-12)


@in_turn(form=FORMS, objective=["Trace_ELBO", "Head_ELBO", "terms"], validation=[True, False])
def test_2_one_bound_costs_the_passes_its_guide_says(
    form: str, objective: str, validation: bool, batch: Batch
) -> None:
    model = build()
    guide = attach(form, model)
    elbo = {"Trace_ELBO": Trace_ELBO, "Head_ELBO": Head_ELBO}.get(objective)
    with pyro.validation_enabled(validation), counting(model) as ran:
        if elbo is None:
            terms(model.eval(), guide, batch)
        else:
            elbo()(model, guide)(batch)
    passes = 2 if form.startswith("mean-field") else 1
    assert guide.passes == passes
    assert sorted(ran) == sorted(passes * [block.name for block in model.blocks])


@pairwise(kind=KINDS, prior=PRIORS, stock=[True, False])
def test_3_tied_log_ratio_and_its_gradient_are_zero_with_dropout_on(
    kind: str, prior: str, stock: bool, batch: Batch
) -> None:
    model = build(kind, prior=prior, dropout=0.5, attention_dropout=0.5, gate=bernoulli_gate())
    guide = Tied(model)
    for _ in range(2):
        if stock:
            pair = get_importance_trace("flat", 1, model, guide, (batch,), {})
        else:
            pair = traces(model, guide, batch)
        for block in model.blocks:
            for name in (block.site(), block.site("gate")):
                value = pair[1].nodes[name]["value"]
                log_p, log_q = (trace.nodes[name]["fn"].log_prob(value) for trace in pair)
                ratio = log_p - log_q
                assert torch.equal(ratio, torch.zeros(3)), name
                if ratio.requires_grad:
                    slopes = torch.autograd.grad(
                        ratio.sum(), list(model.parameters()), allow_unused=True, retain_graph=True
                    )
                    assert not any(slope.any() for slope in slopes if slope is not None)


@every_kind
@pytest.mark.parametrize("form", ["mean-field", "cholesky", "cascaded"])
def test_4_each_divergence_is_its_closed_form_at_every_pair(
    form: str, kind: str, batch: Batch, tape: NoiseTape
) -> None:
    model = build(kind, options={"scale": 0.8}).eval()
    guide = attach(form, model)
    model_trace, guide_trace = traces(model, guide, batch)
    tape.rewind()
    kl = terms(model, guide, batch).kl
    for block in model.blocks:
        q, p = (trace.nodes[block.site()]["fn"] for trace in (guide_trace, model_trace))
        factor = q.factor if form == "cholesky" else torch.as_tensor(q.scale).flatten().diag()
        pairs = kl_divergence(
            MultivariateNormal(q.location.movedim(1, -1), scale_tril=factor),
            MultivariateNormal(p.location.movedim(1, -1), scale_tril=0.8 * torch.eye(HEADS)),
        )
        expected = torch.where(p.context.mask.latent.bool(), pairs, 0.0).sum((-1, -2))
        assert torch.allclose(kl[block.site()], expected)
        assert (expected >= 0).all()


@pytest.mark.parametrize(("form", "prior"), PAIRS)
def test_5_padding_a_batch_changes_no_sentence(
    form: str, prior: str, batch: Batch, tape: NoiseTape
) -> None:
    model = build(prior=prior).eval()
    guide = attach(form, model)
    whole = terms(model, guide, batch)
    padding = torch.zeros(3, 2, dtype=torch.long)
    wider = Batch(torch.cat([batch.target, padding], 1), torch.cat([batch.source, padding], 1))
    tape.rewind()
    bound_terms = terms(model, guide, wider)
    assert torch.allclose(bound_terms.elbo, whole.elbo, atol=1e-10)
    assert torch.allclose(bound_terms.log_weight, whole.log_weight, atol=1e-10)


@every_kind
@every_form
def test_5_a_later_target_token_changes_no_earlier_row(
    kind: str, form: str, batch: Batch, tape: NoiseTape
) -> None:
    """But through what is drawn by a guide that reads it."""
    model = build(kind, prior="cascaded").eval()
    guide = attach(form, model)
    changed = batch.target.clone()
    changed[0, 2], changed[2, 1] = 11, EOS

    def rows(target: Tensor) -> Tensor:
        tape.rewind()
        site = traces(model, guide, Batch(target, batch.source))[0].nodes["target"]
        logits: Tensor = site["fn"].logits
        return logits

    before, after = rows(batch.target), rows(changed)
    same = not form.endswith("of target")
    assert torch.equal(before[0, :3], after[0, :3]) == same
    assert torch.equal(before[2, :2], after[2, :2]) == same
    assert not torch.allclose(before[0, 3], after[0, 3])


@pairwise(kind=KINDS, form=FORMS, prior=["independent", "cascaded"])
def test_5_given_the_heads_no_row_depends_on_the_guide_or_on_a_later_token(
    kind: str, form: str, prior: str, batch: Batch
) -> None:
    """A guide that reads the target has an effect on the model by its samples alone."""
    model = build(kind, prior=prior).eval()
    guided = traces(model, attach(form, model), batch)[0]
    values = {block.site(): guided.nodes[block.site()]["value"] for block in model.blocks}
    changed = batch.target.clone()
    changed[0, 2] = 11

    def rows(trace: Any) -> list[Tensor]:
        """What predicts each token of the first sentence, and the priors that its rows have."""
        fns = [trace.nodes[site]["fn"] for site in values]
        latent = (fn.location[0] * fn.context.mask.latent[0] for fn in fns)
        queries = [prior[:, :3] for prior in latent]
        return [trace.nodes["target"]["fn"].logits[0], *queries]

    given = poutine.condition(model, data=values)
    alone, other = (
        rows(poutine.trace(given).get_trace(Batch(target, batch.source)))
        for target in (batch.target, changed)
    )
    assert all(map(torch.equal, rows(guided), alone))
    assert all(map(torch.equal, alone[1:], other[1:]))
    assert torch.equal(alone[0][:3], other[0][:3])
    assert not torch.allclose(alone[0][3], other[0][3])


# 6: tests/test_ladder.py


@pairwise(prior=PRIORS, kind=KINDS, through_svi=[True, False])
def test_7_every_parameter_of_every_prior_is_trained(
    kind: str, prior: str, through_svi: bool, batch: Batch
) -> None:
    noisy = not PRIORS[prior].deterministic
    options = {"learned_scale": True} if noisy else {}
    model = build(kind, prior=prior, options=options)
    before = {name: p.clone() for name, p in model.named_parameters()}
    if through_svi:
        svi = SVI(model, Tied(model), pyro.optim.Adam({"lr": 0.01}), Trace_ELBO())
        for _ in range(2):
            svi.step(batch)
    else:
        elbo = Trace_ELBO()(model, Tied(model))
        optimiser = torch.optim.Adam(elbo.parameters(), lr=0.01)
        for _ in range(2):
            optimiser.zero_grad()
            elbo(batch).backward()
            optimiser.step()
    moved = [n for n, p in model.named_parameters() if not torch.equal(p, before[n])]
    assert set(moved) == set(before)
    assert all(p.isfinite().all() for p in model.parameters())


@pairwise(
    prior=PRIORS, kind=KINDS, chunks=[(1, 1, 1, 1), (2, 1, 1), (1, 3), (4,)], plug_in=[True, False]
)
def test_8_incremental_decoding_is_the_full_sequence(
    kind: str, prior: str, chunks: tuple[int, ...], plug_in: bool, batch: Batch, tape: NoiseTape
) -> None:
    model = build(kind, prior=prior).eval()
    full = Batch(torch.full((3, 4), 5), batch.source)
    with PlugIn() if plug_in else torch.no_grad():
        expected = model.predict(model.states(full))
        tape.rewind()
        state = model.begin(full)
        encoded, start, steps = tape.site, 0, []
        for size in chunks:
            tape.rewind(site=encoded, query=start)
            steps.append(model.step(full.decoder_input[:, start : start + size], state))
            start += size
    assert torch.allclose(torch.cat(steps, 1), expected, atol=1e-10)


def test_9_published_networks_have_their_published_sizes() -> None:
    """More of it in tests/experiments/test_presets.py."""
    network = Network(width=512, feed_forward=1024, heads=4, layers=6)
    with torch.device("meta"):
        plain = Translation(8848, 6632, network, latents=())
        released = Translation(8848, 6632, network, latents=[Logits(make_prior("released"))])
    count, more = (sum(p.numel() for p in m.parameters()) for m in (plain, released))
    assert count == 39_469_056
    assert more - count == 15 * (24 * 4**2 + 9 * 4)


@in_turn(form=FORMS, kind=KINDS)
def test_10_same_seed_same_numbers(form: str, kind: str) -> None:
    def run() -> tuple[list[float], list[Tensor]]:
        torch.manual_seed(4)
        model = build(kind, dropout=0.3, prior="cascaded")
        guide = attach(form, model)
        svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.01}), Head_ELBO())
        losses = [float(svi.step(small_batch())) for _ in range(2)]
        return losses, [*model.parameters(), *guide.parameters()]

    (losses, weights), (again, same) = run(), run()
    assert losses == again
    assert all(math.isfinite(loss) for loss in losses)
    assert all(torch.equal(a, b) for a, b in zip(weights, same, strict=True))
