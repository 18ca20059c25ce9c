"""Options of gates of heads with exact posteriors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import PositiveFloat

from latentheads.checks import (
    check_choice,
    check_fraction,
    check_number,
    check_positive,
    split_items,
)
from latentheads.latents.bernoulli_heads.latent import BernoulliHeads
from latentheads.latents.bernoulli_heads.prior import Prior
from latentheads.latents.latent import Structure
from latentheads.latents.options import LatentOptions, ModelShape
from latentheads.names import Block, side_of
from latentheads.options import Probability, options_class

MAX_SUBSETS = 4096
"""Most subsets of heads that are summed over."""


@options_class()
class BernoulliHeadsOptions(LatentOptions):
    """Which heads are active in each sentence, in a few blocks; all subsets are summed over.

    Attributes:
        blocks: Names of the blocks, as ``decoder.1.cross,decoder.1.self``; together they may have
            12 heads. Empty: the top block of cross-attention, in a language model that of
            self-attention.
        prior: What the prior of a head is conditioned on: nothing, with a fixed rate
            (independent); earlier heads of its block (autoregressive); or the heads of lower blocks
            (cascaded).
        rate: The prior probability of a head to be active; where the prior is learned, at the
            start.
        gibibytes: Memory that the layers above the lowest block may take, by an estimate; more
            subsets are processed in slices.
    """

    may_be_summed_out: ClassVar[bool] = True
    needs_blocks: ClassVar[bool] = True
    fixed_options: ClassVar[tuple[str, ...]] = ("blocks", "prior")

    blocks: str = ""
    prior: Prior = "independent"
    rate: Probability = 0.8
    gibibytes: PositiveFloat = 4.0

    def make(self, shape: ModelShape) -> BernoulliHeads:
        """Makes the gates of a model.

        Raises:
            ValueError: There is no such block, or there are too many heads.
        """
        addresses = self._choose_blocks(shape.blocks)
        check_number_of_subsets(addresses)
        return BernoulliHeads(addresses, self.prior, self.rate, self.gibibytes)

    def _choose_blocks(self, blocks: Sequence[Block]) -> list[Block]:
        """The addresses of the blocks, from the lowest."""
        by_name = {block.name: block for block in blocks}
        names = split_items(self.blocks) if self.blocks else []
        for name in names:
            check_choice("bernoulli-heads.blocks", name, by_name)
        if names:
            return [block for block in blocks if block.name in names]
        for attention_type in ("decoder-cross", "decoder-self"):
            of_type = [block for block in blocks if block.attention_type == attention_type]
            if of_type:
                return of_type[-1:]
        raise ValueError("bernoulli-heads.blocks must name a block: there is no decoder")

    def reduced_structure(self, structure: Structure) -> Structure:
        """mean-field, where no block lies below another."""
        is_alone = len(set(split_items(self.blocks))) == 1 and structure == "cascaded"
        return "mean-field" if is_alone else structure

    @property
    def phrase(self) -> str:
        where = f"of {self.blocks}" if self.blocks else "of the top block"
        return f"latent gates {where} (prior: {self.prior}, rate {self.rate:g})"

    @property
    def acts_on_encoder(self) -> bool:
        return any(side_of(name) == "encoder" for name in split_items(self.blocks))


def check_number_of_subsets(blocks: Sequence[Block]) -> None:
    """Raises an error for blocks with too many heads."""
    subsets = 2 ** sum(block.heads for block in blocks)
    if subsets > MAX_SUBSETS:
        names = ",".join(block.name for block in blocks)
        most = MAX_SUBSETS.bit_length() - 1
        hint = "name fewer blocks" if len(blocks) > 1 else f"a block may have at most {most} heads"
        raise ValueError(
            f"blocks {names} have {subsets:,} subsets of heads together, and at most "
            f"{MAX_SUBSETS:,} are summed over: {hint}"
        )


def check_temperature_and_rate(tau: float, rate: float) -> None:
    """Checks the temperature of a posterior over subsets, and the prior probability of a head."""
    check_number("tau", tau)
    check_positive("tau", tau)
    check_fraction("rate", rate)
