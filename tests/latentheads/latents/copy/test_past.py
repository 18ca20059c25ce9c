"""What is remembered of a text."""

from __future__ import annotations

import torch

from latentheads.latents.copy.past import TextPast
from latentheads.latents.network import EncoderDecoderStates
from tests.tiny import small_batch


def test_a_batch_that_is_passed_again_does_not_see_itself() -> None:
    batch, past = small_batch(), TextPast(99)
    states = torch.randn(*batch.target.shape, 2)
    hidden = EncoderDecoderStates(states, states, batch.target_valid[:, None])
    first, again = (past.remember(hidden, batch) for _ in range(2))
    assert torch.equal(first.memory, again.memory)
    assert torch.equal(first.attn_mask, again.attn_mask)
