"""Maps in bytes: small enough, and still what they were."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest
import torch

from latentheads.contrib.page.packing import (
    MAX_CELLS,
    MAX_SIDE,
    pack_maps,
    pool_weights,
    pooling_stride,
    quantise_weights,
)


@pytest.mark.parametrize(
    ("size", "stride"),
    [
        *(((60, 200), (1, 1)), ((128, 128), (1, 1)), ((1, 257), (1, 2)), ((256, 65), (2, 1))),
        ((1000, 300), (7, 3)),  # cells of either side become larger in turn
    ],
)
def test_a_map_is_pooled_where_it_is_too_large(
    size: tuple[int, int], stride: tuple[int, int]
) -> None:
    assert pooling_stride(*size) == stride


def test_no_map_is_too_large() -> None:
    for queries, keys in ((1, 9999), (9999, 9999), (300, 90), (257, 257)):
        rows, columns = (-(-n // s) for n, s in zip((queries, keys), pooling_stride(queries, keys)))
        assert rows * columns <= MAX_CELLS
        assert max(rows, columns) <= MAX_SIDE


def test_rows_of_a_pooled_map_sum_to_one() -> None:
    weights = torch.softmax(torch.randn(2, 5, 7, dtype=torch.float64), -1)
    pooled = pool_weights(weights, (2, 3))
    assert pooled.shape == (2, 3, 3)
    torch.testing.assert_close(pooled.sum(-1), torch.ones(2, 3, dtype=torch.float64))
    torch.testing.assert_close(pooled[1, 0, 0], weights[1, :2, :3].sum() / 2)
    torch.testing.assert_close(pooled[1, 2, 2], weights[1, 4, 6])


def test_a_byte_tells_small_weights_apart() -> None:
    weights = torch.tensor([0.0, 1e-4, 4e-4, 0.25, 1.0, torch.nan], dtype=torch.float64)
    coded = quantise_weights(weights)
    assert coded.tolist() == [0, 3, 5, 128, 255, 0]
    torch.testing.assert_close(
        torch.tensor((coded / 255.0) ** 2)[:5], weights[:5], atol=2e-3, rtol=0.0
    )


def test_packed_maps_are_found_behind_each_other() -> None:
    one, two = np.arange(6, dtype=np.uint8).reshape(2, 3), np.full((1, 2), 9, np.uint8)
    opened = zlib.decompress(base64.b64decode(pack_maps([one, two])))
    assert list(opened) == [0, 1, 2, 3, 4, 5, 9, 9]
