"""The scores of ``SCORES`` whose means and differences tables give.

They stand apart from the table, because an installed package imports it to add a line.
"""

from latentheads.metrics.scores import SCORES
from latentheads.plugins import load_options

load_options()  # before the table is read

COMPARED = tuple(name for name, info in SCORES.items() if info.compared)
"""Scores whose mean over seeds and over tasks tables give."""

METRICS = tuple(name for name in COMPARED if SCORES[name].kind == "metric")
"""Those of output lines."""
