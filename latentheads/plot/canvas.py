"""The canvas of every picture, and how it is written."""

from __future__ import annotations

import io
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

from latentheads.files import written_whole
from latentheads.metrics.alignment import Link
from latentheads.names import ALIGNMENT, ATTENTION_TYPES, attention_type_of, layer_of
from latentheads.plot.style import GOLD, GREY, MEAN_CMAP, styled
from latentheads.values import shown

__all__ = [
    "WIDTH",
    "Picture",
    "add_legend",
    "draw_map",
    "escape",
    "format_number",
    "frame_links",
    "group_by_attention_type",
    "largest_value",
    "pad_rows",
    "save",
    "scale_by_log",
    "scale_negated_by_log",
    "values_with_intervals",
    "write_notice",
    "write_title",
]

WIDTH = 7.5
"""Inches of a figure that a page shows as it is, at most."""

LETTERS = 12
"""Letters of a title in an inch."""

LACKING = r"Glyph (\d+) .* missing from"
"""How matplotlib tells that no font has a letter, by its number."""


class Picture(Figure):
    """A figure in the style of the library; no window and no backend belongs to it.

    A notebook shows it by itself. What is drawn on it by hand is in that style too after
    ``matplotlib.style.use(lh.plot.STYLE)``.

    Args:
        width: In inches.
        height: In inches.
    """

    def __init__(self, width: float, height: float) -> None:
        with styled():
            super().__init__(figsize=(width, height), layout="constrained")

    def draw(self, renderer: Any) -> None:
        """Draws it: some of what stands on an axis is made only now."""
        with styled():
            super().draw(renderer)

    def savefig(self, *args: Any, **kwargs: Any) -> None:
        """Writes it, and tells once of all letters that no font has."""
        with styled(), _collect_lacking() as letters:
            super().savefig(*args, **kwargs)
        if letters:
            some = ", ".join(f"{letter} (U+{ord(letter):04X})" for letter in letters[:3])
            warnings.warn(
                f"no font of a picture has {len(letters)} of its letters, as {some}: name one that "
                'has them, as matplotlib.rcParams["font.family"] or in a matplotlibrc, and draw '
                "the picture anew",
                stacklevel=2,
            )

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


@contextmanager
def _collect_lacking() -> Iterator[list[str]]:
    """Collects the letters that no font has, of which matplotlib tells one by one, at each drawing.

    All other warnings are told. As all that catches warnings it is of one thread.
    """
    letters: list[str] = []
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.filterwarnings("always", LACKING)
            yield letters
    finally:
        for each in caught:
            if not (found := re.match(LACKING, str(each.message))):
                warnings.showwarning(each.message, each.category, each.filename, each.lineno)
            elif chr(int(found[1])) not in letters:
                letters.append(chr(int(found[1])))


def save(figure: Figure, path: str | Path) -> None:
    """Writes a figure whole or not at all; the ending of the name says how.

    Raises:
        OSError: It cannot be written.
    """
    path = Path(path)
    with written_whole(path) as partial, styled():  # it may be no picture of this library
        figure.savefig(partial, format=path.suffix[1:] or "png")


def group_by_attention_type(sites: Iterable[str]) -> dict[str, list[str]]:
    """Sorts sites into chains, bottom to top."""
    chains: dict[str, list[str]] = defaultdict(list)
    for site in sites:
        chains[attention_type_of(site)].append(site)
    order = [chain for chain in (*ATTENTION_TYPES, ALIGNMENT) if chain in chains]
    return {chain: sorted(chains[chain], key=layer_of) for chain in order}


def largest_value(values: Iterable[Tensor]) -> float:
    """The end of a colour scale from 0 for several tensors; silent heads are NaN in them."""
    return max([1e-9, *(float(each.nan_to_num().max()) for each in values)])


def check_not_empty(name: str, given: Collection[Any]) -> None:
    """Refuses nothing at all, of which there is no picture.

    Args:
        name: What it is called, for the error.
        given: What is drawn.
    """
    if not len(given):
        raise ValueError(f"{name} must be at least one, got none")


