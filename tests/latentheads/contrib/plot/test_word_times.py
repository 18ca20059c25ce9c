"""The figure of word times shows every word, interval and head."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.collections import PathCollection

from latentheads.contrib.heads.alignment_heads import AlignmentHead
from latentheads.contrib.heads.boundaries.chain import BoundaryTimes
from latentheads.contrib.plot import draw_word_times
from latentheads.contrib.plot.style import GOLD
from tests.latentheads.contrib.plot.drawn import texts_of, ticks
from tests.typechecking import unchecked


def test_times_of_both_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^starts must be BoundaryTimes, as heads.align\("):
        unchecked(draw_word_times)(np.eye(3, 5), ["a"], {"starts": None}, [], 1.0)


def test_words_do_not_touch() -> None:
    words = ["to", "communication", "a", "x", "responsibilities", "the", "wwwww"] * 5
    median = torch.arange(35) / 5.0
    figure: Any = draw_word_times(
        np.eye(3, 5), words, BoundaryTimes(median, median, median), [], 7.5
    )
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_words_intervals_and_lags_are_drawn() -> None:
    median = torch.tensor([0.25, 0.5]).double()
    starts = BoundaryTimes(median, median - 0.125, median + 0.0625)
    head = AlignmentHead((2, 4), 0.9, (1.5, 1.2, 1.8), 0.05, 0.04, 0.1, 0.9, False)
    truth = [0.3, float("nan")]
    arguments = np.eye(3, 5), ["a", "b"], starts, [head], 1.0, truth
    figure: Any = draw_word_times(*arguments, [(2, 4)])
    sound, lags = figure.axes
    assert lags.get_yticklabels()[0].get_color() == GOLD
    heads, marked = [replace(head, head=(0, 1)), head], iter([[2, 4]])  # as of generation_config
    listed: Any = unchecked(draw_word_times)(*arguments[:3], heads, 1.0, truth, marked)
    other, own = listed.axes[1].get_yticklabels()
    assert other.get_color() != GOLD == own.get_color()
    assert texts_of(sound.texts) == ["a", "b"]
    assert sound.images[0].origin == "lower"  # deep sounds below
    assert sound.get_title() == "Start of each word: posterior median and interval"
    spans = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in sound.patches]
    assert spans == [(0.125, 0.3125), (0.375, 0.5625)]
    (points,) = (c for c in sound.collections if isinstance(c, PathCollection))
    assert points.get_offsets()[0][0] == 0.3
    assert ticks(lags, "y") == ["L2H4"]
    half, middle = lags.lines[:2]
    np.testing.assert_allclose(half.get_xdata(), [30, 70])
    np.testing.assert_allclose(middle.get_xdata(), [50])
