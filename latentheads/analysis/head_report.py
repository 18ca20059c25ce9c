"""Everything that is read of a run's heads: the material of tables and pictures."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from latentheads.analysis.alignments import LinkScore
from latentheads.analysis.divergence import Divergence
from latentheads.analysis.measures import Measures
from latentheads.analysis.positional import Positional
from latentheads.analysis.rare import RareWord
from latentheads.analysis.relevance import Relevance
from latentheads.analysis.roles import Role
from latentheads.analysis.syntactic import Syntactic
from latentheads.inference.shuffled import ShuffledTarget
from latentheads.names import ATTENTION_TYPES, Block

__all__ = ["HeadReport", "others"]


@dataclass(frozen=True)
class HeadReport:
    """Everything that is read of a run's heads.

    Attributes:
        name: The name of the run.
        blocks: Its blocks that attend, latent or not.
        divergence: Between the heads of every block, by site.
        measures: Entropy, confidence and cosine.
        importance: By the gradient of the loss, by block.
        relevance: Propagated from predictions; None where it was left out.
        positional: Relative positions that heads point to.
        rare: Rare words that they point to, by chain.
        syntactic: Dependencies that they follow; None where no sentence is parsed, or where no head
            attends within what is parsed.
        ngrams: Its n-gram blocks, whose heads have outputs and no weights.
        links: How well its alignments, and its best heads of cross-attention, meet gold links; none
            where those are not known.
        shuffled: What the guide's bound loses when it is told other targets; None of a run without
            alignments whose guide is told no target.
    """

    name: str
    blocks: tuple[Block, ...]
    divergence: Divergence
    measures: Measures
    importance: dict[str, Tensor]
    relevance: Relevance | None
    positional: Positional
    rare: dict[str, RareWord]
    syntactic: Syntactic | None
    ngrams: tuple[Block, ...] = ()
    links: tuple[LinkScore, ...] = ()
    shuffled: ShuffledTarget | None = None

    @property
    def chains(self) -> list[str]:
        """Its chains."""
        own = {block.chain for block in self.blocks}
        return [chain for chain in ATTENTION_TYPES if chain in own]

    def chain(self, name: str) -> list[Block]:
        """The blocks of a chain, bottom to top."""
        found = [block for block in self.blocks if block.chain == name]
        return sorted(found, key=lambda block: block.layer)

    def speaking(self, block: Block) -> list[int]:
        """The heads of a block that speak in one of the sentences."""
        return self.measures.entropy[block.name].isfinite().nonzero().flatten().tolist()

    @property
    def silent(self) -> int:
        """How many heads speak in none of the sentences."""
        return sum(block.heads - len(self.speaking(block)) for block in self.blocks)

    @property
    def roles(self) -> list[Role]:
        """All roles that its heads play."""
        syntactic = [] if self.syntactic is None else self.syntactic.roles
        rare = [role for found in self.rare.values() for role in found.roles]
        return [*self.positional.roles, *syntactic, *rare]

    @property
    def normalised(self) -> Divergence:
        """Divergence a query, whose average is the one number without the length."""
        return replace(self.divergence, summed=self.divergence.normalised)

    @property
    def maps(self) -> dict[str, dict[str, Tensor]]:
        """Every quantity that has one figure a head, by block."""
        found = {
            "confidence": self.measures.confidence,
            "entropy": self.measures.entropy,
            "importance": self.importance,
            "cosine": {name: others(each) for name, each in self.measures.cosine.items()},
        }
        if self.relevance is not None:
            found["relevance"] = self.relevance.shares
        return found


def others(matrix: Tensor) -> Tensor:
    """The mean of every row, without its diagonal and silent heads; NaN of a head with no other."""
    return matrix.masked_fill(torch.eye(len(matrix), dtype=torch.bool), torch.nan).nanmean(-1)
