"""Options of copy heads: those of a prior stand in its class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import pytest

from latentheads.latents.copy.options import CopyOptions
from latentheads.latents.copy.priors import ChainCopyPrior, CopyPrior, CopyPriorName
from latentheads.latents.options import ModelShape
from latentheads.options import OptionError
from latentheads.runs.settings import Settings
from tests.typechecking import unchecked


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (0, "copy.across_bias needs a text in blocks and a longer window, got 9: drop it"),
        (9, "copy.across_bias needs blocks of 9 tokens and a longer window, got 9: drop it"),
        (8, ""),
    ],
)
def test_a_bias_across_blocks_needs_a_window_across_blocks(block: int, message: str) -> None:
    copy = {"window": 9, "across_bias": 1}
    data = {"class": "running-text", "folder": "here", "block_size": block}
    if not message:
        assert Settings.from_options({"latents": "copy", "copy": copy, "data": data}).latents
        return
    with pytest.raises(OptionError) as refused:
        Settings.from_options({"latents": "copy", "copy": copy, "data": data})
    assert str(refused.value) == message


def test_an_editor_completes_the_names_that_there_are() -> None:
    assert get_args(CopyPriorName) == tuple(CopyPrior.choices())


@pytest.mark.parametrize("given", [{"class": "chain", "reach": 5}, ChainCopyPrior(5)])
def test_jumps_are_those_of_a_chain(given: Any) -> None:
    assert CopyOptions(prior=given).prior == ChainCopyPrior(5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reach": 3}, "reach is not an option: did you mean prior.reach?"),
        ({"prior": {"reach": 3}}, "prior.reach is not an option of independent, but of chain"),
        ({"across_bias": 1}, "across_bias needs a window, and prior independent: drop it"),
        (
            {"prior": "chain", "window": 9, "across_bias": 1},
            "across_bias needs a window, and prior independent: drop it",
        ),
    ],
)
def test_an_option_without_effect_cannot_be_said(options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        unchecked(CopyOptions)(**options)
    assert str(refused.value) == message


@pytest.mark.parametrize(("prior", "reach"), [("independent", 5), ("chain", 0)])
def test_a_chain_does_not_reach_across_blocks(prior: Any, reach: int) -> None:
    heads = CopyOptions(prior=prior, window=5).make(ModelShape(2, (), 6, is_causal=True))
    assert heads.reach_across_blocks == reach
