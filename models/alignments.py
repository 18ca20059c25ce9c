"""The alignment blocks of a network, and which networks may have them."""

from __future__ import annotations

from latentheads.alignment.aligner import Aligner
from latentheads.alignment.options import AlignmentOptions, check_alignment_options
from latentheads.models.network import Network

__all__ = ["make_aligner"]


def check_alignments(options: AlignmentOptions, sizes: Network, past: bool) -> None:
    """Refuses alignments above a network that cannot have them; see :func:`make_aligner`."""
    if not options.blocks:
        return
    if sizes.cutoffs:
        raise ValueError(
            "alignments need a full softmax: drop the cutoffs, or name a recipe or prior of logits"
        )
    options.check_window(past)


def make_aligner(
    options: AlignmentOptions | None, sizes: Network, past: bool = False
) -> Aligner | None:
    """Makes the alignment blocks of a network; None where there are none.

    Args:
        options: How many, and of what form.
        sizes: Those of the network.
        past: Whether heads point at the states of earlier words, not at a source.
    """
    check_alignment_options(options)
    if options is None or not options.blocks:
        return None
    check_alignments(options, sizes, past)
    return Aligner(options.settle(past), sizes.width, sizes.dropout, past)
