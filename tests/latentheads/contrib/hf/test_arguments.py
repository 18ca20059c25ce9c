"""The masks that attention modules are called with."""

from __future__ import annotations

import torch

from latentheads.contrib.hf.arguments import is_readable


def test_a_key_is_masked_though_a_bias_was_added_to_its_mask() -> None:
    for dtype in (torch.float16, torch.float32):
        least = torch.finfo(dtype).min
        mask = torch.tensor([0.0, -3.0, least, least + 64, -torch.inf], dtype=dtype)
        assert is_readable(mask).tolist() == [True, True, False, False, False]
