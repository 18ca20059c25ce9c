"""Options of gates, and what they refuse in one line."""

from __future__ import annotations

from typing import Any

import pytest

from latentheads.latents.bernoulli_heads.options import (
    BernoulliHeadsOptions,
    check_number_of_subsets,
)
from latentheads.latents.bernoulli_heads.prior import dependence_mask
from latentheads.latents.options import ModelShape
from latentheads.models import LanguageModel
from latentheads.names import Block
from tests.latentheads.latents.bernoulli_heads.models import build, gates_of
from tests.tiny import sizes


def test_the_default_is_the_top_block_that_reads_the_source() -> None:
    assert gates_of(build("")).sites == ["decoder.1.cross.active"]
    model = LanguageModel(13, sizes(), latents=[BernoulliHeadsOptions()])
    assert gates_of(model).sites == ["decoder.1.self.active"]


def test_blocks_are_taken_from_the_lowest() -> None:
    latent = gates_of(build("decoder.1.cross,encoder.0.self,decoder.1.self"))
    assert [block.name for block in latent.addresses] == [
        "encoder.0.self",
        "decoder.1.self",
        "decoder.1.cross",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 1}, "rate must be below 1, got 1"),
        ({"rate": 0}, "rate must be above 0, got 0"),
        ({"gibibytes": 0}, "gibibytes must be above 0, got 0"),
    ],
)
def test_values_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BernoulliHeadsOptions(**options)


def test_an_unknown_block_is_named() -> None:
    with pytest.raises(ValueError, match=r"blocks must be one of .*decoder.1.cross"):
        build("decoder.7.self")


def test_without_a_decoder_a_block_must_be_named() -> None:
    shape = ModelShape(3, ("encoder-self",), blocks=(Block("encoder-self", 0, 3),))
    with pytest.raises(ValueError, match=r"bernoulli-heads.blocks must name a block"):
        BernoulliHeadsOptions().make(shape)
    assert BernoulliHeadsOptions("encoder.0.self").make(shape).heads == [3]


def test_more_than_4096_subsets_are_refused_by_their_number() -> None:
    twelve = [Block("decoder-self", layer, 6) for layer in range(2)]
    check_number_of_subsets(twelve)
    with pytest.raises(ValueError, match=r"have 8,192 subsets of heads .* at most 4,096 are"):
        check_number_of_subsets([*twelve, Block("decoder-cross", 0, 1)])


def test_what_acts_on_the_encoder() -> None:
    assert BernoulliHeadsOptions("decoder.0.self, encoder.0.self").acts_on_encoder
    assert not BernoulliHeadsOptions("decoder.0.self").acts_on_encoder
    assert not BernoulliHeadsOptions().acts_on_encoder


def test_a_cascade_over_one_block_is_a_product_over_heads() -> None:
    for blocks in ("", "decoder.1.cross", "decoder.1.self,decoder.1.cross"):
        gates = build(blocks)
        same = not dependence_mask(gates_of(gates).heads, "cascaded").any()
        options = BernoulliHeadsOptions(blocks)
        assert options.reduced_structure("cascaded") == ("mean-field" if same else "cascaded")
        assert options.reduced_structure("autoregressive") == "autoregressive"
