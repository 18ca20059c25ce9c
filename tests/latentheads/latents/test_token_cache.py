"""A result is that of the tokens as they are."""

from __future__ import annotations

import torch
from torch import Tensor

from latentheads.latents.token_cache import TokenCache


def test_a_result_is_computed_once_for_tokens_as_they_are() -> None:
    cache, tokens = TokenCache[Tensor](), torch.tensor([2, 3, 5])

    def get(of: Tensor) -> Tensor:
        return cache.get(of, lambda: of.sum())

    first = get(tokens)
    assert get(tokens) is first
    assert get(tokens[:2]) == 5  # the same address
    with torch.no_grad():  # a result without a graph is another
        assert get(tokens) is not first
    tokens[0] = 7
    assert get(tokens) == 15


@torch.inference_mode()
def test_a_tensor_of_inference_mode_has_no_version_to_rely_on() -> None:
    cache, tokens = TokenCache[Tensor](), torch.tensor([2, 3, 5])
    for first, total in ((2, 10), (7, 15)):
        tokens[0] = first
        assert cache.get(tokens, tokens.sum) == total
