"""Which pairs are read, and which carry a latent."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from latentheads.mask import AttentionMask, PairMask, causal


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 10_000))
def test_mask_is_its_definition_pair_by_pair(queries: int, keys: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    readable = torch.rand(2, queries, keys, generator=generator) < 0.6
    real = torch.rand(2, queries, generator=generator) < 0.7
    mask = PairMask.build(readable, real, torch.float64)
    for b in range(2):
        for t in range(queries):
            row = readable[b, t]
            for s in range(keys):
                carries = bool(row[s] and real[b, t] and row.sum() > 1)
                assert mask.latent[b, t, s].item() == carries
                blocked = bool(row.any() and not row[s])
                assert mask.bias[b, 0, t, s].item() == (-torch.inf if blocked else 0)
    assert torch.equal(mask.pairs, mask.latent.sum((-1, -2)))
    assert mask.bias.dtype == mask.latent.dtype == mask.pairs.dtype == torch.float64


@given(st.integers(1, 6), st.integers(0, 10_000))
def test_softmax_is_finite_and_zero_where_nothing_is_read(keys: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    readable = torch.rand(1, 3, keys, generator=generator) < 0.4
    mask = PairMask.build(readable, torch.ones(1, 3).bool(), torch.float64)
    logits = torch.randn(1, 2, 3, keys, dtype=torch.float64, generator=generator).requires_grad_()
    weights = torch.softmax(logits + mask.bias, -1)
    weights.square().sum().backward()
    assert torch.allclose(weights.sum(-1), torch.ones(1, 2, 3, dtype=torch.float64))
    ignored = (~readable & readable.any(-1, keepdim=True))[:, None].expand_as(weights)
    assert (weights[ignored] == 0).all()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_causal_reads_no_later_key() -> None:
    assert torch.equal(causal(5), torch.ones(5, 5).tril().bool())
    assert torch.equal(causal(5, start=3), causal(5)[3:])


def test_a_query_costs_its_own_row_however_much_was_read_before_it() -> None:
    far = 10**6  # a square of so many would fit nowhere
    mask = AttentionMask(torch.ones(1, 2, dtype=torch.bool), start=far).mask
    assert mask.latent[0].sum(-1).tolist() == [far + 1, far + 2]


def test_first_row_of_a_causal_block_has_no_latent() -> None:
    mask = PairMask.build(causal(4)[None], torch.ones(1, 4).bool())
    assert mask.pairs.item() == 4 * 5 / 2 - 1
    assert mask.latent[0, 0].sum() == 0
