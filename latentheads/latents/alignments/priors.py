"""Priors of alignment heads: what the position of a head is conditioned on, a class each.

A prior is a class of options, a subclass of :class:`AlignmentPrior`, and a module that computes its
parameters, a subclass of :class:`PriorParameters`. A user-defined prior needs both.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Le
from jaxtyping import Float
from torch import Tensor, nn

from latentheads.checks import MAX_WIDTH
from latentheads.latents.alignments.chain import ChainParameters
from latentheads.latents.alignments.distribution import CategoricalParameters, Pair
from latentheads.latents.alignments.jumps import Jumps, JumpsAfterNull
from latentheads.layers.numeric import full_precision
from latentheads.options import Choice, OptionError, options_class

PriorName = Literal["independent", "cascaded", "chain", "soft", "mixture"]
"""The names of the priors."""

Reach = Annotated[int, Ge(0), Le(MAX_WIDTH)]
"""The longest jump with a number of its own."""


class PriorParameters(nn.Module):
    """Computes the parameters of a block's prior; here all heads and words are independent.

    Args:
        heads: The numbers of the block's heads; heads of lower blocks have lower numbers.
    """

    def __init__(self, heads: range) -> None:
        super().__init__()
        self.heads = heads

    def forward(
        self,
        scores: Float[Tensor, "*batch target head key"],
        keys: Float[Tensor, "*keys key head size"],
        below: Sequence[Float[Tensor, "*keys key size"]],
    ) -> CategoricalParameters:
        """The parameters of the prior.

        Args:
            scores: Scores of each head's positions by its query and keys; ``NOWHERE`` where it may
                not point.
            keys: The keys of the block's heads.
            below: The keys of every head of lower blocks.
        """
        return CategoricalParameters(scores, first_head=self.heads.start)


class ChainPriorParameters(PriorParameters):
    """Of a chain: the score of a position also depends on the jump from the previous word's.

    Args:
        heads: The number of the head.
        jumps: The scores of jumps.
    """

    def __init__(self, heads: range, jumps: Jumps) -> None:
        super().__init__(heads)
        self.jumps = jumps

    def forward(self, scores: Tensor, keys: Tensor, below: Sequence[Tensor]) -> ChainParameters:
        """The scores, and one matrix of transition scores for all words."""
        transition_scores = self.jumps(keys.shape[-3]).unsqueeze(0)
        return ChainParameters(scores, transition_scores=transition_scores)


class CascadedPriorParameters(PriorParameters):
    """Of a cascade: the score of a position also depends on those of the heads in lower blocks.

    Args:
        heads: The numbers of the block's heads.
        jumps: The scores of jumps from each lower head's position, for each head.
        size: Width of the keys.
    """

    def __init__(self, heads: range, jumps: Mapping[Pair, Jumps], size: int) -> None:
        super().__init__(heads)
        self.pairs = list(jumps)
        names = {f"{head}_{lower}": scores for (head, lower), scores in jumps.items()}
        self.jumps = nn.ModuleDict(names)
        self.contents = nn.ParameterDict(
            {name: nn.Parameter(torch.zeros(size, size)) for name in names}
        )

    def forward(
        self, scores: Tensor, keys: Tensor, below: Sequence[Tensor]
    ) -> CategoricalParameters:
        """The scores, and those of each pair of positions: by the jump, and by the keys of both."""
        pairs = {}
        for head, lower in self.pairs:
            name = f"{head}_{lower}"
            keys_of_head = keys[..., head - self.heads.start, :]
            products = (below[lower] @ self.contents[name]) @ keys_of_head.mT
            content = full_precision(products) / math.sqrt(keys.shape[-1])
            pairs[head, lower] = (content + self.jumps[name](keys.shape[-3])).unsqueeze(-3)
        return CategoricalParameters(scores, pairs, self.heads.start)


@options_class()
class AlignmentPrior(Choice, ABC):
    """The prior of alignment heads: what the position of a head is conditioned on."""

    extensible: ClassVar[bool] = True
    is_latent: ClassVar[bool] = True
    """Whether heads are random."""
    chained: ClassVar[bool] = False
    """Whether a word is conditioned on the word before: ``make`` then makes a chain."""

    @classmethod
    def choices(cls) -> Mapping[str, type[AlignmentPrior]]:
        return {
            "independent": IndependentPrior,
            "cascaded": CascadedPrior,
            "chain": ChainPrior,
            "soft": SoftPrior,
            "mixture": MixturePrior,
        }

    @property
    def num_components(self) -> int:
        """How many learned components heads select from in place of positions; 0: positions."""
        return 0

    def check_blocks(self, blocks: int) -> None:
        """Raises an error for an option that has no effect with a number of blocks."""

    @abstractmethod
    def make(self, heads: range, size: int, null: bool) -> PriorParameters:
        """Makes the module that computes the parameters of a block's prior.

        Args:
            heads: The numbers of the block's heads; heads of lower blocks have lower numbers.
            size: Width of the keys.
            null: Whether the first key is null, which is no position.
        """


@options_class()
class IndependentPrior(AlignmentPrior):
    """A head has its own query and keys."""

    def make(self, heads: range, size: int, null: bool) -> PriorParameters:
        """Nothing but the scores."""
        return PriorParameters(heads)


@options_class()
class CascadedPrior(AlignmentPrior):
    """A head is also conditioned on the heads in the blocks below.

    Attributes:
        reach: Each jump between the positions of two heads has a learned score up to this length;
            longer ones have that of this length. For two blocks.
    """

    reach: Reach = 3

    def check_blocks(self, blocks: int) -> None:
        """One block has none below, and so no jumps."""
        if blocks == 1 and self.reach != CascadedPrior().reach:
            raise OptionError("reach", " is for two blocks, and there is one: drop it")

    def make(self, heads: range, size: int, null: bool) -> PriorParameters:
        """Scores of pairs of positions, zero at the start."""
        kind = JumpsAfterNull if null else Jumps
        pairs = [(head, lower) for head in heads for lower in range(heads.start)]
        return CascadedPriorParameters(heads, {pair: kind(self.reach) for pair in pairs}, size)


@options_class()
class ChainPrior(AlignmentPrior):
    """One head is also conditioned on itself at the word before.

    Attributes:
        reach: Each jump between the positions of two words has a learned score up to this length;
            longer ones have that of this length.
    """

    chained: ClassVar[bool] = True

    reach: Reach = 3

    def make(self, heads: range, size: int, null: bool) -> PriorParameters:
        """Scores of jumps, zero at the start."""
        return ChainPriorParameters(heads, (JumpsAfterNull if null else Jumps)(self.reach))


@options_class()
class SoftPrior(IndependentPrior):
    """No latent: every head adds the mean over its positions."""

    is_latent: ClassVar[bool] = False


@options_class()
class MixturePrior(IndependentPrior):
    """Heads select no position, but one of a few learned components.

    Attributes:
        components: How many there are.
    """

    components: Annotated[int, Ge(2), Le(MAX_WIDTH)] = 16

    @property
    def num_components(self) -> int:
        return self.components
