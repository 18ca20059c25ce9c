"""Options of the alignment blocks above a decoder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from latentheads.alignment.emission import MAX_HEADS
from latentheads.checks import check_least
from latentheads.values import convert_fields, shown

__all__ = ["AlignmentOptions", "Objective", "check_alignment_options"]

Prior = Literal["independent", "cascaded", "chain", "soft", "mixture"]
Objective = Literal["bound", "marginal", "sampled", "iwae", "rws"]
"""The objectives that alignments may be trained by."""


@dataclass(frozen=True)
class AlignmentOptions:
    """Alignment blocks above a decoder: heads that point at one position each.

    Attributes:
        alignments: Blocks of alignments above the decoder; 0: none. If nothing is said, none beside
            a prior or a recipe, one in a language model, and else as many as can be summed out.
        alignment_heads: Heads of each block; at most two heads in all, which are summed out.
        alignment_prior: How a head's prior reads others: independent; cascaded, those in the blocks
            below; chain, itself at the word before, for one head alone; soft: no latent, every head
            adds the mean of what it may point at; or mixture: heads point at no position, each
            takes one of a few components that are learned, whatever is read.
        alignment_width: Width of the queries and keys of a head.
        alignment_reach: Jumps between the positions of two heads, or of two words, have a number
            each up to this length; further ones share the last.
        alignment_window: Of a language model: how many words before its own a head may point at;
            0: all. The shorter, the cheaper two heads are.
        alignment_components: Components of the prior mixture.
    """

    alignments: int | None = None
    alignment_heads: int = 1
    alignment_prior: Prior = "cascaded"
    alignment_width: int = 64
    alignment_reach: int = 3
    alignment_window: int = 0
    alignment_components: int = 16

    def __post_init__(self) -> None:
        convert_fields(self)
        check_least(vars(self), alignments=0, alignment_heads=1, alignment_width=1)
        check_least(vars(self), alignment_reach=0, alignment_window=0, alignment_components=2)
        if self.alignment_prior != "soft" and self.heads > MAX_HEADS:
            raise ValueError(
                f"alignments times alignment_heads must be at most {MAX_HEADS}, since more heads "
                f"are not summed out, got {self.blocks} times {self.alignment_heads}"
            )
        if self.chained and self.blocks and self.heads != 1:
            raise ValueError(
                "alignment_prior chain is for one block of one head, "
                f"got alignments {self.blocks} and alignment_heads {self.alignment_heads}"
            )
        if self.alignment_prior == "mixture" and self.alignment_window:
            raise ValueError(
                "alignment_window is for heads that point at words, which those of alignment_prior "
                "mixture do not: drop it"
            )

    @property
    def is_latent(self) -> bool:
        """Whether alignments, or components, are latent."""
        return self.blocks > 0 and self.alignment_prior != "soft"

    @property
    def chained(self) -> bool:
        """Whether a word's alignment is conditioned on that of the previous word."""
        return self.alignment_prior == "chain"

    @property
    def heads(self) -> int:
        """Number of heads of all blocks."""
        return self.blocks * self.alignment_heads

    @property
    def blocks(self) -> int:
        """Number of blocks above the decoder."""
        if self.alignments is not None:
            return self.alignments
        return 1 if self.chained else max(1, MAX_HEADS // self.alignment_heads)

    def with_default_blocks(self, causal: bool, latent_logits: bool = False) -> AlignmentOptions:
        """The same options with the default number of blocks, if none was given.

        Args:
            causal: Whether heads point at the past of a language model, where a second one is slow.
            latent_logits: Whether a prior of logits is named; the default is then no block.
        """
        if self.alignments is not None:
            return self
        return replace(self, alignments=0 if latent_logits else 1 if causal else self.blocks)

    def check_window(self, causal: bool) -> None:
        """Check that a window is given for a language model only.

        Args:
            causal: Whether heads point at the past of a language model.
        """
        if self.blocks and self.alignment_window and not causal:
            raise ValueError("alignment_window is for a language model: drop it")


def check_alignment_options(options: object) -> None:
    """Check that a value is options of alignment blocks or None."""
    if not (options is None or isinstance(options, AlignmentOptions)):
        raise ValueError(f"alignments must be AlignmentOptions or None, got {shown(options)}")
