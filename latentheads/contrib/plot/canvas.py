"""The figure class of all plots, helpers to plot on it, and how it is saved."""

from __future__ import annotations

import io
import math
import re
import textwrap
import warnings
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray
from torch import Tensor

from latentheads.contrib.plot.style import DIVERGING_CMAP, GOLD, GREY, MEAN_CMAP, styled
from latentheads.errors import shown
from latentheads.files import atomic_write
from latentheads.metrics.alignment import Link
from latentheads.names import ALIGNMENT, ATTENTION_TYPES, attention_type_of, layer_of

WIDTH = 7.5
"""Width of a figure in inches, which pages show without scaling."""

CHARACTERS_PER_INCH, LEGEND_CHARACTERS = 12, 14
"""Characters of a title, and of a legend, per inch."""

LINE = 0.18
"""Height in inches of a line of a title or of a legend."""

EDGE_NOTE: dict[str, Any] = {
    "xycoords": "axes fraction",
    "textcoords": "offset points",
    "fontsize": 8,
    "bbox": {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
}
"""The style of a note at an end of an axis."""

MAP_INCHES, LABEL_INCHES, MAX_LABEL = 7.0, 0.125, 24
"""Maximum side of a map of positions, height of a tick label, and its most characters."""

MOST_MARKERS = 20
"""Number of markers of a line."""

MISSING_GLYPH = r"Glyph (\d+) .* missing from"
"""The warning of matplotlib for a character that no font has."""


class Picture(Figure):
    """A matplotlib figure in the style of the library, without a window or a backend.

    A notebook displays it. To use the style for what you plot on it, call
    ``matplotlib.style.use(lh.plot.STYLE)``.
    """

    def __init__(self, width: float, height: float) -> None:
        with styled():
            super().__init__(figsize=(width, height), layout="constrained")

    def draw(self, renderer: Any) -> None:
        """Draws the figure; matplotlib creates some artists, such as tick labels, only now."""
        with styled():
            super().draw(renderer)

    def savefig(self, *args: Any, **kwargs: Any) -> None:
        """Saves the figure, with one warning for all characters that no font has."""
        with styled(), _collect_missing_glyphs() as missing:
            super().savefig(*args, **kwargs)
        if missing:
            examples = ", ".join(f"{c} (U+{ord(c):04X})" for c in missing[:3])
            warnings.warn(
                f"{len(missing)} characters of a figure are in no font, such as {examples}: set a "
                'font that has them as matplotlib.rcParams["font.family"] or in a matplotlibrc, '
                "and draw the figure again",
                stacklevel=2,
            )

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


@contextmanager
def _collect_missing_glyphs() -> Iterator[list[str]]:
    """Collects the characters that no font has; matplotlib warns of each one at each rendering.

    All other warnings are shown. Like all that catches warnings it is not thread-safe.
    """
    missing: list[str] = []
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.filterwarnings("always", MISSING_GLYPH)
            yield missing
    finally:
        for warning in caught:
            if not (match := re.match(MISSING_GLYPH, str(warning.message))):
                warnings.showwarning(
                    warning.message, warning.category, warning.filename, warning.lineno
                )
            elif chr(int(match[1])) not in missing:
                missing.append(chr(int(match[1])))


def save(figure: Figure, path: str | Path) -> None:
    """Saves a figure atomically; the file extension determines the format."""
    path = Path(path)
    with atomic_write(path) as partial, styled():  # it may be a figure of another library
        figure.savefig(partial, format=path.suffix[1:] or "png")


def group_by_attention_type(sites: Iterable[str]) -> dict[str, list[str]]:
    """Groups sites by attention type, bottom to top."""
    groups: dict[str, list[str]] = defaultdict(list)
    for site in sites:
        groups[attention_type_of(site)].append(site)
    present = [name for name in (*ATTENTION_TYPES, ALIGNMENT) if name in groups]
    return {name: sorted(groups[name], key=layer_of) for name in present}


def largest_value(values: Iterable[Tensor]) -> float:
    """The upper limit of a colour scale for several tensors, NaN left out; 1 if all are 0."""
    return _nonzero(max([0.0, *(float(tensor.nan_to_num().max()) for tensor in values)]))


def _nonzero(limit: float) -> float:
    """The limit of a scale; 1 where all values are 0."""
    return limit if limit > 1e-9 else 1.0


def legend_label(name: str) -> str:
    """A label for the legend; matplotlib leaves out labels that begin with "_"."""
    return f" {name}" if name.startswith("_") else name


def shorten(name: str, most: int) -> str:
    """A name in at most ``most`` characters, for a title or label of limited room."""
    return escape(name if len(name) <= most else f"{name[: most - 1]}…")


def fold(name: str, most: int = 26) -> str:
    """A name on lines of ``most`` characters, where a sign that joins its words allows it."""
    lines = [""]
    for piece in re.split(r"(?<=[ +,.:=])", name):
        if lines[-1] and len(lines[-1]) + len(piece) > most:
            lines.append("")
        lines[-1] += piece
    return escape("\n".join(map(str.rstrip, lines)))


def escape(name: str) -> str:
    """Escapes dollar signs, between which matplotlib would typeset a formula."""
    return name.replace("$", r"\$")


def draw_map(axis: Any, values: Any, **options: Any) -> Any:
    """Draws an array as an image within a frame; NaN is grey, as 0 is white."""
    axis.set_facecolor("0.85")
    for side in axis.spines.values():
        side.set_visible(True)
    axis.tick_params(length=2)
    return axis.imshow(values, **{"cmap": MEAN_CMAP, "aspect": "auto", **options})


def cell_inches(positions: int, largest: float) -> float:
    """The size of a cell of a map: with many positions cells are smaller, not the map larger."""
    return min(largest, MAP_INCHES / max(1, positions))


def position_labels(names: Sequence[str], cell: float) -> tuple[range, list[str]]:
    """Tick positions and labels of a map with cells of a size in inches, so few that they fit."""
    step = math.ceil(LABEL_INCHES / cell)
    return range(0, len(names), step), [shorten(name, MAX_LABEL) for name in names[::step]]


def colour_scale(values: Iterable[NDArray[Any]]) -> dict[str, Any]:
    """The colour scale for all values: from 0, or symmetric around 0 if some are negative."""
    numbers = np.concatenate([array.ravel() for array in values])
    numbers = numbers[np.isfinite(numbers)]
    limit = _nonzero(float(np.abs(numbers).max(initial=0.0)))
    if (numbers < 0).any():
        return {"vmin": -limit, "vmax": limit, "cmap": DIVERGING_CMAP}
    return {"vmin": 0, "vmax": limit, "cmap": MEAN_CMAP}


def pad_rows(rows: Iterable[Sequence[float]]) -> NDArray[np.float64]:
    """Stacks rows of numbers, padded with NaN."""
    rows = list(rows)
    padded = np.full((len(rows), max(map(len, rows))), np.nan)
    for cells, row in zip(padded, rows):
        cells[: len(row)] = row
    return padded


def frame_links(axis: Any, links: Collection[Link], first: int = 0) -> None:
    """Frames the cells of gold links, with keys from ``first`` on on the x axis, queries on y."""
    queries, keys = axis.images[-1].get_array().shape[:2]
    width = 1.8 * min(1, 50 / max(queries, keys, 1))  # so that it does not cover a small cell
    if any(isinstance(link, str) for link in links):
        raise ValueError(f"links must be pairs of indices, as [(0, 0)], got {shown(links)}")
    for key, query in sorted(links):
        if not (0 <= key < keys - first and 0 <= query < queries):
            raise ValueError(
                f"links must be pairs of indices below {keys - first} and {queries}, "
                f"got {key, query}"
            )
        corner = first + key - 0.5, query - 0.5
        axis.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=GOLD, linewidth=width))


