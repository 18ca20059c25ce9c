"""The band's layout against all pairs, written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from latentheads.attention.band import Band
from latentheads.mask import AttentionMask

LENGTHS = (1, 2, 5, 7, 37)
every_length = pytest.mark.parametrize("length", LENGTHS)
every_band = pytest.mark.parametrize(
    "band", [Band(n, causal) for n in (1, 2, 3, 11, 41) for causal in (True, False)], ids=str
)


def pairs_of(band: Band, queries: int, keys: int) -> Tensor:
    """The pairs in the band, of the last queries."""
    distance = torch.arange(keys) - torch.arange(keys - queries, keys)[:, None]
    return (distance >= -band.before) & (distance <= band.after)


@every_band
@every_length
def test_products_are_those_of_all_pairs(band: Band, length: int) -> None:
    q, k = torch.randn(2, 3, length, 5), torch.randn(2, 3, length, 5)
    dense = band.to_dense(band.products(q, k))
    assert torch.allclose(dense, q @ k.mT * pairs_of(band, length, length), atol=1e-12)


@every_band
@every_length
def test_sums_are_those_of_all_pairs(band: Band, length: int) -> None:
    weights, v = torch.randn(2, 3, length, length), torch.randn(2, 3, length, 5)
    expected = (weights * pairs_of(band, length, length)) @ v
    assert torch.allclose(band.sums(band.from_dense(weights), v), expected, atol=1e-12)


@every_length
@pytest.mark.parametrize("window", [1, 3, 11])
@pytest.mark.parametrize("kept", [0, 1, 2, 10])
def test_the_last_queries_alone_are_like_all(length: int, window: int, kept: int) -> None:
    band = Band(window, causal=True)
    if kept > band.before:
        return
    q, k = torch.randn(2, kept + length, 5), torch.randn(2, kept + length, 5)
    late = band.products(q[:, kept:], k)
    assert torch.allclose(late, band.products(q, k)[:, kept:], atol=1e-12)
    weights = torch.randn(2, kept + length, band.width)
    late = band.sums(weights[:, kept:], k)
    assert torch.allclose(late, band.sums(weights, k)[:, kept:], atol=1e-12)
    assert torch.equal(band.windows(k, length), band.windows(k, kept + length)[:, kept:])


@every_band
@pytest.mark.parametrize("start", [0, 1, 5])
def test_layouts_turn_into_each_other(band: Band, start: int) -> None:
    queries = 7
    if start and not band.causal:
        return
    whole = torch.randn(2, queries, start + queries)
    near = whole * pairs_of(band, queries, start + queries)
    assert torch.equal(band.to_dense(band.from_dense(whole, start), start), near)
    wider = Band(band.window + 2, band.causal)
    widened = band.to_band(band.from_dense(whole, start), wider)
    assert torch.equal(wider.to_dense(widened, start), near)
    back = wider.to_band(wider.from_dense(whole, start), band)
    assert torch.equal(back, band.from_dense(whole, start))


@every_band
def test_the_mask_is_that_of_all_pairs_within_the_band(band: Band) -> None:
    valid = torch.arange(7) < torch.tensor([7, 4])[:, None]
    if band.causal:
        reach, readable = AttentionMask(valid), pairs_of(band, 7, 7).expand(2, 7, 7)
    else:
        reach, readable = AttentionMask(valid, valid), pairs_of(band, 7, 7) & valid[:, None]
    logits = torch.randn(2, 3, 7, band.width)
    every, mask = band.mask(reach).to_dense(logits)
    real = valid[:, None, :, None].expand(2, 3, 7, 7)
    seen = (mask.bias == 0).expand(2, 3, 7, 7)
    assert torch.equal(seen & real, readable[:, None].expand(2, 3, 7, 7) & real)
    drawn = readable & (readable.sum(-1) > 1)[..., None] & real[:, 0]
    assert torch.equal(mask.latent.bool(), drawn)
    assert torch.equal(mask.pairs, mask.latent.sum((1, 2)))
    assert torch.isfinite(torch.softmax(every + mask.bias, -1)).all()


def test_a_later_step_has_the_rows_of_the_whole() -> None:
    band = Band(3, causal=True)
    whole, late = (
        band.mask(AttentionMask(torch.ones(1, n).bool(), start=s)) for n, s in ((7, 0), (3, 4))
    )
    assert torch.equal(late.bias, whole.bias[..., 4:, :])
    assert torch.equal(late.latent, whole.latent[:, 4:])


@every_band
def test_gradients_reach_the_band_alone(band: Band) -> None:
    q, k, v = (torch.randn(1, 7, 5, requires_grad=True) for _ in range(3))
    band.sums(band.products(q, k), v)[:, 3].sum().backward()
    reached = pairs_of(band, 7, 7)[3]
    for x in (k, v):
        assert torch.equal(x.grad[0].abs().sum(-1) > 0, reached)


def test_memory_is_linear_in_the_length() -> None:
    def largest(length: int) -> int:
        band, sizes = Band(5, causal=False), list[int]()
        x = torch.randn(1, length, 2, requires_grad=True)

        def note(tensor: Tensor) -> Tensor:
            sizes.append(tensor.untyped_storage().nbytes())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            band.sums(band.products(x, x), x)
            band.mask(AttentionMask(torch.ones(1, length).bool()))
        return max(sizes)

    assert largest(2048) < 2.1 * largest(1024)
