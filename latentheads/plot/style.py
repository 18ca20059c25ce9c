"""The style of every figure, and what its colours stand for.

The file beside this one holds the style: sizes, a white card that is not see-through, and the
colours of Okabe and Ito, which can be told apart without seeing red or green
(https://jfly.uni-koeln.de/color/). A figure of one's own takes it by
``matplotlib.style.use(lh.plot.STYLE)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import cycle, islice
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from matplotlib import rc_context, rc_params_from_file, rcParams

from latentheads.names import ALIGNMENT, ATTENTION_TYPES

__all__ = [
    "ATTENTION_COLOURS",
    "BLUE",
    "DIVERGING_CMAP",
    "GOLD",
    "GREEN",
    "GREY",
    "LINES",
    "MARKERS",
    "MEAN_CMAP",
    "ORANGE",
    "PALETTE",
    "RED",
    "REFERENCE_LINE",
    "STD_CMAP",
    "STYLE",
    "cycle_colours",
    "in_style",
    "styled",
]

STYLE = Path(__file__).with_name("latentheads.mplstyle")
"""The file of the style, as ``matplotlib.style.use`` reads it."""

_SETTINGS = rc_params_from_file(STYLE, use_default_template=False)
PALETTE = tuple(_SETTINGS["axes.prop_cycle"].by_key()["color"])
BLUE, RED, GREEN, PINK, ORANGE, SKY, VIOLET, BROWN = PALETTE
GREY = "#888888"
"""Of what is shown for comparison: another model, chance."""

GOLD = ORANGE
"""Of links that are known to be true."""

REFERENCE_LINE: dict[str, Any] = {"color": "black", "linestyle": (0, (4, 2)), "linewidth": 1.0}
"""The line of what is known to be true."""

MEAN_CMAP, STD_CMAP, DIVERGING_CMAP = "Blues", "Oranges", "PuOr_r"
"""Colours of a map: of a probability, of its standard deviation, and of what lies on both sides
of 0."""

ATTENTION_COLOURS = dict(zip((*ATTENTION_TYPES, ALIGNMENT), (BLUE, RED, GREEN, VIOLET)))
"""Of every chain of blocks."""

MARKERS, LINES = "os^Dv<>PX*", ("-", "--", "-.", ":")
"""Marks and dashes that tell lines apart beside their colours."""

Given = ParamSpec("Given")
Drawn = TypeVar("Drawn")


@contextmanager
def styled() -> Iterator[None]:
    """Draws in the style of the library, and leaves the reader's own as it was.

    Letters that the style's font lacks, as those of Chinese, are taken from the reader's fonts:
    ``matplotlib.rcParams["font.family"]``.
    """
    fonts = dict.fromkeys([*_SETTINGS["font.family"], *rcParams["font.family"]])
    with rc_context({**_SETTINGS, "font.family": list(fonts)}):
        yield


def in_style(draw: Callable[Given, Drawn]) -> Callable[Given, Drawn]:
    """Makes a function draw in the style of the library."""

    @wraps(draw)
    def drawn(*given: Given.args, **named: Given.kwargs) -> Drawn:
        with styled():
            return draw(*given, **named)

    return drawn


def cycle_colours(number: int) -> list[str]:
    """As many colours, the first again behind the last."""
    return list(islice(cycle(PALETTE), number))
