"""One style: it tells colours apart, leaves the reader's own alone, and reaches every figure."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import matplotlib.style
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from latentheads.contrib import plot
from latentheads.contrib.plot.canvas import save
from latentheads.contrib.plot.style import PALETTE, distinct_colours, styled

BLINDNESS = {
    "none": np.eye(3),
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
}
"""What becomes of red, green and blue (Machado et al. 2009, https://doi.org/10.1109/TVCG.2009.113)."""


@pytest.mark.parametrize("kind", BLINDNESS)
def test_the_first_six_colours_are_told_apart_by_everybody(kind: str) -> None:
    colours = [np.array(to_rgb(item)) ** 2.2 for item in PALETTE[:6]]
    seen = [np.clip(np.array(BLINDNESS[kind]) @ colour, 0, 1) ** (1 / 2.2) for colour in colours]
    assert min(float(np.abs(a - b).sum()) for a, b in combinations(seen, 2)) > 0.25


def test_colours_of_many_series_begin_with_the_palette_and_are_distinct() -> None:
    colours = distinct_colours(24)
    assert colours[:8] == list(PALETTE)
    seen = [np.array(to_rgb(colour)) for colour in colours]
    assert min(float(np.abs(a - b).sum()) for a, b in combinations(seen, 2)) > 0.15
    assert len(distinct_colours(100)) == 100


def test_a_figure_is_in_the_style_and_the_readers_own_stays_as_it_was(tmp_path: Any) -> None:
    before = dict(matplotlib.rcParams)
    figure = plot.draw_kl({"encoder.0.self.logits": 0.25})
    save(figure, tmp_path / "kl.png")
    assert dict(matplotlib.rcParams) == before
    (axis,) = figure.axes
    assert not axis.spines["top"].get_visible()
    assert axis.patches[0].get_facecolor()[:3] == to_rgb(PALETTE[0])
    with styled():
        assert matplotlib.rcParams["savefig.dpi"] == 144
