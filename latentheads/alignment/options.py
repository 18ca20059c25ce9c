"""What is said of the alignment blocks above a decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from latentheads.alignment.emission import LARGEST

__all__ = ["AlignmentOptions"]


@dataclass(frozen=True)
class AlignmentOptions:
    """Alignment blocks above a decoder: heads that point at one position each.

    Attributes:
        alignments: Blocks above the decoder; 0: none. Two where nothing says a prior or a recipe.
        alignment_heads: Heads of each block; at most two heads in all, which are summed out.
        alignment_prior: How a head's prior reads others: independent; cascaded, those in the blocks
            below; chain, itself at the word before, for one head alone; or soft: no latent, every
            head adds the mean of what it may point at.
        alignment_width: Width of the queries and keys of a head.
        alignment_reach: Jumps between the positions of two heads, or of two words, have a number
            each up to so many positions; further ones share the last.
        alignment_window: Of a language model: so many words before its own a head may point at;
            0: all. The shorter, the cheaper two heads are.
    """

    alignments: int = 2
    alignment_heads: int = 1
    alignment_prior: Literal["independent", "cascaded", "chain", "soft"] = "cascaded"
    alignment_width: int = 64
    alignment_reach: int = 3
    alignment_window: int = 0

    def __post_init__(self) -> None:
        least = {
            **{"alignments": 0, "alignment_heads": 1, "alignment_width": 1},
            **{"alignment_reach": 0, "alignment_window": 0},
        }
        for name, smallest in least.items():
            if getattr(self, name) < smallest:
                raise ValueError(f"{name} must be at least {smallest}, got {getattr(self, name)}")
        if self.alignment_prior != "soft" and self.heads > LARGEST:
            raise ValueError(
                f"alignments times alignment_heads must be at most {LARGEST}, since more heads are "
                f"not summed out, got {self.alignments} times {self.alignment_heads}"
            )
        if self.alignment_prior == "chain" and self.alignments and self.heads != 1:
            raise ValueError(
                "alignment_prior chain is for one block of one head, "
                f"got alignments {self.alignments} and alignment_heads {self.alignment_heads}"
            )

    @property
    def drawn(self) -> bool:
        """Whether it is drawn where heads point."""
        return self.alignments > 0 and self.alignment_prior != "soft"

    @property
    def heads(self) -> int:
        """Heads of all blocks together."""
        return self.alignments * self.alignment_heads
