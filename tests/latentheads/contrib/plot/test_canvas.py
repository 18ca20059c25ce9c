"""What every picture has in common."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.text import Text

from latentheads.contrib import plot
from latentheads.contrib.heads import LinkScore
from latentheads.contrib.heads.boundaries.chain import BoundaryTimes
from latentheads.contrib.heads.roles import Role
from latentheads.contrib.plot.canvas import fold
from latentheads.contrib.uncertainty import Bins, Figure
from latentheads.metrics.alignment import LinkCounts
from tests.latentheads.contrib.plot.drawn import (
    head_report,
    some_laws,
    some_weights,
    sound_weights,
    texts_of,
    with_roles,
)

NAME = "a$_$b"
"""Between its dollars stands no formula that matplotlib could read."""

SIDE = {
    "tasks": [NAME, ""],
    "chosen": {"encoder.0.self": [[True], [False]]},
    "probabilities": {"encoder.0.self": [[0.75], [0.25]]},
    "sharing": [[1.0, 0.5], [0.5, 1.0]],
    "by_chance": 0.5,
}
BINS = Bins(np.array([2.0]), np.array([0.25]), np.array([0.5]))
LINK = LinkScore("prior", "head 0", LinkCounts(9, 11, 1, 1))
ROLE = Role("encoder.0.self", 0, NAME, NAME, 0.5)
STARTS = BoundaryTimes(*torch.full((3, 1), 0.5))
FIGURE = Figure(0.5, 0.4, 0.6, 0.0, 0.0, 0.0, None, [0.5])
PICTURES: dict[str, Callable[[], Any]] = {
    "curves": lambda: plot.draw_curves({NAME: [[{"step": 1, "valid": {"elbo": -1.0}}]]}, NAME),
    "recipes": lambda: plot.draw_recipes([{"recipe": NAME, "elbo": -1.5}]),
    "gaps": lambda: plot.draw_gaps({NAME: [{"recipe": NAME, "gap": 0.5}]}, ""),
    "averages": lambda: plot.draw_averages([head_report(NAME)], ""),
    "maps": lambda: plot.draw_maps([head_report(NAME)], ""),
    "no roles": lambda: plot.draw_roles([head_report(NAME)], ""),
    "roles": lambda: plot.draw_roles([with_roles(NAME)], ""),
    "own roles": lambda: plot.draw_roles([replace(head_report(NAME), other_roles=(ROLE,))], ""),
    "links": lambda: plot.draw_links({NAME: [LINK]}),
    "weights": lambda: plot.draw_weights(some_weights(), [NAME] * 3, [NAME] * 5),
    "alignments": lambda: plot.draw_alignments(
        replace(some_laws(2), heads=(NAME, NAME)),
        *([NAME] * 4, [NAME] * 3, (), NAME),
        position_label=f"source token {NAME}",
    ),
    "sound": lambda: plot.draw_audio(np.zeros((18, 7)), sound_weights(), [NAME] * 3),
    "selection": lambda: plot.draw_selection({"encoder-self": SIDE}),
    "word times": lambda: plot.draw_word_times(np.eye(3, 5), [NAME], STARTS, [], 1.0),
    "reliability": lambda: plot.draw_reliability({NAME: {NAME: BINS}}),
    "figures": lambda: plot.draw_metrics({NAME: {"nll": FIGURE}}, {NAME: {"nll": NAME}}),
}


BEGINS_WITH_LINE: dict[str, Callable[[], Any]] = {
    "curves": lambda: plot.draw_curves({"_a": [[{"step": 1, "valid": {"elbo": -1.0}}]]}),
    "averages": lambda: plot.draw_averages([head_report("_a")], ""),
    "sweep": lambda: plot.draw_sweep([{"recipe": "_a", "heads": 8, "elbo": -1.0}]),
    "reliability": lambda: plot.draw_reliability({"": {"_a": BINS}}),
    "history": lambda: plot.draw_selection_history(
        [{"step": 1, "selection": {"encoder.0.self": [0.5]}}], {"encoder-self": {"tasks": ["_a"]}}
    ),
}
"""Legends whose only name begins with what matplotlib hides."""


def differing(recipe: str) -> dict[str, Any]:
    """A row with a difference."""
    value = {"elbo": -2.0, "exact": -1.0, "difference_exact": 0.5}
    return {"recipe": recipe, **value, "difference_exact_low": 0.25, "difference_exact_high": 0.75}


LONG = "Donaudampfschifffahrt"
RUN = "cascaded+alignments, of a long name, for some sentences, seed 12"
PAIR = "independent+latentheads.guides.cascaded:Cascaded"
LONG_NAMES: dict[str, Callable[[], Any]] = {
    "recipes": lambda: plot.draw_recipes([differing("transformer"), differing(PAIR)]),
    "varied": lambda: plot.draw_recipes([differing(PAIR), differing(f"{PAIR} train.loss=ELBO()")]),
    "weights": lambda: plot.draw_weights(some_weights(), [LONG] * 3, ["a"] * 5),
    "links": lambda: plot.draw_links({RUN: [replace(LINK, head="decoder.0.alignment head 0")]}),
    "selection": lambda: plot.draw_selection({"encoder-self": {**SIDE, "tasks": [LONG, LONG]}}),
}


@pytest.mark.parametrize("draw", LONG_NAMES.values(), ids=LONG_NAMES)
def test_no_edge_of_a_figure_cuts_a_text(draw: Callable[[], Any]) -> None:
    figure = draw()
    figure.draw_without_rendering()
    edges = figure.bbox.padded(1)
    kinds = ("title", "_left_title", "_right_title")
    titles = [getattr(axis, kind) for axis in figure.axes for kind in kinds]
    labels = [side.label for axis in figure.axes for side in (axis.xaxis, axis.yaxis)]
    texts = [text for text in (*titles, *labels) if text.get_text()]
    assert texts
    for text in texts:
        box = text.get_window_extent()
        assert edges.contains(box.x0, box.y0), text
        assert edges.contains(box.x1, box.y1), text


@pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)
def test_a_name_with_dollars_is_no_formula(draw: Callable[[], Any]) -> None:
    named = [text for text in texts_of(draw().findobj(Text)) if "$" in text]
    assert named
    assert [text for text in named if re.search(r"(?<!\\)\$", text)] == []


@pytest.mark.parametrize("draw", BEGINS_WITH_LINE.values(), ids=BEGINS_WITH_LINE)
def test_a_legend_has_a_name_that_begins_with_a_line(draw: Callable[[], Any]) -> None:
    figure = draw()
    legends = [*figure.legends, *(axis.get_legend() for axis in figure.axes)]
    names = [text for legend in legends if legend for text in texts_of(legend.get_texts())]
    assert any(name.strip().startswith("_a") for name in names)


SAYS = {
    "curves": "Bound (ELBO) on validation|optimiser steps|nats per target token (log scale)",
    "recipes": "Bounds on log p, and|nats per target token (test):",
    "maps": r"Measures of every head|head|layer|encoder-self, a\$_\$b|mean largest weight",
    "weights": "A weight varies by up to 0.20|key|query|mean weight|standard deviation",
    "alignments": "source token|target token|exact posterior:|probability of source token",
    "sound": r"frequency (mel bin)|token|seconds|weight|head 1: mean weight|row “a\$_\$b”: mean,",
    "sweep": "Number of heads|heads of every block|bound (ELBO)",
}
"""With what lines of titles and labels of axes begin."""


@pytest.mark.parametrize("name", SAYS)
def test_a_picture_says_what_it_shows(name: str) -> None:
    figure = (BEGINS_WITH_LINE | PICTURES)[name]()
    texts = [figure.get_suptitle()]
    for axis in figure.axes:
        texts += [axis.get_xlabel(), axis.get_ylabel(), axis.get_title(), axis.get_title("left")]
    lines = [f"{line} " for text in texts for line in text.split("\n")]
    for beginning in SAYS[name].split("|"):
        assert any(line.startswith(f"{beginning} ") for line in lines), beginning


def test_markers_at_the_ends_of_axes_are_whole() -> None:
    axis, *_ = plot.draw_averages([head_report()], "").axes
    assert [line.get_clip_on() for line in axis.lines] == [False]


def test_a_title_with_dollars_is_painted(tmp_path: Path) -> None:
    figure = plot.draw_gates({"encoder.0.self": torch.ones(2)}, NAME)
    plot.save(figure, tmp_path / "gates.png")
    assert figure.get_suptitle().endswith(r"a\$_\$b")


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_letters_that_no_font_has_are_told_once(ending: str, tmp_path: Path) -> None:
    figure = plot.draw_gates({"encoder.0.self": torch.ones(2)}, "你好 你好")
    message = r"^2 characters of a figure are in no font, such as 你 \(U\+4F60\), 好 \(U\+597D\)"
    with pytest.warns(UserWarning, match=message) as caught:
        plot.save(figure, tmp_path / f"gates.{ending}")
    assert len(caught) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_other_warnings_of_a_drawing_are_told_as_they_are(fails: bool, tmp_path: Path) -> None:
    figure = plot.draw_gates({"encoder.0.self": torch.ones(2)}, "")
    figure.add_artist(_Warning(fails))
    with pytest.warns(DeprecationWarning, match="drawn otherwise") as caught, suppress(OSError):
        plot.save(figure, tmp_path / "gates.png")
    assert {Path(item.filename).name for item in caught} == {Path(__file__).name}
    assert (tmp_path / "gates.png").exists() != fails


class _Warning(Text):
    """Warns when it is drawn, and may fail."""

    def __init__(self, fails: bool) -> None:
        super().__init__()
        self.fails = fails

    def draw(self, renderer: Any) -> None:
        """Warns."""
        warnings.warn("drawn otherwise", DeprecationWarning, stacklevel=1)
        if self.fails:
            raise OSError("no picture")


def test_a_name_is_folded_where_its_words_are_joined_without_a_space_at_the_end() -> None:
    assert fold("mean-field, conditioned on x") == "mean-field, conditioned\non x"
    assert fold("a+b", most=2) == "a+\nb"
