"""Dropout is known by whatever name a module has for it."""

from __future__ import annotations

import pytest
from torch import nn

from latentheads.alignment.block import AlignmentBlock
from latentheads.layers.adaptive import AdaptiveOutput, AdaptiveTable
from latentheads.layers.dropping import drops_out
from latentheads.models.network import FrameEmbedding
from latentheads.names import Block
from tests.tiny import sizes


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_what_is_left_out_in_training_is_known(share: float) -> None:
    block = Block("decoder-alignment", 0, 1)
    attention = nn.MultiheadAttention(2, 1, dropout=share)
    assert drops_out(nn.Dropout(share)) == drops_out(attention) == (share > 0)
    assert drops_out(AdaptiveOutput(AdaptiveTable(9, 4, [3]), share)) == (share > 0)
    assert drops_out(AlignmentBlock(block, 0, 4, 2, "independent", 1, share)) == (share > 0)
    assert drops_out(nn.Dropout2d(1))
    assert not drops_out(nn.TripletMarginLoss())  # its p is a norm
    heard = FrameEmbedding(5, sizes(spec_augment="LB" if share else "none"))
    assert drops_out(heard) == (share > 0)
