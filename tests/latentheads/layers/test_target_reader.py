"""A reader of a whole target."""

from __future__ import annotations

import torch

from latentheads.layers.target_reader import TargetReader


@torch.no_grad()
def test_a_reader_knows_the_order_of_words() -> None:
    reader, words = TargetReader(3, 2).eval(), torch.randn(1, 5, 3)
    valid = torch.ones(1, 5, dtype=torch.bool)
    found, turned = reader(words, valid), reader(words.flip(1), valid).flip(1)
    assert not torch.allclose(found, turned, atol=1e-3)


@torch.no_grad()
def test_a_reader_takes_a_text_without_a_word() -> None:
    valid = torch.tensor([[True, False, False], [False, False, False]])
    assert TargetReader(3, 2).eval()(torch.randn(2, 3, 3), valid).isfinite().all()
