"""The picture of a sentence pair: three maps, gold links framed, words on both axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from latentheads.contrib.align.symmetrization import LinkPosterior
from latentheads.contrib.plot import draw_word_links
from tests.latentheads.contrib.plot.drawn import ticks

FORWARD = np.array([[0.9, 0.1, 0.0], [0.1, 0.4, 0.64]])
BACKWARD = np.array([[0.4, 0.0, 0.5], [0.1, 0.9, 0.25]])


def test_both_directions_and_their_mean_stand_side_by_side() -> None:
    posterior = LinkPosterior(FORWARD, BACKWARD, (-1.0, -1.0))
    figure: Any = draw_word_links(posterior, ["a", "b$"], ["x", "y", "z"], {(1, 2)}, "a pair")
    *maps, _ = figure.axes
    values = [axis.images[0].get_array() for axis in maps]
    np.testing.assert_allclose(values[0], FORWARD.T)
    np.testing.assert_allclose(values[1], BACKWARD.T)
    assert float(values[2][2, 1]) == pytest.approx(0.4)
    assert ticks(maps[0], "x") == ["a", r"b\$"]
    assert ticks(maps[0], "y") == ["x", "y", "z"]
    for axis in maps:
        frames = [patch.get_xy() for patch in axis.patches if isinstance(patch, Rectangle)]
        assert frames == [(0.5, 1.5)]
        assert axis.get_xlabel() == "source word"
    assert maps[0].get_ylabel() == "target word"
    assert figure.get_suptitle() == "a pair\nFramed: gold links."


def test_other_words_than_those_of_the_posterior_are_one_line() -> None:
    posterior = LinkPosterior(FORWARD, BACKWARD, (-1.0, -1.0))
    with pytest.raises(ValueError, match=r"must have \(2, 3\) words, as the posterior; got"):
        draw_word_links(posterior, ["a"], ["x", "y", "z"])
