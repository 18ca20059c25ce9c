"""Which tokens a network can read."""

from __future__ import annotations

import pytest
import torch

from latentheads.contrib.hf.tokens import check_tokens
from tests.latentheads.contrib.hf.networks import TYPES, gpt2, grouped, t5

LONG = {"input_ids": torch.ones(1, 17, dtype=torch.long)}


def test_a_network_without_a_table_of_positions_reads_texts_of_any_length() -> None:
    rotary = grouped(max_position_embeddings=TYPES)  # its table of tokens has as many rows
    relative = t5()
    relative.side = torch.nn.Embedding(2, 6)  # as many rows as OPT's table has before position 0
    for network in (rotary, relative):
        check_tokens(LONG, network)
    with pytest.raises(ValueError, match=r"^input_ids has 17 tokens, and the network has pos"):
        check_tokens(LONG, gpt2())
