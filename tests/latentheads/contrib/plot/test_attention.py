"""Mean attention beside its standard deviation, with bands on one row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from latentheads.contrib.plot import draw_weights
from tests.latentheads.contrib.plot.drawn import images, some_weights, ticks
from tests.typechecking import unchecked

QUERIES, KEYS = ["a", "b", "c"], ["k", "l", "m", "n", "o"]


def test_maps_are_those_of_the_first_sentence_without_its_padding() -> None:
    drawn = some_weights()
    figure = draw_weights(drawn, QUERIES, KEYS, title="what was read")
    expected = [*drawn.mean[0, :, :3, :5], *drawn.deviation[0, :, :3, :5]]
    for shown, values in zip(images(figure), expected, strict=True):
        np.testing.assert_allclose(shown, values)
    assert figure.get_suptitle().startswith("what was read\nA weight varies by up to 0.20")


@pytest.mark.parametrize(("row", "index"), [(None, 2), (1, 1)])
def test_the_row_has_bars_and_bands(row: int | None, index: int) -> None:
    drawn = some_weights()
    figure: Any = draw_weights(drawn, QUERIES, KEYS, row)
    rows = [axis for axis in figure.axes if axis.patches and not axis.images]
    bars = next(axis for axis in rows if axis.get_title(loc="right"))
    assert f"row “{QUERIES[index]}”" in bars.get_title(loc="right")
    heights = [patch.get_height() for patch in bars.patches]
    np.testing.assert_allclose(heights, drawn.mean[0, 0, index, :5])
    ends = np.array([[path.vertices[0, 1], path.vertices[1, 1]] for path in _bands(bars)])
    np.testing.assert_allclose(ends[:, 0], drawn.low[0, 0, index, :5])
    np.testing.assert_allclose(ends[:, 1], drawn.high[0, 0, index, :5])
    assert ticks(rows[-1], "x") == KEYS


def _bands(axis: Any) -> list[Any]:
    return [path for collection in axis.collections for path in collection.get_paths()]


def test_gold_links_are_framed_in_the_means_and_grey_in_the_row() -> None:
    figure: Any = draw_weights(some_weights(), QUERIES, KEYS, 1, links={(3, 1), (0, 2)})
    means, deviations = figure.axes[:2], figure.axes[2:4]
    for axis in means:
        assert [patch.get_xy() for patch in axis.patches] == [(-0.5, 1.5), (2.5, 0.5)]
    assert not [patch for axis in deviations for patch in axis.patches]
    bars = next(axis for axis in figure.axes if axis.get_title(loc="right"))
    assert [patch.get_x() for patch in bars.patches if patch.get_width() == 1] == [2.5]
    assert figure.get_suptitle().endswith("Framed, and grey in the row: gold alignment.")
    for text in ("0-0", ["0-0"]):
        with pytest.raises(ValueError, match=r"^links must be pairs of indices, .*'0-0'"):
            unchecked(draw_weights)(some_weights(), QUERIES, KEYS, links=text)


def test_heads_are_those_asked_for_or_the_first_eight() -> None:
    with pytest.raises(ValueError, match=r"^heads must be a list, got 0$"):
        unchecked(draw_weights)(some_weights(9), QUERIES, KEYS, heads=0)
    assert len(images(draw_weights(some_weights(9), QUERIES, KEYS))) == 2 * 8
    drawn = some_weights(9)
    drawn.deviation[0, 8] = torch.tensor([0.0, 0.05, 0.0, 0.0])[:, None]
    figure: Any = unchecked(draw_weights)(drawn, QUERIES, KEYS, heads=iter([8]))
    shown = images(figure)
    assert "A weight varies by up to 0.05" in figure.get_suptitle()
    assert any("row “b”" in axis.get_title(loc="right") for axis in figure.axes)
    np.testing.assert_allclose(shown[0], drawn.mean[0, 8, :3, :5])
    assert len(shown) == 2


def test_heads_without_noise_are_said_to_have_none_and_have_no_band() -> None:
    figure: Any = draw_weights(some_weights(noise=0.0), QUERIES, KEYS)
    assert "have no noise" in figure.get_suptitle()
    rows = [axis for axis in figure.axes if axis.patches and not axis.images]
    assert rows[0].get_title(loc="right").endswith(":\nits weights")
    assert not any(axis.collections for axis in rows)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_the_share_of_samples_in_which_a_head_is_active_is_named(noise: float) -> None:
    weights = some_weights(4, noise)
    for values in (weights.mean, weights.deviation, weights.low, weights.high):
        values[:, 3] = torch.nan
    weights.active[0] = torch.tensor([1.0, 0.84, 0.6, 0.0])
    figure: Any = draw_weights(weights, QUERIES, KEYS)
    labels = [axis.get_ylabel().split("\n")[1] for axis in figure.axes[:4]]
    assert labels == ["query", "active: 84 %", "active: 60 %", "inactive"]
    line = "Active in 60 to 84 % of the samples; the maps are of these."
    line += " A weight varies by up to 0.20" if noise else " There the weights are equal."
    assert line in " ".join(figure.get_suptitle().split())
    one = draw_weights(weights, QUERIES, KEYS, heads=[1]).get_suptitle()
    assert "Active in 84 % of the samples" in " ".join(one.split())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"row": 3}, "row must lie in 0 ... 2, got 3"),
        ({"heads": [2]}, "heads must lie in 0 ... 1, got 2"),
    ],
)
def test_places_that_are_not_there_are_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        draw_weights(some_weights(), QUERIES, KEYS, **more)


def test_of_inactive_heads_no_scale_has_tiny_numbers() -> None:
    weights = some_weights()
    for values in (weights.mean, weights.deviation, weights.low, weights.high):
        values.fill_(torch.nan)
    weights.active.zero_()
    figure: Any = draw_weights(weights, ["a", "b", "c"], ["v", "w"])
    assert {image.get_clim() for axis in figure.axes for image in axis.images} == {(0, 1)}
    assert {axis.get_ylim() for axis in figure.axes if axis.patches} <= {(0, 1)}
