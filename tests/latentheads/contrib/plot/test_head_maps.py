"""Figures of heads show what they are given, on one scale, whatever the sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from latentheads.contrib.heads import Role
from latentheads.contrib.heads.divergence import Divergence, pair_mean
from latentheads.contrib.heads.head_report import off_diagonal_mean
from latentheads.contrib.plot import draw_averages, draw_divergence, draw_maps, draw_roles
from latentheads.contrib.plot.canvas import largest_value
from latentheads.contrib.plot.head_maps import KINDS, QUANTITIES
from latentheads.contrib.plot.style import GREY
from latentheads.names import ATTENTION_TYPES, Block
from tests.latentheads.contrib.plot.drawn import head_report, texts_of, ticks, with_roles


def shown(figure: Any) -> list[Any]:
    return [axis for axis in figure.axes if axis.axison and axis.images]


def test_pairs_have_a_panel_a_layer_on_the_scale_that_is_asked_for() -> None:
    own = head_report()
    figure = draw_divergence(own.divergence, "run: some text", 7.0)
    panels = shown(figure)
    assert len(panels) == len(own.blocks)
    for axis, block in zip(panels, own.blocks, strict=True):
        matrix = own.divergence.summed[block.site()]
        np.testing.assert_array_equal(axis.images[0].get_array(), matrix)
        assert axis.images[0].get_clim() == (0, 7)
        mean = float(matrix.sum() / 6)
        assert axis.get_title() == f"{block.attention_type}\nlayer {block.layer}: {mean:.2f}"
    assert figure.axes[-1].get_ylim() == (0, 7)  # the bar of colours
    nothing = draw_divergence(Divergence({}, {}))
    assert nothing.get_suptitle().endswith("no block has two heads to compare")
    title = figure.get_suptitle()
    assert f"average JSD: {own.divergence.average():.2f} nats per sentence" in title
    assert "some text" in title


def test_panels_name_slots_of_heads_that_tasks_select() -> None:
    own = head_report(chains=ATTENTION_TYPES[:2], layers=2)
    first, *others = own.divergence.summed
    for slots, expected in (
        ((), [("head", ""), ("", ""), ("head", "head"), ("", "head")]),
        ((first, *others), [("slot", ""), ("", ""), ("slot", "slot"), ("", "slot")]),
        ((first,), [("slot", "slot"), *[("head", "head")] * 3]),
    ):
        figure = draw_divergence(replace(own.divergence, slots=frozenset(slots)))
        names = [(axis.get_ylabel(), axis.get_xlabel()) for axis in shown(figure)]
        assert names == expected
        assert ("A slot has the head" in figure.get_suptitle()) == bool(slots)
        selected = replace(own, divergence=replace(own.divergence, slots=frozenset(slots)))
        name = {0: "head", 1: "head or slot", 4: "slot"}[len(slots)]
        assert draw_maps(selected, "").axes[-6].get_xlabel() == name
        assert draw_roles(selected, "").axes[-1].get_xlabel() == name


def test_a_scale_that_ends_below_a_power_of_ten_has_a_tick() -> None:
    own = head_report()
    for confidence in own.measures.confidence.values():
        confidence.fill_(0.09999999999999999)  # its rounded logarithm is -1
    bar = draw_maps(own, "").axes[-len(QUANTITIES)]
    assert ticks(bar, "x") == ["0", "0.09"]


def test_averages_have_no_panel_of_a_chain_without_pairs_of_heads() -> None:
    own = head_report("a")
    for block in own.blocks_of("decoder-self"):
        for matrices in (own.divergence.summed, own.divergence.normalised):
            matrices[block.site()].fill_(torch.nan)
    assert [axis.get_title() for axis in draw_averages(own, "").axes[:2]] == [
        "encoder-self",
        "decoder-cross",
    ]
    alone = head_report("a", heads=1)
    (axis,) = draw_averages(alone, "").axes
    assert texts_of(axis.texts) == ["no block has two heads to compare"]


def test_averages_have_a_line_a_run_and_chain() -> None:
    runs = [head_report("a"), head_report("b", ATTENTION_TYPES[1:2], layers=4)]
    figure = draw_averages(runs, "")
    above, below = figure.axes[:3], figure.axes[3:6]
    assert [len(axis.lines) for axis in above] == [len(axis.lines) for axis in below] == [1, 2, 1]
    blocks = runs[1].blocks_of("decoder-self")
    means = [float(off_diagonal_mean(runs[1].divergence.summed[b.site()]).mean()) for b in blocks]
    np.testing.assert_allclose(above[1].lines[1].get_ydata(), means)
    np.testing.assert_allclose(below[1].lines[1].get_ydata(), np.array(means) / 9)
    assert above[0].get_ylim()[1] > max(means)
    assert texts_of(figure.legends[0].get_texts()) == ["a", "b"]


def test_maps_are_columns_of_a_frame() -> None:
    report = head_report("run")
    frame = report.to_frame().set_index("block")
    assert [*frame] == ["head", *report.maps]
    for name, blocks in report.maps.items():
        for block, values in blocks.items():
            assert frame.loc[block, name].tolist() == values.tolist()


def test_maps_share_a_scale_a_quantity() -> None:

    runs = [
        head_report("a"),
        replace(head_report("b", ATTENTION_TYPES[1:2], heads=5), relevance=None),
    ]
    figure = draw_maps(runs, "")
    axes = np.array(figure.axes[:20]).reshape(4, len(QUANTITIES))
    for column, name in zip(axes.T, QUANTITIES, strict=True):
        drawn = [axis for axis in column if axis.axison]
        assert len(drawn) == (3 if name == "relevance" else 4)
        assert len({axis.images[0].get_clim() for axis in drawn}) == 1
        tops = [float(values.max()) for run in runs for values in run.maps.get(name, {}).values()]
        if name != "cosine":
            assert drawn[0].images[0].get_clim() == (0, pytest.approx(max(tops)))
    cosine = axes[0, -1].images[0]
    assert cosine.get_clim()[0] == -cosine.get_clim()[1]
    expected = [off_diagonal_mean(runs[0].measures.cosine[f"encoder.{n}.self"]) for n in range(2)]
    np.testing.assert_array_equal(cosine.get_array(), torch.stack(expected))
    names = [axis.get_title(loc="left") for axis in axes[:, 0]]
    assert names == ["encoder-self, a", "decoder-self, a", "decoder-self, b", "decoder-cross, a"]


def test_silent_heads_are_blank_and_in_no_mean() -> None:
    own = head_report(chains=ATTENTION_TYPES[:1], layers=1)
    matrix = own.divergence.summed["encoder.0.self.logits"]
    matrix[1], matrix[:, 1] = torch.nan, torch.nan
    apart = float(matrix[0, 2])
    assert largest_value([matrix]) == pair_mean(matrix) == own.divergence.average() == apart
    assert off_diagonal_mean(matrix)[[0, 2]].tolist() == [apart, apart]
    figure = draw_divergence(own.divergence)
    assert shown(figure)[0].get_title() == f"encoder-self\nlayer 0: {apart:.2f}"
    matrix.fill_(torch.nan)
    assert pair_mean(matrix) is own.divergence.average() is None
    assert largest_value([matrix]) == 1


def test_a_block_with_fewer_heads_leaves_blanks() -> None:
    blocks = (Block("encoder-self", 0, 2), Block("encoder-self", 1, 3))
    own = head_report(chains=ATTENTION_TYPES[:1])
    ones = {block.name: torch.ones(block.heads) for block in blocks}
    uneven = replace(own, blocks=blocks, importance=ones, relevance=None)
    cosine = {block.name: torch.ones(block.heads, block.heads) for block in blocks}
    measures = replace(own.measures, entropy=ones, confidence=ones, cosine=cosine)
    (first, *_) = shown(draw_maps(replace(uneven, measures=measures), ""))
    grid = first.images[0].get_array()
    assert np.isnan(np.ma.filled(grid, np.nan)).tolist() == [[False, False, True], [False] * 3]


def test_a_layer_whose_heads_do_not_attend_has_no_row_and_no_other_its_name() -> None:
    own = with_roles("a")
    share = {"encoder.1.self": torch.tensor([0.95, 0.0, 0.0])}
    above = replace(
        own,
        blocks=tuple(block for block in own.blocks if block.layer > 0),
        positional=replace(own.positional, share={**own.positional.share, **share}),
    )
    for figure in (draw_maps(above, ""), draw_roles(above, "")):
        named = [ticks(axis, "y") for axis in figure.axes]
        assert ["1"] in named
        assert ["0"] not in named


def test_roles_stand_in_their_cells_and_all_others_have_their_offset() -> None:
    figure = draw_roles([head_report("a"), with_roles("b")], "")
    cells = {
        (number, round(text.get_position()[0]), text.get_text())
        for number, axis in enumerate(figure.axes)
        for text in axis.texts
        if text.get_color() != GREY
    }
    assert cells == {(3, 0, "-1"), (3, 0, "nsubj↓"), (3, 0, "rare"), (3, 1, "dobj↑ +1")}
    patches = figure.axes[3].patches
    assert len(patches) == 4
    assert sum(patch.get_height() for patch in patches) == pytest.approx(2)
    others = [text.get_text() for axis in figure.axes for text in axis.texts]
    assert others.count("+0, 0%") == 6 * 6 - 2
    assert len(figure.legends[0].get_texts()) == len(KINDS) + 1
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert titles[3] == "b\nencoder-self"


def test_a_role_of_a_kind_of_your_own_is_drawn_and_named() -> None:
    own = Role("encoder.1.self", 2, "bracket", "closes", 0.8)
    figure = draw_roles(replace(with_roles("b"), other_roles=(own,)), "")
    texts = [text.get_text() for axis in figure.axes for text in axis.texts]
    assert "closes" in texts
    assert texts_of(figure.legends[0].get_texts())[len(KINDS)] == "bracket"


def test_measures_that_are_all_0_have_a_scale_to_1() -> None:
    own = head_report(chains=ATTENTION_TYPES[:1])
    zeros = {block.name: torch.zeros(block.heads) for block in own.blocks}
    image = shown(draw_maps(replace(own, importance=zeros), ""))[2].images[0]
    assert image.get_clim() == (0, 1)
