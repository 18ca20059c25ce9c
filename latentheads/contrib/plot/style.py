"""The style of all figures, and the meaning of its colours.

The style sheet beside this module sets sizes, an opaque white background, and the colour-blind safe
palette of Okabe and Ito (https://jfly.uni-koeln.de/color/). For other figures call
``matplotlib.style.use(lh.plot.STYLE)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from matplotlib import rc_context, rc_params_from_file, rcParams
from matplotlib.colors import to_hex, to_rgb

from latentheads.names import ALIGNMENT, ATTENTION_TYPES

STYLE = Path(__file__).with_name("latentheads.mplstyle")
"""The style sheet, for ``matplotlib.style.use``."""

_SETTINGS = rc_params_from_file(STYLE, use_default_template=False)
PALETTE = tuple(_SETTINGS["axes.prop_cycle"].by_key()["color"])
BLUE, RED, GREEN, PINK, ORANGE, SKY, VIOLET, BROWN = PALETTE
GREY = "#888888"
"""Colour of comparisons: another model, chance."""

GOLD = ORANGE
"""Colour of gold links."""

REFERENCE_LINE: dict[str, Any] = {"color": "black", "linestyle": (0, (4, 2)), "linewidth": 1.0}
"""The line style of a known reference value, such as the true log p."""

MEAN_CMAP, STD_CMAP, DIVERGING_CMAP = "Blues", "Oranges", "PuOr_r"
"""Colour maps of probabilities, of standard deviations, and of values on both sides of 0."""

ATTENTION_COLOURS = dict(zip((*ATTENTION_TYPES, ALIGNMENT), (BLUE, RED, GREEN, VIOLET)))
"""Colours of the attention types."""

MARKERS, LINES = "os^Dv<>PX*", ("-", "--", "-.", ":")
"""Markers and dashes that distinguish lines beside their colours."""

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def styled() -> Iterator[None]:
    """Activates the style of the library, and restores the previous one afterwards.

    Characters that the style's font has not, such as Chinese ones, are taken from the fonts in
    ``matplotlib.rcParams["font.family"]``.
    """
    fonts = dict.fromkeys([*_SETTINGS["font.family"], *rcParams["font.family"]])
    with rc_context({**_SETTINGS, "font.family": list(fonts)}):
        yield


def in_style(draw: Callable[P, T]) -> Callable[P, T]:
    """Decorates a function that plots: its figures have the style of the library."""

    @wraps(draw)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        with styled():
            return draw(*args, **kwargs)

    return wrapped


def distinct_colours(number: int) -> list[str]:
    """Returns a number of colours: the palette, then darker and lighter shades of it."""
    shades = [PALETTE, *(tuple(_blend(c, other) for c in PALETTE) for other in ("black", "white"))]
    return list(islice(cycle(chain(*shades)), number))


def _blend(colour: str, other: str) -> str:
    """Mixes two colours in equal parts."""
    return to_hex([(a + b) / 2 for a, b in zip(to_rgb(colour), to_rgb(other), strict=True)])
