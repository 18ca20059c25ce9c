"""What every picture is drawn on, and how it is written."""

from __future__ import annotations

import io
import textwrap
from collections import defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from latentheads.files import written_whole
from latentheads.metrics.alignment import Link
from latentheads.names import ALIGNMENT, CHAINS, chain_of, layer_of

__all__ = [
    "COLOURS",
    "Picture",
    "by_chain",
    "frame_links",
    "largest",
    "number_of",
    "save",
    "write_title",
]

COLOURS = {
    **{"encoder-self": "#3b6fb6", "decoder-self": "#d98032", "decoder-cross": "#4a9a5b"},
    ALIGNMENT: "#8a4fa3",
}
GOLD = "#d98032"
"""Of what is known to be true."""


class Picture(Figure):
    """A figure that no window and no backend belongs to; a notebook shows it by itself.

    Args:
        width: In inches.
        height: In inches.
    """

    def __init__(self, width: float, height: float) -> None:
        super().__init__(figsize=(width, height), layout="constrained")

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


def save(figure: Figure, path: str | Path) -> None:
    """Writes a figure whole or not at all; the ending of the name says how.

    Raises:
        OSError: It cannot be written.
    """
    path = Path(path)
    with written_whole(path) as partial:
        figure.savefig(partial, dpi=120, format=path.suffix[1:] or "png")


def by_chain(sites: Iterable[str]) -> dict[str, list[str]]:
    """Sorts sites into chains, bottom to top."""
    chains: dict[str, list[str]] = defaultdict(list)
    for site in sites:
        chains[chain_of(site)].append(site)
    order = [chain for chain in (*CHAINS, ALIGNMENT) if chain in chains]
    return {chain: sorted(chains[chain], key=layer_of) for chain in order}


def largest(values: Iterable[Tensor]) -> float:
    """The end of a colour scale from 0 for several tensors; silent heads are NaN in them."""
    return max([1e-9, *(float(each.nan_to_num().max()) for each in values)])


def frame_links(axis: Any, links: Collection[Link]) -> None:
    """Frames the cells of gold links, keys to the right and queries downwards."""
    for key, query in sorted(links):
        corner = key - 0.5, query - 0.5
        axis.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=GOLD, linewidth=1.2))


def number_of(value: float | None, digits: int = 2) -> str:
    """A number for a title."""
    return "none" if value is None else f"{value:.{digits}f}"


def write_title(figure: Figure, text: str) -> None:
    """Writes lines above a figure, broken where they would be wider."""
    letters = int(14 * figure.get_figwidth())
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, letters)]
    figure.suptitle("\n".join(lines), fontsize=9)
