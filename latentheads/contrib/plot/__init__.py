"""Plots: each function returns a matplotlib Figure.

``bound(run)``, ``kl(run)``, ``kl_history(run)``, ``divergence(run)``, ``gates(run)``,
``selection(run)``, ``selection_history(run)``, ``heads(run, sentence)``,
``alignments(run, sentence)`` and ``audio(run, file)`` take a finished run, or its folder;
``draw_...`` functions take the measured values. A notebook displays the figure, `save` writes it.
All use one style sheet, ``STYLE``; ``matplotlib.style.use(lh.plot.STYLE)`` activates it for other
plots.
"""

from latentheads.contrib.plot.alignments import draw_alignments
from latentheads.contrib.plot.attention import draw_weights
from latentheads.contrib.plot.audio import draw_audio
from latentheads.contrib.plot.canvas import Picture, save
from latentheads.contrib.plot.comparison import draw_gaps, draw_pruning, draw_recipes, draw_sweep
from latentheads.contrib.plot.divergence import draw_divergence
from latentheads.contrib.plot.head_maps import draw_averages, draw_maps, draw_roles
from latentheads.contrib.plot.links import draw_links
from latentheads.contrib.plot.runs import (
    alignments,
    audio,
    bound,
    divergence,
    gates,
    heads,
    kl,
    kl_history,
    selection,
    selection_history,
)
from latentheads.contrib.plot.selection import (
    draw_covariance,
    draw_gates,
    draw_head_posteriors,
    draw_selection,
    draw_selection_history,
)
from latentheads.contrib.plot.style import STYLE, in_style
from latentheads.contrib.plot.training import draw_bound, draw_curves, draw_kl, draw_kl_history
from latentheads.contrib.plot.uncertainty import draw_metrics, draw_rejection, draw_reliability
from latentheads.contrib.plot.word_links import draw_word_links
from latentheads.contrib.plot.word_times import draw_word_times

__all__ = [
    "STYLE",
    "Picture",
    "alignments",
    "audio",
    "bound",
    "divergence",
    "draw_alignments",
    "draw_audio",
    "draw_averages",
    "draw_bound",
    "draw_covariance",
    "draw_curves",
    "draw_divergence",
    "draw_gaps",
    "draw_gates",
    "draw_head_posteriors",
    "draw_kl",
    "draw_kl_history",
    "draw_links",
    "draw_maps",
    "draw_metrics",
    "draw_pruning",
    "draw_recipes",
    "draw_rejection",
    "draw_reliability",
    "draw_roles",
    "draw_selection",
    "draw_selection_history",
    "draw_sweep",
    "draw_weights",
    "draw_word_links",
    "draw_word_times",
    "gates",
    "heads",
    "in_style",
    "kl",
    "kl_history",
    "save",
    "selection",
    "selection_history",
]
