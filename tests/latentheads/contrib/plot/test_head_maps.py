"""Figures of heads show what they are given, on one scale, whatever the sizes."""

from __future__ import annotations

from collections.abc import Sequence
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
from tests.latentheads.contrib.plot.drawn import (
    head_report,
    stand_apart,
    texts_of,
    ticks,
    with_roles,
)


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
    title = figure.get_suptitle()
    assert f"average JSD: {own.divergence.average():.2f} nats per sentence" in title
    assert "some text" in title


@pytest.mark.parametrize(
    ("layers", "grid"),
    [
        ((1, 0, 0), (1, 1)),
        ((6, 1, 1), (2, 4)),
    ],
)
def test_panels_of_blocks_fill_the_figure(layers: Sequence[int], grid: tuple[int, int]) -> None:
    reports = [head_report("", [name], number) for name, number in zip(ATTENTION_TYPES, layers)]
    summed = {site: m for report in reports for site, m in report.divergence.summed.items()}
    figure = draw_divergence(Divergence(summed, summed))
    (spec,) = {axis.get_gridspec() for axis in shown(figure)}
    assert spec.get_geometry() == grid
    assert len(shown(figure)) == sum(layers)
    figure.draw_without_rendering()
    boxes = [axis.get_window_extent() for axis in shown(figure)]
    across = max(box.x1 for box in boxes) - min(box.x0 for box in boxes)
    down = max(box.y1 for box in boxes) - min(box.y0 for box in boxes)
    assert across * down > 0.25 * figure.bbox.width * figure.bbox.height


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


@pytest.mark.parametrize("size", [0.0014, 12.0])
def test_labels_of_the_scales_do_not_overlap(size: float) -> None:
    plain = head_report(chains=ATTENTION_TYPES[:1], layers=1, heads=4)
    cosine = {name: size * v.sign() for name, v in plain.measures.cosine.items()}
    sizes = {name: size * v.sign() for name, v in plain.importance.items()}
    measures = replace(plain.measures, cosine=cosine, entropy=sizes)
    figure: Any = draw_maps(replace(plain, importance=sizes, measures=measures), "")
    figure.draw_without_rendering()
    bars = [axis for axis in figure.axes if not axis.images]
    assert len(bars) == len(QUANTITIES)
    for bar in bars:
        assert len(bar.get_xticklabels()) > 1
        assert stand_apart(bar.get_xticklabels())


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


@pytest.mark.parametrize("runs", [1, 2])
def test_averages_name_the_layers_of_all_runs_on_a_grid(runs: int) -> None:
    own = head_report("_a")
    upper = replace(own, name="b", blocks=tuple(b for b in own.blocks if b.layer > 0))
    figure = draw_averages([own, upper][:runs], "")
    for axis in figure.axes[3:]:
        assert list(axis.get_xticks()) == [0, 1]
    assert all(line.get_visible() for axis in figure.axes for line in axis.get_xgridlines())
    names = [name.strip() for name in texts_of(figure.legends[0].get_texts())]
    assert names == ["_a", "b"][:runs]


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


def test_a_head_without_a_role_shows_its_most_frequent_offset() -> None:
    own = head_report(chains=ATTENTION_TYPES[:1], layers=1)
    site = "encoder.0.self"
    positional = replace(
        own.positional,
        offset={site: torch.tensor([-1, 2, 0])},
        share={site: torch.tensor([0.544, 0.25, torch.nan])},
    )
    figure = draw_roles(replace(own, positional=positional), "")
    (axis,) = figure.axes
    assert texts_of(axis.texts) == ["-1, 54%", "+2, 25%", ""]
    (entry,) = figure.legends[0].get_texts()
    assert entry.get_text() == "no role: most frequent offset, share of queries"
    assert axis.get_title(loc="left") == "run\nencoder-self: no role"


LONG = "of a very long name, " * 9


@pytest.mark.parametrize(
    ("chains", "layers", "heads"),
    [(ATTENTION_TYPES[1:2], 13, 2), (ATTENTION_TYPES[:1], 1, 1)],
)
def test_any_size_is_drawn_with_room_for_a_long_name(
    chains: Sequence[str], layers: int, heads: int
) -> None:
    """Layout warns where something has none, and warnings are errors."""
    own, title = head_report(LONG, chains, layers, heads), "which heads\nwhat is missing\nand why"
    figures: list[Any] = [draw_divergence(own.divergence, own.name, 1.0)]
    figures += [draw(own, title) for draw in (draw_averages, draw_maps, draw_roles)]
    assert max(figure.get_figwidth() for figure in figures) <= 7.5
    assert len(shown(figures[0])) == len(own.blocks)
    assert max(map(len, figures[0].get_suptitle().splitlines())) <= 14 * 7.5
    for figure in figures if heads == 1 else ():
        figure.draw_without_rendering()
    for figure in figures[2:]:
        name = figure.axes[0].get_title(loc="left")
        assert LONG[:20] in name
        assert "…" in name
