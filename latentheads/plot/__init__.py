"""Pictures: every one a function that returns a Figure.

``bound(run)``, ``kl(run)``, ``kl_history(run)``, ``divergence(run)``, ``gates(run)``,
``selection(run)``, ``heads(run, sentence)``, ``alignments(run, sentence)`` and ``sound(run, file)``
take a finished run, or its folder; ``draw_...`` take what was measured. A notebook shows the
figure, `save` writes it. All of them are in one style, whose file is ``STYLE``:
``matplotlib.style.use(lh.plot.STYLE)`` draws in it too.
"""

from latentheads.plot.alignments import draw_alignments
from latentheads.plot.attention import draw_weights
from latentheads.plot.canvas import Picture, save
from latentheads.plot.comparison import draw_gaps, draw_pruning, draw_recipes, draw_sweep
from latentheads.plot.divergence import draw_divergence
from latentheads.plot.head_maps import draw_averages, draw_maps, draw_roles
from latentheads.plot.links import draw_links
from latentheads.plot.runs import (
    alignments,
    bound,
    divergence,
    gates,
    heads,
    kl,
    kl_history,
    selection,
    selection_history,
    sound,
)
from latentheads.plot.selection import draw_gates, draw_selection, draw_selection_history
from latentheads.plot.sound import draw_sound
from latentheads.plot.style import STYLE, in_style
from latentheads.plot.training import draw_bound, draw_curves, draw_kl, draw_kl_history
from latentheads.plot.uncertainty import draw_figures, draw_rejection, draw_reliability

__all__ = [
    "STYLE",
    "Picture",
    "alignments",
    "bound",
    "divergence",
    "draw_alignments",
    "draw_averages",
    "draw_bound",
    "draw_curves",
    "draw_divergence",
    "draw_figures",
    "draw_gaps",
    "draw_gates",
    "draw_kl",
    "draw_kl_history",
    "draw_links",
    "draw_maps",
    "draw_pruning",
    "draw_recipes",
    "draw_rejection",
    "draw_reliability",
    "draw_roles",
    "draw_selection",
    "draw_selection_history",
    "draw_sound",
    "draw_sweep",
    "draw_weights",
    "gates",
    "heads",
    "in_style",
    "kl",
    "kl_history",
    "save",
    "selection",
    "selection_history",
    "sound",
]
