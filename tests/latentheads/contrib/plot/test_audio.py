"""What is heard and where a head looks for it stand in the same time."""

from __future__ import annotations

import numpy as np
import pytest

from latentheads.contrib.heads.samples import SampledWeights
from latentheads.contrib.plot.audio import draw_audio
from tests.latentheads.contrib.plot.drawn import sound_weights


def test_frames_and_weights_share_their_time() -> None:
    frames = np.random.default_rng(0).normal(size=(18, 7))
    figure = draw_audio(frames, sound_weights(), ["a", "b", "<eos>"], title="here")
    sound, maps, bars = figure.axes
    assert sound.images[0].get_extent() == [0, pytest.approx(0.18), 0, 7]
    assert sound.images[0].origin == "lower"
    assert sound.images[0].get_array().shape == (7, 18)
    assert maps.images[0].get_extent()[:2] == [0, pytest.approx(0.2)]
    assert maps.images[0].get_array().tolist() == np.eye(3, 5).tolist()
    assert maps.get_title(loc="left").startswith("head 1")
    assert [bar.get_height() for bar in bars.patches] == [0, 0, 1, 0, 0]
    assert bars.get_title(loc="left") == "row “<eos>”: mean, 10 to 90 % of samples"
    assert len(bars.collections) == 1
    assert sound.get_ylabel().startswith("frequency")
    assert figure.get_suptitle().startswith("here\nA weight varies by up to 0.30")


def test_of_heads_without_noise_the_most_spread_row_is_shown() -> None:
    drawn = sound_weights()
    drawn.deviation.zero_()
    drawn.mean[0, 1, 1] = 0.2
    figure = draw_audio(np.zeros((18, 7)), drawn, ["a", "b", "c"])
    bars = figure.axes[2]
    assert bars.get_title(loc="left") == "row “b”: its weights"
    assert not bars.collections
    assert "no noise" in figure.get_suptitle()


def test_a_place_that_is_not_there_is_refused() -> None:
    frames = np.zeros((18, 7))
    with pytest.raises(ValueError, match=r"head must lie in 0 \.\.\. 1, got 2"):
        draw_audio(frames, sound_weights(), ["a", "b", "c"], head=2)
    with pytest.raises(ValueError, match=r"row must lie in 0 \.\.\. 2, got -1"):
        draw_audio(frames, sound_weights(), ["a", "b", "c"], row=-1)


def test_a_single_position_has_the_time_axis_to_itself() -> None:
    one = sound_weights()
    parts = (part[..., :1] for part in (one.mean, one.deviation, one.low, one.high))
    figure = draw_audio(np.zeros((3, 7)), SampledWeights(*parts, one.active), ["a", "b", "c"])
    assert {axis.get_xlim() for axis in figure.axes} == {(0, 0.04)}
