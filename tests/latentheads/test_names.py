"""Names of chains, blocks and sites."""

from __future__ import annotations

import pytest

from latentheads.names import ALIGNMENT, CHAINS, Block, side_of


@pytest.mark.parametrize("chain", [*CHAINS, ALIGNMENT])
def test_a_chain_and_its_sites_are_of_one_side(chain: str) -> None:
    block = Block(chain, 2, 4)
    found = {side_of(name) for name in (chain, block.name, block.site(), block.site("selection"))}
    assert found == {chain.split("-")[0]}
