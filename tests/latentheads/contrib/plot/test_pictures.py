"""Pictures of a run and of a comparison: whole where a figure is missing, true about the truth."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import latentheads as lh
from latentheads.contrib import plot
from latentheads.contrib.heads import LinkScore
from latentheads.metrics.alignment import LinkCounts
from tests.figures import FIGURES
from tests.latentheads.contrib.plot.drawn import texts_of, ticks

SITE = "encoder.0.self.logits"
RECORDS = [{"step": 1, "objective": -2.0, "valid": FIGURES}]


def labels(figure: Any) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


@pytest.mark.parametrize(
    ("number", "label"),
    [(11, "true log p"), (9, "true log p of 9 of 11 sentences")],
)
def test_a_line_of_the_truth_says_what_it_is_of(number: int, label: str) -> None:
    valid = FIGURES | {"truth_sentences": number}
    assert label in labels(plot.draw_bound([{"step": 1, "objective": -2.0, "valid": valid}]))
    assert label in labels(plot.draw_recipes([{"recipe": "coda", **valid}]))


def test_what_is_known_exactly_stands_in_the_place_of_the_plug_in_network() -> None:
    plain = {"step": 1, "objective": -2.0, "valid": FIGURES}
    exact = {**plain, "valid": FIGURES | {"exact": -1.0}}
    assert "plug-in network (no bound)" in labels(plot.draw_bound([plain]))
    assert "exact log p" in labels(plot.draw_bound([exact]))
    assert "plug-in network (no bound)" not in labels(plot.draw_bound([exact]))


def test_a_block_without_noise_has_no_bar() -> None:
    sites = {"decoder.0.self.logits": 0.0, "decoder.0.alignment.choice": 0.5}
    how = {"decoder.0.self.logits": "fixed", "decoder.0.alignment.choice": "enumerated"}
    (axis,) = plot.draw_kl(sites, how).axes
    assert [bar.get_width() for bar in axis.patches] == [0.5]
    assert texts_of(axis.texts) == ["0.5000 (enumerated)"]


def test_a_kl_figure_without_bars_says_why_in_a_line() -> None:
    unknown = plot.draw_kl({SITE: None, "encoder.1.self.logits": 0.0})
    small = plot.draw_kl({SITE: 7.2e-5})
    zero = plot.draw_kl({SITE: 0.0}, {SITE: "tied"})
    none = plot.draw_kl({SITE: 0.0}, {SITE: "fixed"})
    history = plot.draw_kl_history([{"step": 1, "kl_by_site": {SITE: 0.0}}])
    assert texts_of(unknown.axes[0].texts) == ["unknown", "0"]
    assert texts_of(small.axes[0].texts) == ["7.2e-05"]
    assert texts_of(zero.axes[0].texts) == ["0 (tied)", "every KL is 0: the guide equals the prior"]
    assert texts_of(none.axes[0].texts) == ["no latent block"]
    assert none.get_figheight() == history.get_figheight() < 1.5


def test_the_kl_of_every_block_is_drawn_over_training() -> None:
    sites = ("encoder.0.self.logits", "decoder.0.cross.logits")
    records = [{"step": step, "kl_by_site": dict(zip(sites, (1 / step, 0.0)))} for step in (1, 2)]
    figure: Any = plot.draw_kl_history(records)
    (axis,) = figure.axes
    falls, zero = (line.get_xydata().tolist() for line in axis.get_lines())
    assert falls == [[1, 1], [2, 0.5]]
    assert np.isnan(zero).tolist() == [[False, True]] * 2
    assert axis.get_yscale() == "log"
    assert labels(figure) == ["encoder.0.self", "decoder.0.cross"]
    tied = plot.draw_kl_history([{"step": 1, "kl_by_site": dict.fromkeys(sites, 0.0)}])
    assert texts_of(tied.axes[0].texts) == ["every KL is 0: the guide equals the prior"]


def test_curves_are_means_over_seeds_with_their_range() -> None:
    def records(*values: float) -> list[dict[str, Any]]:
        return [
            {"step": step, "valid": {"elbo": -value, "truth": -0.5}}
            for step, value in enumerate(values, 1)
        ]

    figure: Any = plot.draw_curves({"one": [records(4, 2), records(2, 1, 1)], "two": []}, "here")
    (axis,) = figure.axes
    mean, truth = axis.get_lines()
    assert (axis.get_yscale(), axis.yaxis_inverted()) == ("log", True)
    assert mean.get_xydata().tolist() == [[1, 3], [2, 1.5]]
    assert truth.get_ydata() == [0.5, 0.5]
    corners = axis.collections[0].get_paths()[0].vertices
    assert {tuple(corner) for corner in corners} == {(1, 2), (1, 4), (2, 1), (2, 2)}
    assert labels(figure) == ["one", "true log p"]
    assert figure.get_suptitle().endswith("here")


def test_gates_stand_in_their_places_a_panel_a_chain() -> None:
    gates = {"encoder.1.self": [0.0, 0.25], "encoder.0.self": [1.0, 0.5], "decoder.0.cross": [1.0]}
    figure: Any = plot.draw_gates({name: torch.tensor(gate) for name, gate in gates.items()})
    one, other = figure.axes
    assert one.images[0].get_array().tolist() == [[1.0, 0.5], [0.0, 0.25]]
    assert texts_of(one.texts) == ["1", "0.50", "0", "0.25"]
    assert (one.get_title(), other.get_title()) == ("encoder-self: 3 open", "decoder-cross: 1 open")


def test_inclusion_stands_above_the_width_of_its_interval() -> None:
    inclusion = {"encoder.0.self": torch.tensor([1.0, 0.5]), "decoder.0.cross": torch.tensor([0.0])}
    width = {"encoder.0.self": torch.tensor([0.0, 0.25]), "decoder.0.cross": torch.tensor([0.75])}
    figure: Any = plot.draw_head_posteriors(inclusion, width, "here")
    assert [texts_of(axis.texts) for axis in figure.axes] == [
        ["1", "0.50"],
        ["0"],
        ["0", "0.25"],
        ["0.75"],
    ]
    titles = [axis.get_title() for axis in figure.axes]
    assert titles[1] == "decoder-cross\ninclusion probability"
    assert titles[2] == "encoder-self\nwidth of its 95 % interval"
    assert figure.get_suptitle().endswith("here")


def test_posteriors_of_blocks_are_drawn_as_they_are_returned() -> None:
    likelihoods = torch.tensor([[0.0, 2.0, 1.0, 2.5], [0.5, 0.0, 1.0, 0.0]]).double()
    block = lh.models.Block("decoder-cross", 1, 2)
    posterior = lh.latents.HeadPosterior([block], likelihoods, torch.ones(2).double())
    figure: Any = plot.draw_head_posteriors({block.name: posterior})
    one, other = (axis.images[0].get_array() for axis in figure.axes)
    torch.testing.assert_close(torch.tensor(one[-1]), posterior.inclusion, check_dtype=False)
    width = posterior.bootstrap().width
    torch.testing.assert_close(torch.tensor(other[-1]), width, check_dtype=False)
    joint: Any = plot.draw_head_posteriors(posterior)
    assert texts_of(joint.axes[0].texts) == texts_of(figure.axes[0].texts)
    with pytest.raises(ValueError, match=r"^width is missing: decoder\.1\.cross has inclusion"):
        plot.draw_head_posteriors({block.name: posterior.inclusion})


def test_heads_of_a_circuit_stand_in_their_columns() -> None:
    blocks = [lh.models.Block("decoder-self", 1, 2)]
    likelihoods = torch.tensor([[0.0, 2.0, 1.0, 2.5], [0.5, 0.0, 1.0, 0.0]]).double()
    tokens = torch.ones(2).double()
    chosen = [("decoder.1.self", 0), ("decoder.1.self", 2)]
    posterior = lh.contrib.circuits.CircuitPosterior(
        blocks, likelihoods, tokens, chosen=chosen, labels=["L1H0", "L1H2"]
    )
    for posteriors in (posterior, {"decoder.1.self": posterior}):
        for axis in plot.draw_head_posteriors(posteriors).axes[:2]:
            cells = axis.images[0].get_array()[-1]
            assert np.isnan(np.ma.filled(cells, np.nan)).tolist() == [False, True, False]


def test_a_posterior_of_a_block_is_of_this_block() -> None:
    blocks = [lh.models.Block("decoder-self", layer, 1) for layer in (0, 1)]
    likelihoods = torch.tensor([[0.0, 2.0, 1.0, 2.5], [0.5, 0.0, 1.0, 0.0]]).double()
    posterior = lh.latents.HeadPosterior(blocks, likelihoods, torch.ones(2).double())
    for name in ("decoder.1.self", "network a"):
        with pytest.raises(ValueError, match=r"^posteriors\[.* must be of this block alone"):
            plot.draw_head_posteriors({name: posterior})


def test_the_covariance_of_heads_is_a_matrix_without_its_diagonal() -> None:
    likelihoods = torch.tensor([[0.0, 2.0, 2.0, 2.5]]).double()
    block = lh.models.Block("decoder-cross", 1, 2)
    posterior = lh.latents.HeadPosterior([block], likelihoods, torch.ones(1).double())
    figure: Any = plot.draw_covariance(posterior, "here")
    axis, _ = figure.axes
    cells = axis.images[0].get_array()
    assert cells[0, 1] == cells[1, 0] == pytest.approx(float(posterior.covariance[0, 1]))
    assert cells[0, 1] < 0
    assert bool(cells.mask[0, 0])
    assert ticks(axis, "x") == [
        "decoder.1.cross 0",
        "decoder.1.cross 1",
    ]
    figure.draw_without_rendering()
    assert axis.get_window_extent().width > 1.8 * figure.dpi  # its labels leave it room


def test_blocks_with_fewer_heads_than_others_leave_places_empty() -> None:
    gates = {"encoder.0.self": [1.0, 0.5, 0.25], "encoder.1.self": [0.0]}
    (axis,) = plot.draw_gates({name: torch.tensor(gate) for name, gate in gates.items()}).axes
    assert texts_of(axis.texts) == ["1", "0.50", "0.25", "0"]
    side = {
        "tasks": [""],
        "probabilities": {name: [chances] for name, chances in gates.items()},
        "chosen": {"encoder.0.self": [[1.0, 0.0, 1.0]], "encoder.1.self": [[1.0]]},
        "sharing": [[1.0]],
        "by_chance": 1.0,
    }
    axis, *_ = plot.draw_selection({"encoder-self": side}).axes
    assert axis.images[0].get_array().tolist() == [[1.0, 0.5, 0.25], [0.0, None, None]]
    assert axis.collections[0].get_offsets().tolist() == [[0, 0], [2, 0], [0, 1]]
    upper = {"encoder.3.self": [[0.5]]}
    side |= {"probabilities": upper, "chosen": upper}
    axis, *_ = plot.draw_selection({"encoder-self": side}).axes
    assert ticks(axis, "y") == ["3"]


def test_heads_of_a_selection_have_whole_numbers() -> None:
    two = {"encoder.0.self": [[0.5, 1.0]], "encoder.1.self": [[0.5, 1.0]]}
    side = {"tasks": [""], "probabilities": two, "chosen": two, "sharing": [[1.0]], "by_chance": 1}
    axis, *_ = plot.draw_selection({"encoder-self": side}).axes
    assert all(tick == int(tick) for tick in axis.get_xticks())


def test_one_head_and_one_step_have_one_tick() -> None:
    one = {"encoder.0.self": [[0.5]]}
    side = {"tasks": [""], "probabilities": one, "chosen": one, "sharing": [[1.0]], "by_chance": 1}
    axis, *_ = plot.draw_selection({"encoder-self": side}).axes
    assert ticks(axis, "x") == ["0"]
    history = [{"step": 7, "selection": {"encoder.0.self": [0.5]}}]
    (axis,) = plot.draw_selection_history(history, {"encoder-self": side}).axes
    assert axis.get_xticks().tolist() == [7]
    records = [{"step": 7, "kl_by_site": {SITE: 0.5}}]
    assert plot.draw_kl_history(records).axes[0].get_xticks().tolist() == [7]


def test_a_figure_grows_with_its_title_and_its_legend() -> None:
    gates = {"encoder.0.self": torch.ones(1)}
    short, long = (plot.draw_gates(gates, title) for title in ("run", "a name " * 20))
    assert long.get_figheight() > short.get_figheight() + 0.5
    for figure in (short, long):
        figure.draw_without_rendering()
        assert figure.axes[0].get_window_extent().height > 0.4 * figure.dpi
    names = [f"a run with a long name, which has the number {index}" for index in range(9)]
    rows = {name: [[{"step": 1, "valid": {"elbo": -2.0}}]] for name in names}
    few, many = (plot.draw_curves(dict(list(rows.items())[:number])) for number in (2, 9))
    assert many.get_figheight() > few.get_figheight() + 0.5
    many.draw_without_rendering()
    box = many.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= many.bbox.width


def test_gates_of_many_heads_stand_below_each_other() -> None:
    blocks = ("encoder.0.self", "decoder.0.self", "decoder.0.cross")
    for heads, rows in ((4, 1), (8, 3)):
        figure = plot.draw_gates({block: torch.ones(heads) for block in blocks})
        assert figure.axes[0].get_gridspec().nrows == rows
        assert figure.get_figwidth() <= 8


def test_a_bar_without_a_value_stands_within_its_axes() -> None:
    rows = [{"recipe": "one", "gap": 0.5}, {"recipe": "two", "gap": np.nan}]
    assert plot.draw_gaps({"model": rows}).axes[0].get_ylim() == (1.5, -0.5)
    none = LinkScore("prior", "head 0", LinkCounts(0, 0, 0, 0))
    low, high = plot.draw_links({"run": [none]}).axes[0].get_ylim()
    assert low > 1 > high


@pytest.mark.parametrize(
    ("draw", "nothing"),
    [
        *((draw, ([], "")) for draw in (plot.draw_maps, plot.draw_roles, plot.draw_averages)),
        *((draw, ([],)) for draw in (plot.draw_recipes, plot.draw_sweep)),
        *((draw, ({},)) for draw in (plot.draw_gaps, plot.draw_links, plot.draw_selection)),
        (plot.draw_links, ({"run": []},)),
        (plot.draw_reliability, ({},)),
        *((draw, ({}, {})) for draw in (plot.draw_rejection, plot.draw_metrics)),
    ],
)
def test_there_is_no_picture_of_nothing(draw: Callable[..., Any], nothing: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=r"^[a-z_]+ must be at least one, got none$"):
        draw(*nothing)


def test_the_log_p_of_a_pruned_network_without_noise_is_called_exact() -> None:
    valid = {"elbo": -2.0, "plug_in": -2.0, "exact": -2.0}
    point = {"heads": 4, "parameters": 10, "speed": 1.0, "valid": valid, "test": {"bleu": 30.0}}
    figure = plot.draw_pruning([point, {**point, "heads": 2}])
    assert "exact log p" in labels(figure)
    assert not any("no bound" in label for label in labels(figure))


def test_a_sweep_of_networks_without_noise_has_exact_values_and_no_plug_in() -> None:
    still = {"recipe": "transformer", "elbo": -1.0, "exact": -1.0}
    noisy = {"recipe": "coda", "elbo": -1.0, "plug_in": -1.0}

    def titles(*rows: dict[str, Any]) -> str:
        return " ".join(axis.get_ylabel() for axis in plot.draw_sweep(list(rows)).axes)

    assert "exact log p" in titles({**still, "heads": 2})
    assert "no bound" not in titles({**still, "heads": 2})
    mixed = titles({**still, "plug_in": -1.0, "heads": 2}, {**noisy, "heads": 2})
    assert "plug-in (no bound)\n(hollow: exact log p)" in mixed
    assert "bound (ELBO)\n(hollow: exact log p)" in mixed
    some = titles({**still, "heads": 2}, {**still, "heads": 4, "elbo": -2.0}, {**noisy, "heads": 2})
    assert "hollow" not in some, "of a recipe with a gap a bound is a bound"


def test_labels_of_a_sweep_do_not_overlap() -> None:
    rows = [{"recipe": "coda", "heads": n, "elbo": -1.0, "parameters": 9} for n in (2, 4, 15, 16)]
    bounds, parameters = plot.draw_sweep(rows).axes
    assert (ticks(bounds, "x"), bounds.get_xscale()) == (["2", "4", "16"], "log")
    assert parameters.yaxis.get_major_formatter()(1e6) == "1,000,000"


def _with_difference(recipe: str, elbo: float, difference: float) -> dict[str, Any]:
    value = {"elbo": elbo, "elbo_low": elbo - 1.0, "elbo_high": elbo + 1.0}
    ends = {"difference_low": difference - 0.25, "difference_high": difference + 0.25}
    return {"recipe": recipe, **value, "difference": difference, **ends}


def test_differences_that_are_paired_by_seed_stand_beside_the_values() -> None:
    rows = [_with_difference("plain", -5.0, 0.0), _with_difference("coda", -4.5, 0.5)]
    values, differences = plot.draw_recipes(rows, one_model=True).axes
    assert "paired by seed:\nbounds on one log p" in differences.get_xlabel()
    (drawn,) = differences.containers
    marks, _, (bars,) = drawn.lines
    assert np.isnan(marks.get_xdata()[0])  # the first row is not compared with itself
    assert marks.get_xdata()[1] == 0.5
    assert bars.get_segments()[-1][:, 0].tolist() == [0.25, 0.75]
    assert ticks(values, "y") == ["plain", "coda"]
    alone = [{"recipe": "plain", "elbo": -5.0}, {"recipe": "coda", "elbo": -4.0, "difference": 1.0}]
    one_seed = plot.draw_recipes(alone, one_model=True)
    assert len(one_seed.axes) == 1  # of one seed no interval is known


def test_models_differ_in_exact_log_p_or_iwae_and_not_in_their_bounds() -> None:
    rows = [_with_difference("plain", -5.0, 0.0), _with_difference("coda", -4.5, 0.5)]
    assert len(plot.draw_recipes(rows).axes) == 1
    for name, label in (("exact", "exact log p"), ("iwae", "tighter bound (IWAE)")):
        ends = {"": 0.125, "_low": 0.0, "_high": 0.25}
        other = rows[1] | {f"difference_{name}{end}": x for end, x in ends.items()}
        _, differences = plot.draw_recipes([rows[0], other]).axes
        assert "log p, or its bound IWAE" in differences.get_xlabel()
        (drawn,) = differences.containers
        assert drawn.get_label() == label
        assert drawn.lines[0].get_xdata()[1] == 0.125


def test_beside_an_exact_log_p_no_plug_in_value_is_drawn() -> None:
    still = {"recipe": "plain", "elbo": -5.0, "iwae": -5.0, "plug_in": -5.0, "exact": -5.0}
    noisy = {"recipe": "coda", "elbo": -5.0, "iwae": -4.5, "plug_in": -4.0}
    (axis,) = plot.draw_recipes([still, noisy]).axes
    marks = {box.get_label(): box.lines[0].get_xdata() for box in axis.containers}
    assert [value for value in marks["plug-in (no bound)"] if np.isfinite(value)] == [-4.0]
    assert [value for value in marks["exact log p"] if np.isfinite(value)] == [-5.0]
    assert "plug-in (no bound)" not in labels(plot.draw_recipes([still]))


def test_a_true_log_p_that_is_far_off_leaves_the_axis_to_the_bounds() -> None:
    rows = [{"recipe": name, "elbo": elbo, "truth": -0.5} for name, elbo in (("a", -5), ("b", -4))]
    (axis,) = plot.draw_recipes(rows).axes
    assert axis.get_xlim()[1] < -3.5
    assert axis.get_title("right") == "true log p: \N{MINUS SIGN}0.50 \N{RIGHTWARDS ARROW}"
    (near,) = plot.draw_recipes([row | {"truth": -3.75} for row in rows]).axes
    assert near.get_xlim()[1] > -3.75
    assert "true log p" in labels(near.figure)


def test_pictures_survive_missing_figures() -> None:
    nothing = {"elbo": None, "plug_in": None, "truth": None}
    records = [{"step": 1, "objective": -2.0, "valid": valid} for valid in (FIGURES, nothing, {})]
    rows = [{"recipe": "coda", "heads": 2, "elbo": -1.0}, {"recipe": "coda", "heads": 4}]
    for figure in (
        plot.draw_bound(records),
        plot.draw_bound([]),
        plot.draw_kl({"encoder.0.self.logits": None, "encoder.1.self.logits": 1.0}),
        plot.draw_kl({}),
        plot.draw_kl_history([{"step": 1}, {"step": 2, "kl_by_site": {SITE: None}}]),
        plot.draw_recipes([{"recipe": "coda", "elbo": -1.5}, {"recipe": "cascaded"}]),
        plot.draw_sweep(rows),
    ):
        figure.draw_without_rendering()


def _history(*bounds: float, truth: float = -1.0) -> list[dict[str, Any]]:
    """Records whose figures are all one bound."""
    names = ("elbo", "log_likelihood", "plug_in")
    return [
        {"step": step, "objective": bound, "valid": dict.fromkeys(names, bound) | {"truth": truth}}
        for step, bound in enumerate(bounds, 1)
    ]


def _share_of_height(figure: Any, *values: float) -> float:
    """The share of the height of an axis between two values."""
    figure.draw_without_rendering()
    (axis,) = figure.axes
    (_, first), (_, last) = (axis.transData.transform((1, value)) for value in values)
    return abs(float(last - first)) / float(axis.bbox.height)


def _draw_one_curve(records: list[dict[str, Any]]) -> Any:
    return plot.draw_curves({"coda": [records]})


@pytest.mark.parametrize("draw", [plot.draw_bound, _draw_one_curve])
def test_a_young_run_fills_its_axes_and_a_note_says_where_the_truth_is(
    draw: Callable[..., Any],
) -> None:
    figure = draw(_history(-5.5, -5.25, -5.0))
    assert _share_of_height(figure, 5.5, 5.0) > 0.8
    assert texts_of(figure.axes[0].texts) == ["\N{UPWARDS ARROW} true log p: \N{MINUS SIGN}1.00"]
    assert "true log p" not in labels(figure)


def test_first_evaluations_that_are_far_off_are_cut_off_and_named() -> None:
    bounds = (-1234.5, -6.0, -5.5, -5.0, -4.5, -4.0)
    figure: Any = plot.draw_bound(_history(*bounds))
    assert _share_of_height(figure, 6.0, 4.0) > 0.8
    assert next(text.get_text() for text in figure.axes[0].texts) == (
        "\N{DOWNWARDS ARROW} first evaluations: down to \N{MINUS SIGN}1,234.50"
    )
    late: Any = plot.draw_bound(_history(*bounds[1:], bounds[0]))  # a run that broke is shown whole
    assert max(late.axes[0].get_ylim()) > 1234.5


def test_the_exact_log_p_that_is_the_bound_has_no_line_of_its_own() -> None:
    records = [{"step": step, "valid": {"elbo": -2.0, "exact": -2.0}} for step in (1, 2)]
    assert labels(plot.draw_curves({"transformer": [records]})) == ["transformer"]


def test_a_picture_is_written_whole_and_shown_in_a_notebook(tmp_path: Path) -> None:
    figure = plot.draw_bound(RECORDS)
    plot.save(figure, tmp_path / "bound.png")
    plot.save(figure, str(tmp_path / "bound.svg"))
    assert (tmp_path / "bound.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "bound.svg").read_text().startswith("<?xml")
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bound.png", "bound.svg"]


def test_no_module_of_the_library_asks_for_a_backend() -> None:
    import latentheads

    (root,) = latentheads.__path__
    sources = [path for path in Path(root).rglob("*.py") if "experiments" not in path.parts]
    assert len(sources) > 80
    for path in sources:
        text = path.read_text()
        assert "pyplot" not in text, path
        assert "matplotlib.use" not in text, path
    assert "latentheads.contrib.plot" in sys.modules
