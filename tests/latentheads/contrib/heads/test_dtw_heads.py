"""The list of heads for programs that warp time has the times that were learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import latentheads as lh
from latentheads.contrib.heads.boundaries.chain import BoundaryTimes
from latentheads.contrib.heads.boundaries.dtw import dtw_starts
from latentheads.contrib.heads.boundaries.fit import FitOptions
from latentheads.contrib.heads.dtw_heads import WarpedExample, choose_for_dtw, heads_for_dtw
from latentheads.contrib.heads.word_attention import ForcedExample, record_cross_attention
from tests.latentheads.contrib.hf.networks import FRAMES, IDS, bart, whisper
from tests.tiny import jiggle
from tests.typechecking import unchecked

WORDS = [(2, 3), (3, 5), (5, 6)]
ROWS = [0, 10, 20, 30, 37]
"""The positions of the rows of four tokens, and of the end."""
HEADS = [(0, 0), (0, 1), (1, 0), (1, 1)]


def attention(shown: list[bool], lead: int = 0) -> Tensor:
    """A head that attends to tokens in turn, and evenly to all positions at the other rows."""
    weights = torch.full((7, 43), 1 / 43)
    for row, (start, is_shown) in enumerate(zip(ROWS, shown, strict=True)):
        if is_shown:
            weights[row + 1, max(0, start - lead) : start - lead + 10] = 1.0
    return weights


def example(
    *heads: Tensor, with_ends: bool = False, words: Sequence[tuple[int, int]] = WORDS
) -> WarpedExample:
    """Of words at 0, 10 and 30, with a position of .02 seconds."""
    positions = {"starts": [0.0, 10.0, 30.0], "ends": [10.0, 30.0, 37.0]}
    times = {
        kind: BoundaryTimes(*[torch.tensor(values).double() * 0.02] * 3)
        for kind, values in positions.items()
        if kind == "starts" or with_ends
    }
    return WarpedExample.of(torch.stack(heads), words, times, 0.02)


def test_a_head_that_shows_all_words_is_enough_and_one_that_leads_is_left_out() -> None:
    flat = attention([False] * 5)
    early = attention([True] * 5, lead=3)
    planted = example(flat, early, attention([True] * 5), attention([True] * 5))
    assert planted.errors([2]).tolist() == pytest.approx([0, 0, 0])
    assert choose_for_dtw(HEADS, [planted]) == [(1, 0)]
    assert planted.errors([1]).tolist() == pytest.approx([0, 3, 3])
    assert planted.errors([0]).max() == 5  # as every error beyond it


def test_heads_that_show_different_words_are_joined() -> None:
    halves = attention([True] * 2 + [False] * 3), attention([False] * 2 + [True] * 3)
    planted = example(halves[0], attention([False] * 5), halves[1])
    (first,) = choose_for_dtw(HEADS[:3], [planted], most=1)
    assert set(choose_for_dtw(HEADS[:3], [planted, planted])) == {(0, 0), (1, 0)} > {first}


def test_times_are_those_of_the_programs() -> None:
    weights = torch.rand(4, 7, 43, generator=torch.Generator().manual_seed(0))
    weights[:, [2, 6]] *= 5  # rows are divided by their sum, that of the end token too
    starts = dtw_starts(weights[[0, 3]], slice(1, -1))[[0, 1, 3]]
    planted = example(*weights)
    errors = np.minimum(np.abs(starts - [0, 10, 30]), 5)
    np.testing.assert_allclose(planted.errors([0, 3]), errors, atol=1e-12)
    assert replace(planted, positions=starts).errors([0, 3]).tolist() == [0, 0, 0]


def test_ends_that_were_learned_are_those_of_the_programs_too() -> None:
    planted = example(attention([True] * 5), attention([True] * 4 + [False]), with_ends=True)
    assert planted.rows.tolist() == [0, 1, 3, 1, 3, 4]
    assert planted.errors([0]).tolist() == pytest.approx([0] * 6)
    assert planted.errors([1])[5] > 0
    assert choose_for_dtw(HEADS[:2], [planted]) == [(0, 0)]


def test_a_last_word_that_has_the_end_token_ends_where_that_is_predicted() -> None:
    planted = example(attention([True] * 5), with_ends=True, words=[*WORDS[:2], (5, 7)])
    assert planted.rows.tolist() == [0, 1, 3, 1, 3, 4]


@pytest.mark.filterwarnings("ignore:no head has P above")
def test_the_network_is_read_as_the_programs_read_it() -> None:
    network: Any = jiggle(whisper(), 0.3).double().eval()
    inputs = {"input_features": FRAMES[:1].double()}
    sounds = [ForcedExample(inputs, [1, 3, token, 7, 1], [(1, 3), (3, 4)]) for token in (4, 5)]
    options = FitOptions(views=1, rounds=1, steps=1, reach=2)
    heads = lh.alignment_heads(network, sounds, options=options)
    planted = []
    for sound in sounds:
        weights = record_cross_attention(network, replace(sound, tokens=[*sound.tokens, 1]))
        assert weights.shape[1] == 5  # the query at the end token too
        times = heads.align(network, sound)
        planted.append(WarpedExample.of(weights, sound.words, times, heads.step))
    assert heads_for_dtw(heads, network, sounds) == choose_for_dtw(heads.heads, planted)
    with pytest.raises(ValueError, match=r"^most must be at least 1, got 0$"):
        heads_for_dtw(heads, network, sounds, most=0)
    with pytest.raises(ValueError, match=r"^examples must be at least one, got none$"):
        heads_for_dtw(heads, network, [])
    with pytest.raises(ValueError, match=r"^examples must be a list of ForcedExample, got one"):
        unchecked(heads_for_dtw)(heads, network, sounds[0])
    with pytest.raises(ValueError, match=r"^examples\[0\] has a step of 1, got step=0.02$"):
        heads_for_dtw(heads, network, [replace(sounds[0], step=1.0)])
    text = ForcedExample({"input_ids": IDS[:1]}, [1, 3, 5, 1], [(1, 2)])
    with pytest.raises(ValueError, match=r"^examples must be of sound: no program warps text$"):
        heads_for_dtw(heads, bart(), [text])
    with pytest.raises(ValueError, match=r"^word 0 must be a span of tokens"):
        heads_for_dtw(heads, network, [replace(sounds[0], words=[(0, 3)])])
    whole = replace(sounds[0], tokens=[1, 3, *[5] * 13, 1])  # as many as the network takes
    assert heads_for_dtw(heads, network, [whole])
    long = replace(sounds[0], tokens=[1, 3, *[5] * 14, 1])
    with pytest.raises(ValueError, match=r"^tokens must be at most 16 for this network, got 17$"):
        heads_for_dtw(heads, network, [long])
    heads.align(network, long)  # for which the last token is no input
    many = replace(whole, words=[(first, first + 1) for first in range(1, 8)])
    with pytest.raises(ValueError, match=r"^there are more words than positions of sound: 7 words"):
        heads_for_dtw(heads, network, [many])
