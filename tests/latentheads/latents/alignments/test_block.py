"""A block of alignments: what its word vectors are made of."""

from __future__ import annotations

import torch

from tests.latentheads.latents.alignments.models import SHAPES, aligned


@torch.no_grad()
def test_words_are_made_of_what_dropout_leaves_while_training() -> None:
    model, memory = aligned(SHAPES["two heads"], dropout=0.5), torch.randn(5, 7, 6)
    (block,) = model.alignments.blocks
    plain = block.lexicon(block.norm(memory)).unflatten(-1, (2, 6)).unbind(-2)
    assert torch.equal(torch.stack(block.vectors(memory)), torch.stack(plain))
    block.train()
    one, other = (torch.stack(block.vectors(memory)) for _ in "12")
    assert not torch.allclose(one, other)
