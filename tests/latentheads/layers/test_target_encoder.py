"""A reader of a whole target."""

from __future__ import annotations

import pytest
import torch

from latentheads.layers.target_encoder import TargetEncoder
from tests.operations import Ran


@torch.no_grad()
def test_a_reader_knows_the_order_of_words() -> None:
    reader, words = TargetEncoder(3, 2).eval(), torch.randn(1, 5, 3)
    valid = torch.ones(1, 5, dtype=torch.bool)
    read_states, turned = reader(words, valid), reader(words.flip(1), valid).flip(1)
    assert not torch.allclose(read_states, turned, atol=1e-3)


@torch.no_grad()
def test_a_reader_takes_a_text_without_a_word() -> None:
    valid = torch.tensor([[True, False, False], [False, False, False]])
    assert TargetEncoder(3, 2).eval()(torch.randn(2, 3, 3), valid).isfinite().all()


@pytest.mark.parametrize(("dtype", "fused"), [(None, True), (torch.bfloat16, False)])
def test_attention_on_a_cpu_is_fused_but_in_half_precision(
    dtype: torch.dtype | None, fused: bool
) -> None:
    words, valid = torch.randn(1, 5, 3), torch.ones(1, 5, dtype=torch.bool)
    with torch.autocast("cpu", dtype, dtype is not None), Ran() as ran:
        TargetEncoder(3, 2)(words, valid)
    assert ("_scaled_dot_product_flash_attention_for_cpu" in ran.names) == fused