def values_with_intervals(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[Any, Any]:
    """Returns a value of every row, and its distances to the ends of its interval."""
    columns = (name, f"{name}_low", f"{name}_high")
    values, low, high = (
        np.array([row.get(column, np.nan) for row in rows], dtype=float) for column in columns
    )
    return values, np.stack([values - low, high - values]).clip(0)  # NaN is not drawn


def marker_stride(points: Sequence[Any]) -> int:
    """Every how many points a line has a marker, so that markers do not cover each other."""
    return max(1, math.ceil(len(points) / MOST_MARKERS))


def show_whole_markers(figure: Figure) -> None:
    """Draws markers at the ends of axes whole: axes that end at a value, such as 0, cut them."""
    for axis in figure.axes:
        for line in axis.lines:
            line.set_clip_on(False)


def write_notice(axis: Any, text: str) -> None:
    """Writes on empty axes why nothing is shown."""
    axis.text(0.5, 0.5, text, ha="center", va="center", color=GREY, transform=axis.transAxes)


def write_note_above(axis: Any, text: str) -> None:
    """Writes what lies above a y axis: at its upper end, where a rising curve has its beginning."""
    axis.annotate(text, (0, 1), (4, -2), ha="left", va="top", **EDGE_NOTE)


def write_note_below(axis: Any, text: str) -> None:
    """Writes what lies below a y axis: at its lower end, where a rising curve has its end."""
    axis.annotate(text, (1, 0), (-4, 2), ha="right", va="bottom", **EDGE_NOTE)


def add_legend(figure: Figure, columns: int = 3, **options: Any) -> None:
    """Adds one legend below the figure, with each label of all panels once.

    It has as many columns as fit, and the figure grows by its lines after the second.
    """
    handles: dict[str, Any] = {}
    for axis in figure.axes:
        for handle, name in zip(*axis.get_legend_handles_labels()):
            handles.setdefault(name, handle)
    if handles:
        columns = _count_columns(list(handles), columns, LEGEND_CHARACTERS * figure.get_figwidth())
        options = {"loc": "outside lower center", "ncols": columns, **options}
        figure.legend(list(handles.values()), list(map(escape, handles)), **options)
        _grow(figure, math.ceil(len(handles) / columns) - 2)


def _count_columns(labels: Sequence[str], columns: int, room: float) -> int:
    """The most columns of a legend that fit in a number of characters."""
    for number in range(min(columns, len(labels)), 1, -1):
        parts = np.array_split(list(map(len, labels)), number)
        if sum(7 + int(part.max()) for part in parts) <= room:
            return number
    return 1


def _grow(figure: Figure, lines: int) -> None:
    """Makes a figure higher by some lines."""
    figure.set_figheight(figure.get_figheight() + LINE * max(0, lines))


def label_steps(axis: Any, steps: Sequence[int]) -> None:
    """Labels the x axis of a plot over training, with whole numbers."""
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    if len({*steps}) == 1:
        axis.set_xticks([steps[0]])
    axis.set_xlabel("optimiser steps")


def scale_by_log(axis: Any) -> None:
    """Makes the y axis logarithmic, with plain numbers as tick labels."""
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    spans_decade = high > 10 * low
    few = MaxNLocator(7, steps=[1, 2, 2.5, 5, 10])
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if spans_decade else few)
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_locator(NullLocator())


def scale_negated_by_log(axis: Any) -> None:
    """Scales negated values logarithmically, with their original sign: higher is better."""
    scale_by_log(axis)
    axis.yaxis.set_major_formatter("\N{MINUS SIGN}{x:g}")
    axis.invert_yaxis()


def format_nats(value: float) -> str:
    """Formats nats for a label: four decimals, or two digits if these would be too few."""
    return f"{value:.4f}" if value == 0 or not abs(value) < 1e-3 else f"{value:.1e}"


def format_number(value: float | None, digits: int = 2) -> str:
    """Formats a number for a title."""
    return "none" if value is None else f"{value:.{digits}f}"


def write_title(figure: Figure, text: str) -> None:
    """Sets the title above a figure, wrapped; the figure grows by its lines after the second."""
    width = int(CHARACTERS_PER_INCH * figure.get_figwidth())
    wrap = textwrap.TextWrapper(width, break_on_hyphens=False).wrap
    lines = [part for paragraph in text.splitlines() for part in wrap(paragraph)]
    figure.suptitle(escape("\n".join(lines)))
    _grow(figure, len(lines) - 2)