def legend_label(name: str) -> str:
    """The label of a line; one that begins with "_" would be left out of the legend."""
    return f" {name}" if name.startswith("_") else name


def escape(name: str) -> str:
    """A name as a picture says it: between two dollars would stand a formula."""
    return name.replace("$", r"\$")


def draw_map(axis: Any, values: Any, **options: Any) -> Any:
    """Draws numbers as colours, within a frame; white where there are none.

    Args:
        axis: Where.
        values: Rows of them.
        **options: Of ``imshow``.
    """
    for side in axis.spines.values():
        side.set_visible(True)
    axis.tick_params(length=2)
    return axis.imshow(values, **{"cmap": MEAN_CMAP, "aspect": "auto", **options})


def pad_rows(rows: Iterable[Sequence[float]]) -> NDArray[np.float64]:
    """Rows of numbers one below the other; NaN where one is shorter than another."""
    rows = list(rows)
    padded = np.full((len(rows), max(map(len, rows))), np.nan)
    for cells, row in zip(padded, rows):
        cells[: len(row)] = row
    return padded


def frame_links(axis: Any, links: Collection[Link]) -> None:
    """Frames the cells of gold links, keys to the right and queries downwards.

    Raises:
        ValueError: A link is none of the map's cells.
    """
    queries, keys = axis.images[-1].get_array().shape[:2]
    for link in links:
        if not (isinstance(link, tuple | list) and len(link) == 2):
            raise ValueError(f"links must be pairs of places, got {shown(link)}")
    for key, query in sorted(links):
        if not (0 <= key < keys and 0 <= query < queries):
            raise ValueError(
                f"links must be pairs of places, of {keys} and of {queries}, got {key, query}"
            )
        corner = key - 0.5, query - 0.5
        axis.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=GOLD, linewidth=1.8))


def values_with_intervals(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[Any, Any]:
    """A figure of every row, and how far its interval reaches down and up.

    Args:
        rows: Each may have ``NAME``, ``NAME_low`` and ``NAME_high``.
        name: The name.
    """
    ends = (name, f"{name}_low", f"{name}_high")
    middle, least, most = (
        np.array([row.get(end, np.nan) for row in rows], dtype=float) for end in ends
    )
    return middle, np.stack([middle - least, most - middle]).clip(0)  # NaN is not drawn


def write_notice(axis: Any, text: str) -> None:
    """Says in the middle of an axis why nothing is drawn there."""
    axis.text(0.5, 0.5, text, ha="center", va="center", color=GREY, transform=axis.transAxes)


def add_legend(figure: Figure, columns: int = 3, **options: Any) -> None:
    """Tells below a figure what its lines are, each once, whichever panel it is in."""
    found: dict[str, Any] = {}
    for axis in figure.axes:
        for handle, name in zip(*axis.get_legend_handles_labels()):
            found.setdefault(name, handle)
    if found:
        ncols = min(columns, len(found))
        place = {"loc": "outside lower center", "ncols": ncols, **options}
        figure.legend(list(found.values()), list(map(escape, found)), **place)


def scale_by_log(axis: Any) -> None:
    """Makes the y axis logarithmic, with plain numbers: few over decades and some within one."""
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    wide = high > 10 * low
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if wide else MaxNLocator(6))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_locator(NullLocator())


def scale_negated_by_log(axis: Any) -> None:
    """The same of values that are drawn negated: the least is on top, and numbers have their sign.

    So what is higher is better.
    """
    scale_by_log(axis)
    axis.yaxis.set_major_formatter("\N{MINUS SIGN}{x:g}")
    axis.invert_yaxis()


def format_number(value: float | None, digits: int = 2) -> str:
    """A number for a title."""
    return "none" if value is None else f"{value:.{digits}f}"


def write_title(figure: Figure, text: str) -> None:
    """Writes lines above a figure, as they are, broken where they would be wider."""
    letters = int(LETTERS * figure.get_figwidth())
    cut = textwrap.TextWrapper(letters, break_on_hyphens=False).wrap
    lines = [part for line in text.splitlines() for part in cut(line)]
    figure.suptitle(escape("\n".join(lines)))
