"""Figures of a run's report: how far apart heads are, training, a sentence's links."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from matplotlib.figure import Figure

from latentheads.contrib.heads.divergence import PAIR_BATCH_TOKENS, divergence
from latentheads.contrib.plot.alignments import batch_alignments, pair_to_show
from latentheads.contrib.plot.canvas import save
from latentheads.contrib.plot.divergence import draw_divergence
from latentheads.contrib.plot.selection import draw_selection, draw_selection_history
from latentheads.contrib.plot.training import draw_bound, draw_kl
from latentheads.corpora.batches import batches
from latentheads.latents.handlers import WithSelection
from latentheads.names import ATTENTION_TYPES
from latentheads.runs.reporter import Reporter
from latentheads.runs.trained_model import TrainedModel

MAX_BLOCKS = 64
"""Batches of a running text on which heads are compared."""


def report_divergence(reporter: Reporter) -> dict[str, Any]:
    """How far apart the heads are, and the plot of it."""
    validation = batches(reporter.corpus.valid, PAIR_BATCH_TOKENS, shuffle=False)
    limit = MAX_BLOCKS if reporter.settings.data.block_size else None
    with WithSelection(reporter.guide):
        heads = divergence(reporter.model, islice(validation, limit))
    title = f"{reporter.title}: plug-in heads, validation"
    _save(reporter, "divergence", draw_divergence, heads, title)
    by_type = {
        attention_type: value
        for attention_type in ATTENTION_TYPES
        if (value := heads.average(attention_type)) is not None
    }
    return {"head_divergence": heads.average(), "head_divergence_by_attention_type": by_type}


def draw_plots(reporter: Reporter) -> dict[str, Any]:
    """Draws training, and the alignment of a test sentence; adds nothing to the results."""
    results, title = reporter.results, reporter.title
    records, selection = reporter.folder.metrics(), results["selection"]
    if records:  # what was pruned was not trained since
        _save(reporter, "bound", draw_bound, records, title)
    _save(reporter, "kl", draw_kl, results["kl_by_site"], results["kl_how"], title)
    if selection:
        _save(reporter, "selection", draw_selection, selection, title)
    if selection and any("selection" in record for record in records):
        _save(reporter, "selection-history", draw_selection_history, records, selection, title)
    if reporter.model.samples_alignments and reporter.corpus.source is not None:
        _draw_alignments(reporter)
    return {}


def _draw_alignments(reporter: Reporter) -> None:
    """Draws a sentence of the test part."""
    batch, links = pair_to_show(reporter.corpus.test)
    trained = TrainedModel(reporter.model, reporter.guide, reporter.corpus.processor)
    _save(reporter, "alignments", batch_alignments, trained, reporter.settings, batch, links)


def _save(reporter: Reporter, name: str, draw: Callable[..., Figure], *of: Any) -> None:
    """Draws a figure and saves it in the run folder."""
    save(draw(*of), reporter.folder.path / f"{name}.png")
