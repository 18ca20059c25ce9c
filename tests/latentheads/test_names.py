"""Names of chains, blocks and sites."""

from __future__ import annotations

from dataclasses import replace

import pytest

from latentheads.names import (
    ALIGNMENT,
    ATTENTION_TYPES,
    Block,
    attention_type_of,
    block_of,
    check_attention_types,
    latent_of,
    layer_of,
    parse_attention_types,
    side_of,
)


@pytest.mark.parametrize("chain", [*ATTENTION_TYPES, ALIGNMENT])
def test_a_chain_and_its_sites_are_of_one_side(chain: str) -> None:
    block = Block(chain, 2, 4)
    sides = {side_of(name) for name in (chain, block.name, block.site(), block.site("selection"))}
    assert sides == {chain.split("-")[0]}


@pytest.mark.parametrize("chain", [*ATTENTION_TYPES, ALIGNMENT])
def test_a_site_names_its_block_and_its_latent(chain: str) -> None:
    block = Block(chain, 2, 4, first_layer=2)
    site = block.site("active")
    assert (block_of(site), attention_type_of(site)) == (block.name, chain)
    assert (latent_of(site), layer_of(site)) == ("active", 2)
    assert block.is_lowest
    assert not replace(block, layer=3).is_lowest


def test_attention_types_are_all_none_or_a_list() -> None:
    assert parse_attention_types("all") is None
    assert parse_attention_types("none") == ()
    assert parse_attention_types("decoder-self, encoder-self") == ("decoder-self", "encoder-self")
    with pytest.raises(ValueError, match=r"^attention type must be one of .*, or all, or none; go"):
        parse_attention_types("self")


def test_a_text_is_no_list_of_chains() -> None:
    check_attention_types("latent", ATTENTION_TYPES)
    with pytest.raises(ValueError, match=r"^latent must be a list, got"):
        check_attention_types("latent", "encoder-self")
    with pytest.raises(ValueError, match=r"^attention type must be one of de"):
        check_attention_types("latent", ATTENTION_TYPES, ATTENTION_TYPES[1:2])
