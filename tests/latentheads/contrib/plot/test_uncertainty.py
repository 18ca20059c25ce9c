"""What stands in the figures of uncertainty."""

import math

import numpy as np
import pytest

from latentheads.contrib.plot import draw_metrics, draw_rejection, draw_reliability
from latentheads.contrib.uncertainty import Bins, Figure
from tests.latentheads.contrib.plot.drawn import ticks

BINS = Bins(np.array([20.0, 0.0]), np.array([0.25, np.nan]), np.array([0.5, np.nan]))


def some_figure(score: float) -> Figure:
    return Figure(score, score - 0.1, score + 0.2, 0.0, 0.0, 0.0, None, [score])


def test_a_panel_a_system_with_a_line_for_each_of_its_laws() -> None:
    drawn = draw_reliability({name: {"as it is": BINS} for name in "abcde"}, "title")
    shown = [axis for axis in drawn.axes if axis.get_visible()]
    assert [axis.get_title() for axis in shown] == [*"abcde"]
    line = shown[0].get_lines()[1]
    assert line.get_xydata()[0].tolist() == [0.25, 0.5]
    assert line.get_label() == "as it is: ECE 0.250"


def test_small_bins_have_small_markers_and_no_line() -> None:
    few = Bins(np.array([2.0, 60.0, 138.0]), np.array([0.2, 0.5, 0.9]), np.array([1.0, 0.4, 0.8]))
    (axis,) = draw_reliability({"a": {"as it is": few}}).axes
    assert axis.get_lines()[1].get_xydata().tolist() == [[0.5, 0.4], [0.9, 0.8]]
    points = axis.collections[0]
    assert points.get_offsets().tolist() == [[0.2, 1.0], [0.5, 0.4], [0.9, 0.8]]
    small, middle, large = points.get_sizes()
    assert 0 < small < middle
    assert large / middle == pytest.approx(138 / 60)
    assert axis.get_xlabel().endswith("\n(area: share of tokens;\nline: bins of 10 or more)")
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["as it is: ECE 0.107"]


def test_a_panel_a_system_with_a_curve_for_each_score_of_all_its_error() -> None:
    curve, oracle, none = np.array([0.4, 0.1, 0.0]), np.array([0.4, 0.0, 0.0]), np.zeros(2)
    systems = {"a": {"log p": curve}, "b": {"log p": curve, "knowledge": curve}, "c": {}}
    drawn = draw_rejection(systems, {"a": oracle, "b": oracle, "c": none}, "title")
    first, second, third = drawn.axes
    assert [axis.get_title() for axis in drawn.axes] == ["a", "b", "c"]
    labels = [line.get_label() for line in first.get_lines()]
    assert labels == ["random order", "by log p", "by the errors themselves"]
    assert first.get_lines()[1].get_ydata().tolist() == [1, 0.25, 0]
    assert first.get_lines()[1].get_color() == second.get_lines()[1].get_color()
    assert [line.get_ydata()[0] for line in third.get_lines()] == [1, 0]


def test_dots_have_their_intervals_and_what_is_missing_has_none() -> None:
    systems = {
        "a": {"nll": some_figure(2.0)},
        "b": {"nll": some_figure(1.0), "ece": some_figure(3.0)},
    }
    drawn = draw_metrics(systems, {"nats": {"nll": "as it is", "ece": "error"}})
    (axis,) = drawn.axes
    dots = {line.get_label(): line.get_xdata() for line in axis.get_lines()}
    assert dots["as it is"].tolist() == [2, 1]
    assert dots["error"].tolist() == [3]
    ends = axis.collections[0].get_segments()
    assert ends[0][:, 0].tolist() == pytest.approx([1.9, 2.2])
    assert ticks(axis, "y") == ["a", "b"]


def test_an_interval_without_an_end_is_drawn_without_it() -> None:
    drawn = draw_metrics(
        {"a": {"prr": Figure(0.5, -math.inf, math.inf, 0.0, 0.0, 0.0, None, [0.5])}},
        {"rejection": {"prr": "by log p"}},
    )
    drawn.draw_without_rendering()
    low, high = drawn.axes[0].get_xlim()
    assert low < 0.5 < high < 1
