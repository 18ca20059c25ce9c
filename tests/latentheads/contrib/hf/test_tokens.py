"""Which tokens a network can read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

from latentheads.contrib.hf.tokens import check_tokens
from tests.latentheads.contrib.hf.networks import (
    HEADS,
    SIZES,
    TYPES,
    gpt2,
    grouped,
    roberta,
    t5,
    whisper,
)

LONG = {"input_ids": torch.ones(1, 17, dtype=torch.long)}


def test_a_network_without_a_table_of_positions_reads_texts_of_any_length() -> None:
    rotary = grouped(max_position_embeddings=TYPES)  # its table of tokens has as many rows
    relative = t5()
    relative.side = torch.nn.Embedding(2, 6)  # as many rows as OPT's table has before position 0
    for network in (rotary, relative):
        check_tokens(LONG, network)
    with pytest.raises(ValueError, match=r"^input_ids has 17 tokens, and the network has pos"):
        check_tokens(LONG, gpt2())


def esm() -> Any:
    """A function of its file computes its positions, which is a method of others."""
    tokens = {"vocab_size": TYPES, "mask_token_id": 1, "pad_token_id": 2}
    return transformers.EsmForMaskedLM(transformers.EsmConfig(**tokens, **SIZES, **HEADS))


@pytest.mark.parametrize("make", [roberta, esm])
def test_positions_that_begin_after_the_id_of_padding_are_fewer(make: Callable[[], Any]) -> None:
    network, text = make(), torch.arange(3, 17)[None] % 10 + 3
    network(fits := torch.nn.functional.pad(text[:, :13], (0, 4), value=2))
    check_tokens({"input_ids": fits}, network)
    with pytest.raises(ValueError, match=r"has 14 tokens, and the network has positions for 13:"):
        check_tokens({"input_ids": torch.cat([text, fits[:, :14]])}, network)


def test_the_decoder_of_whisper_has_positions_for_so_many_tokens() -> None:
    network = whisper()
    size = network.config.max_target_positions
    check_tokens({"decoder_input_ids": torch.ones(1, size, dtype=torch.long)}, network)
    with pytest.raises(ValueError, match=rf"has {size + 1} tokens, .* positions for {size}:"):
        check_tokens({"decoder_input_ids": torch.ones(1, size + 1, dtype=torch.long)}, network)


@pytest.mark.parametrize("token", [-1, TYPES])
def test_an_id_beyond_the_vocabulary_is_refused(token: int) -> None:
    network, last = gpt2(), TYPES - 1
    check_tokens({"input_ids": torch.tensor([[0, last]])}, network)
    with pytest.raises(ValueError, match=rf"has the id {token}, .* has the ids 0 to {last}$"):
        check_tokens({"input_ids": torch.tensor([[0, token]])}, network)
