"""Error rates of links, run beside run."""

from __future__ import annotations

from typing import Any

import pytest

from latentheads.contrib.heads import LinkScore
from latentheads.contrib.plot import draw_links
from latentheads.metrics.alignment import LinkCounts
from tests.latentheads.contrib.plot.drawn import ticks


def test_every_score_has_a_bar_and_runs_stand_apart() -> None:
    scores = [
        LinkScore(text, f"head {index}", LinkCounts(9, 11, index, index))
        for index, text in enumerate(("prior", "posterior", "attention after"))
    ]
    figure: Any = draw_links({"one": scores, "two": scores[2:]}, "what was read")
    (axis,) = figure.axes
    widths = [bar.get_width() for bar in axis.patches]
    assert widths == pytest.approx([1, 1 - 2 / 20, 1 - 4 / 20, 1 - 4 / 20])
    middles = [bar.get_y() + bar.get_height() / 2 for bar in axis.patches]
    assert middles == pytest.approx([1, 2, 3, 5])
    assert ticks(axis, "y") == ["one: head 0", "one: head 1", "one: head 2", "two: head 2"]
    assert len(figure.legends[0].get_texts()) == 3
    assert figure.get_suptitle().endswith("what was read")


def test_a_bar_has_the_interval_of_its_rate() -> None:
    counts = LinkCounts(3, 3, 0, 0), LinkCounts(3, 3, 3, 3)
    score = LinkScore("prior", "head 0", LinkCounts(30, 30, 15, 15), counts * 5)
    figure: Any = draw_links({"one": [score]})
    (lines,) = figure.axes[0].collections
    assert lines.get_segments()[0][:, 0] == pytest.approx(score.interval())
    assert "95 % intervals over sentences" in figure.get_suptitle()
