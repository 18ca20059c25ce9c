"""Plots the distribution over positions of alignment heads: prior, guide and exact posterior."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from latentheads.batch import Batch
from latentheads.contrib.heads.alignments import (
    DISTRIBUTIONS,
    AlignmentDistributions,
    alignment_distributions,
)
from latentheads.contrib.heads.labels import name_positions, name_tokens
from latentheads.contrib.plot.canvas import (
    MAX_LABEL,
    WIDTH,
    Picture,
    cell_inches,
    draw_map,
    escape,
    frame_links,
    position_labels,
    write_title,
)
from latentheads.contrib.plot.style import in_style
from latentheads.contrib.speech.subsampler import FACTOR
from latentheads.corpora.batches import collate
from latentheads.corpora.part import Part
from latentheads.metrics.alignment import Link, Links
from latentheads.runs.settings import Settings
from latentheads.runs.trained_model import TrainedModel

LABEL = 1.5
"""Minimum height of a map in inches: it has the label of its head beside it."""

TITLES = {
    "prior": "prior:\nbefore the token is known",
    "guide": "guide",
    "posterior": "exact posterior:\ngiven the token",
}


WORD, AUDIO_POSITION = 0.15, 0.05
"""Maximum width of a position in inches, of a text and of sound."""

WORD_HEIGHT = 0.19
"""Height of a target token in inches."""


SHOWN_TOKENS = 12
"""Preferred number of tokens of a sentence in a figure."""


def pair_to_show(part: Part) -> tuple[Batch, Links]:
    """The sentence pair with the best length for a figure, and its gold links."""
    index = int(np.abs(part.lengths - SHOWN_TOKENS).argmin())
    return collate(part, [index]), part.links[index] if part.links else frozenset()


def batch_alignments(
    trained: TrainedModel, settings: Settings, batch: Batch, links: Collection[Link] = ()
) -> Figure:
    """Draws the alignment of a batch's first sentence; see :func:`draw_alignments`."""
    frames = None if batch.frames is None else batch.frames[0].double().cpu().numpy()
    heads = trained.model.output_heads
    assert heads is not None
    tokens = "source token" if trained.source is not None else "earlier token"
    positions = f"{tokens}s" if frames is None else "audio"
    guide = settings.pair.guide_name
    if trained.guide.is_target_conditioned:
        guide = f"{guide}, conditioned on {trained.guide.condition_on}"
    return draw_alignments(
        alignment_distributions(trained.model, trained.guide, batch),
        name_positions(batch, trained.source, trained.target, heads),
        name_tokens(trained.target, batch.target[0].tolist()),
        links,
        guide,
        f"Alignment of target tokens with {positions}\n{settings.title}",
        frames,
        tokens if heads.no_position is None else f"{heads.no_position} or {tokens}",
    )


@in_style
def draw_alignments(
    distributions: AlignmentDistributions,
    sources: Sequence[str],
    targets: Sequence[str],
    links: Collection[Link] = (),
    guide: str = "",
    title: str = "",
    frames: Float[np.ndarray, "frame bin"] | None = None,
    position_label: str = "source token",
) -> Figure:
    """Draws prior, guide and exact posterior of the first sentence side by side, one row per head.

    Args:
        distributions: The distributions over positions.
        sources: Label of each position.
        targets: The target tokens.
        links: Gold links of source and target tokens, framed.
        guide: Name of the guide, and what it is conditioned on.
        title: Title of the figure.
        frames: Normalised frames of audio input, shown above the maps on the same time axis.
        position_label: Label of the position axis for text input; it names what has probability
            besides positions.
    """
    heads, size = len(distributions.heads), (len(targets), len(sources))
    frame_heights = [] if frames is None else [1.3]
    cell_height = cell_inches(size[0], WORD_HEIGHT)
    cell_width = cell_inches(size[1], WORD if frames is None else AUDIO_POSITION)
    heights = [*frame_heights, *[max(LABEL, 0.5 + cell_height * size[0])] * heads]
    label_height = 0.08 * min(MAX_LABEL, max(map(len, sources), default=0))
    width = max(WIDTH, 1.2 + 3 * (0.3 + cell_width * size[1]))
    figure = Picture(width, 1.7 + sum(heights) + label_height)
    axes = figure.subplots(
        len(heights),
        len(DISTRIBUTIONS),
        squeeze=False,
        sharex=True,
        sharey="row",
        height_ratios=heights,
    )
    maps = axes[len(frame_heights) :]
    if frames is not None:  # before the maps, which set the limits of the shared x axis
        _draw_frames(axes[0], frames)
    image: Any = None
    for head, row_axes in enumerate(maps):
        for axis, distribution in zip(row_axes, DISTRIBUTIONS):
            values = getattr(distributions, distribution)[0, head, : size[0], : size[1]]
            values = values.double().cpu().numpy()
            image = draw_map(axis, values, vmin=0, vmax=1)
            frame_links(axis, links, distributions.first_position)
        name = escape(distributions.heads[head]).replace(" head ", "\nhead ")
        head_label = f"{name}\n" if heads > 1 else ""
        row_axes[0].set_ylabel(f"{head_label}target token")
        row_axes[0].set_yticks(*position_labels(targets, cell_height))
    for axis, distribution in zip(axes[0], DISTRIBUTIONS):
        suffix = f":\n{escape(guide)}" if distribution == "guide" and guide else ""
        axis.set_title(f"{TITLES[distribution]}{suffix}")
    position_label = escape(position_label) if frames is None else "position in the audio"
    for axis in axes[-1]:
        axis.set_xticks(*position_labels(sources, cell_width), rotation=90)
        axis.set_xlabel(position_label)
    bar = figure.colorbar(image, ax=axes, location="bottom", aspect=50, shrink=0.6, pad=0.02)
    bar.set_label(f"probability of {position_label}")
    links_note = "\nFramed: gold alignment." if links else ""
    write_title(figure, f"{title}{links_note}")
    return figure


def _draw_frames(axes: Any, frames: Float[np.ndarray, "frame bin"]) -> None:
    """Draws the audio frames above each distribution, on the time axis of its positions."""
    number, bins = frames.shape
    for axis in axes:
        extent = (-0.5, number / FACTOR - 0.5, 0.0, float(bins))
        draw_map(axis, frames.T, origin="lower", extent=extent, cmap="magma")
    axes[0].set_ylabel("mel bin")
