"""Makes the alignment blocks of a network."""

from __future__ import annotations

from latentheads.latents.alignments.aligner import Aligner
from latentheads.latents.alignments.options import AlignmentOptions, check_alignment_options
from latentheads.models.network import Network

__all__ = ["make_aligner"]


def make_aligner(
    options: AlignmentOptions | None, network: Network, past: bool = False
) -> Aligner | None:
    """Makes the alignment blocks of a network; None where there are none.

    Args:
        options: Number and form of the blocks.
        network: Sizes of the network.
        past: Whether heads point at the states of earlier tokens, not at a source.
    """
    check_alignment_options(options)
    if options is None:
        return None
    options.check_window(past)
    return Aligner(options.with_default_blocks(past), network.width, network.dropout, past)
