"""Multi-head attention with and without latents."""

from __future__ import annotations

import pyro
import pytest
import torch
from pyro import poutine
from torch import nn

from latentheads.attention.cache import AttentionCache
from latentheads.attention.latent import LatentAttention
from latentheads.attention.projections import MultiHeadAttention
from latentheads.families import Gaussian, HeadScale, Identity, Point
from latentheads.latents.network import Choice
from latentheads.mask import PairMask, causal
from latentheads.names import Block
from tests.tiny import HEADS, jiggle

WIDTH, QUERIES, KEYS = 6, 5, 7
BLOCK = Block("decoder-self", 0, HEADS)


def everything(queries: int, keys: int, batch: int = 2) -> PairMask:
    return PairMask.build(
        torch.ones(batch, queries, keys).bool(), torch.ones(batch, queries).bool(), torch.float64
    )


def same_weights(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.in_weight)
        theirs.in_proj_bias.copy_(ours.in_bias)
        theirs.out_proj.load_state_dict(ours.out.state_dict())
    return theirs


@pytest.mark.parametrize(
    "prior", [None, Point(Identity()), Gaussian(Identity(), HeadScale(3, 1e-13))]
)
def test_cross_attention_without_noise_is_multihead_attention(prior: object) -> None:
    block = jiggle(LatentAttention(BLOCK, WIDTH, prior), 0.2)  # type: ignore[arg-type]
    query, memory = torch.randn(2, QUERIES, WIDTH), torch.randn(2, KEYS, WIDTH)
    valid = torch.arange(KEYS) < torch.tensor([7, 4])[:, None]
    mask = PairMask.build(
        valid[:, None].expand(2, QUERIES, KEYS), torch.ones(2, QUERIES).bool(), torch.float64
    )
    expected, _ = same_weights(block.attention)(query, memory, memory, key_padding_mask=~valid)
    assert torch.allclose(block(query, memory, mask)[0], expected, atol=1e-11)


def test_causal_self_attention_without_noise_is_multihead_attention() -> None:
    block = jiggle(LatentAttention(BLOCK, WIDTH, Point(Identity())), 0.2)
    x = torch.randn(2, QUERIES, WIDTH)
    mask = PairMask.build(causal(QUERIES).expand(2, -1, -1), torch.ones(2, 5).bool(), torch.float64)
    expected, _ = same_weights(block.attention)(x, x, x, attn_mask=~causal(QUERIES))
    assert torch.allclose(block(x, None, mask)[0], expected, atol=1e-12)


def test_initial_weights_have_the_reference_law() -> None:
    torch.manual_seed(1)
    ours, theirs = MultiHeadAttention(64, 4), nn.MultiheadAttention(64, 4)
    expected = theirs.in_proj_weight.std().item()
    assert ours.in_weight.std().item() == pytest.approx(expected, rel=0.03)
    assert not ours.in_bias.any()
    assert not ours.out.bias.any()


def test_logits_are_drawn_at_a_site_and_handed_up() -> None:
    block = LatentAttention(BLOCK, WIDTH, Gaussian(Identity(), HeadScale(HEADS)))
    x = torch.randn(2, QUERIES, WIDTH)
    with poutine.trace() as trace:
        _, logits = block(x, None, everything(QUERIES, QUERIES))
    assert list(trace.trace.nodes) == ["decoder.0.self.logits"]
    site = trace.trace.nodes["decoder.0.self.logits"]
    assert logits is site["value"]
    assert torch.equal(site["fn"].location, site["fn"].context.scores)


def test_drawn_logits_are_what_the_softmax_reads() -> None:
    block = LatentAttention(BLOCK, WIDTH, Gaussian(Identity(), HeadScale(HEADS)))
    x, memory = torch.randn(2, QUERIES, WIDTH), torch.randn(2, KEYS, WIDTH)
    logits = torch.randn(2, HEADS, QUERIES, KEYS)
    with poutine.condition(data={BLOCK.site(): logits}):
        out, _ = block(x, memory, everything(QUERIES, KEYS))
    _, v = block.attention.project_memory(memory)
    heads = torch.einsum("bhts,bhsd->bthd", logits.softmax(-1), v)
    assert torch.allclose(out, block.attention.out(heads.reshape(2, QUERIES, WIDTH)))


@pytest.mark.parametrize("closed", range(HEADS))
def test_a_closed_gate_silences_its_head(closed: int) -> None:
    block = jiggle(LatentAttention(BLOCK, WIDTH, None), 0.2)
    x, mask = torch.randn(2, QUERIES, WIDTH), everything(QUERIES, QUERIES)
    gate = torch.ones(2, HEADS)
    gate[:, closed] = 0

    def output() -> torch.Tensor:
        return block(x, None, mask, choice=Choice(gate))[0]

    before = output()
    with torch.no_grad():
        own = 2 * WIDTH + 2 * closed
        block.attention.in_weight[own : own + 2] += 3
    assert torch.equal(output(), before)
    gate[:, closed] = 1
    assert not torch.allclose(output(), before)


def test_cache_gives_the_rows_of_the_whole() -> None:
    block = LatentAttention(BLOCK, WIDTH, None)
    x = torch.randn(2, QUERIES, WIDTH)
    causal_mask = PairMask.build(
        causal(QUERIES).expand(2, -1, -1), torch.ones(2, QUERIES).bool(), torch.float64
    )
    whole, _ = block(x, None, causal_mask)
    cache = AttentionCache()
    for t in range(QUERIES):
        row, logits = block(x[:, t : t + 1], None, everything(1, t + 1), cache=cache)
        assert logits.shape == (2, HEADS, 1, t + 1)
        assert torch.allclose(row[:, 0], whole[:, t], atol=1e-12)


def test_memory_is_projected_once() -> None:
    block = LatentAttention(BLOCK, WIDTH, None)
    memory, cache = torch.randn(2, KEYS, WIDTH), AttentionCache()
    query = torch.randn(2, 1, WIDTH)
    first, _ = block(query, memory, everything(1, KEYS), cache=cache)
    again, _ = block(query, torch.full_like(memory, torch.nan), everything(1, KEYS), cache=cache)
    assert torch.equal(first, again)


def test_scores_are_at_least_float32() -> None:
    attention = MultiHeadAttention(WIDTH, HEADS)
    q, k = torch.randn(2, 2, HEADS, QUERIES, 2, dtype=torch.bfloat16).unbind()
    assert attention.scores(q, k).dtype == torch.float32


@pytest.mark.parametrize("heads", [0, 4])
def test_heads_must_divide_the_width(heads: int) -> None:
    with pytest.raises(ValueError, match=rf"heads must divide the width 6, got {heads}"):
        MultiHeadAttention(WIDTH, heads)


def test_particles_in_front_run_at_once() -> None:
    block = LatentAttention(BLOCK, WIDTH, Gaussian(Identity(), HeadScale(HEADS)))
    x = torch.randn(2, QUERIES, WIDTH)
    with pyro.plate("particles", 4, dim=-2):
        out, logits = block(x, None, everything(QUERIES, QUERIES))
    assert out.shape == (4, 2, QUERIES, WIDTH)
    assert not torch.equal(logits[0], logits[1])
