"""Options of the alignment blocks above a decoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, cast

from annotated_types import Ge, Le

from latentheads.latents.alignments.aligner import Aligner
from latentheads.latents.alignments.emission import MAX_HEADS
from latentheads.latents.alignments.priors import AlignmentPrior, CascadedPrior, PriorName
from latentheads.latents.latent import Structure
from latentheads.latents.options import LatentOptions, ModelShape
from latentheads.options import (
    Coerced,
    OptionError,
    Size,
    Width,
    in_group,
    name_of_class,
    options_class,
)

MAX_BLOCKS = 1000
"""Most blocks, and most heads of a block: more do not fit into memory."""

Blocks = Annotated[int, Ge(1), Le(MAX_BLOCKS)]


@options_class()
class AlignmentOptions(LatentOptions):
    """Latent alignment heads above a decoder: each selects one position, and all are summed out.

    Attributes:
        blocks: Blocks of alignment heads above the decoder. Not given: one in a language model,
            else as many as can be summed out.
        heads: Heads of each block; at most two heads in all, which are summed out.
        prior: What a head's prior is conditioned on: independent; cascaded, the heads in the blocks
            below; chain, itself at the word before, for one head alone; soft: no latent, every head
            adds the mean over its positions; or mixture: heads select no position, but one of a few
            learned components.
        width: Width of the queries and keys of a head.
        window: Of a language model: how many words before its own a head may select; 0: all. The
            shorter, the cheaper two heads are.
    """

    may_be_summed_out: ClassVar[bool] = True

    blocks: Blocks | None = None
    heads: Blocks = 1
    prior: Coerced[AlignmentPrior, PriorName | Mapping[str, Any]] = cast(Any, CascadedPrior())
    width: Width = 64
    window: Size = 0

    def __post_init__(self) -> None:
        if self.is_latent and self.total_heads > MAX_HEADS:
            raise OptionError(
                "heads",
                f" times blocks must be at most {MAX_HEADS}, since more heads are not summed "
                f"out, got {self.heads} times {self.number_of_blocks}",
            )
        if self.chained and self.total_heads != 1:
            raise OptionError(
                "prior",
                f" {self.prior_name} is for one block of one head, "
                f"got blocks {self.number_of_blocks} and heads {self.heads}",
            )
        if self.prior.num_components and self.window:
            raise OptionError(
                "window",
                " is for heads that select positions, which those of prior "
                f"{self.prior_name} do not: drop it",
            )
        with in_group("prior"):
            self.prior.check_blocks(self.number_of_blocks)

    @property
    def prior_name(self) -> str:
        """The name of the prior."""
        return name_of_class(self.prior)

    @property
    def is_latent(self) -> bool:
        """Whether heads are random: a soft one is not."""
        return self.prior.is_latent

    @property
    def chained(self) -> bool:
        """Whether a word's alignment is conditioned on that of the word before."""
        return self.prior.chained

    @property
    def total_heads(self) -> int:
        """Heads of all blocks together."""
        return self.number_of_blocks * self.heads

    @property
    def number_of_blocks(self) -> int:
        """Blocks above the decoder."""
        if self.blocks is not None:
            return self.blocks
        return 1 if self.chained else max(1, MAX_HEADS // self.heads)

    def resolve(self, is_language_model: bool) -> AlignmentOptions:
        """The options with a number of blocks."""
        if self.window and not is_language_model:
            raise OptionError("window", " is for a language model: drop it")
        # heads over a language model's past are expensive in a second block
        number = 1 if is_language_model else self.number_of_blocks
        return self if self.blocks is not None else replace(self, blocks=number)

    def make(self, shape: ModelShape) -> Aligner:
        options = self.resolve(shape.is_causal)
        return Aligner(
            shape.width,
            options.number_of_blocks,
            options.heads,
            options.prior,
            options.width,
            options.window,
            shape.dropout,
            past=shape.is_causal,
        )

    @property
    def is_summed_out(self) -> bool:
        """Whether heads are random: they are then summed out."""
        return self.is_latent

    def reduced_structure(self, structure: Structure) -> Structure:
        """mean-field, where no head is conditioned on another or on the word before."""
        conditions = {
            "autoregressive": self.heads > 1,
            "cascaded": self.number_of_blocks > 1 or self.chained,
        }
        return structure if conditions.get(structure) else "mean-field"

    @property
    def label(self) -> str:
        """``alignments``, or ``soft`` where nothing is latent."""
        return "alignments" if self.is_latent else "soft"

    @property
    def phrase(self) -> str:
        kind = "latent" if self.is_latent else "soft"
        plural = "s" * (self.total_heads > 1)
        # one block has none below it to be conditioned on
        is_lowest = self.blocks == 1 and self.prior_name == "cascaded"
        prior = "independent" if is_lowest else self.prior_name
        return f"{self.total_heads} {kind} alignment head{plural} (prior: {prior})"
