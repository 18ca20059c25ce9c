"""The largest entries of long rows."""

import pytest
import torch

from latentheads.decoding.topk import BLOCK, MANY, topk


@pytest.mark.parametrize("k", [1, 7])
def test_the_largest_entries_are_those_of_the_whole_row(k: int) -> None:
    """Some are in one block, some in the rest behind the last block, some rows have fewer."""
    x = torch.randn(2, 17, 31 * BLOCK + 11)
    assert x.numel() > MANY
    x[0, :, 5:12] += 9
    x[1, :, -3:] += 9
    x[1, 3, 2:] = -torch.inf
    values, index = topk(x, k)
    expected = x.topk(k)
    assert torch.equal(values, expected.values)
    assert torch.equal(x.gather(-1, index), values)
    finite = values > -torch.inf
    assert torch.equal(index[finite], expected.indices[finite])


def test_rows_of_few_blocks_are_read_whole() -> None:
    x = torch.randn(MANY // BLOCK, 3 * BLOCK)
    expected = x.topk(5)
    values, index = topk(x, 5)
    assert torch.equal(values, expected.values)
    assert torch.equal(index, expected.indices)
