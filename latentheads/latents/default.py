"""The latents of a model or a run that names none."""

from latentheads.latents.alignments.options import AlignmentOptions

DEFAULT_LATENTS = (AlignmentOptions(),)
"""Alignment heads alone."""
