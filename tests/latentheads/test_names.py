"""Names of chains, blocks and sites."""

from __future__ import annotations

import pytest

from latentheads.names import ALIGNMENT, ATTENTION_TYPES, Block, check_attention_types, side_of


@pytest.mark.parametrize("chain", [*ATTENTION_TYPES, ALIGNMENT])
def test_a_chain_and_its_sites_are_of_one_side(chain: str) -> None:
    block = Block(chain, 2, 4)
    sides = {side_of(name) for name in (chain, block.name, block.site(), block.site("selection"))}
    assert sides == {chain.split("-")[0]}


def test_a_text_is_no_list_of_chains() -> None:
    check_attention_types("latent", ATTENTION_TYPES)
    with pytest.raises(ValueError, match=r"^latent must be a list, got"):
        check_attention_types("latent", "encoder-self")
    with pytest.raises(ValueError, match=r"^attention type must be one of de"):
        check_attention_types("latent", ATTENTION_TYPES, ATTENTION_TYPES[1:2])
