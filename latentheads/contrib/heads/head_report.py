"""All measures of a run's heads: the data of tables and figures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from latentheads.contrib.heads.alignments import LinkScore
from latentheads.contrib.heads.divergence import Divergence
from latentheads.contrib.heads.measures import Measures
from latentheads.contrib.heads.positional import PositionalHeads
from latentheads.contrib.heads.rare import RareWordHeads
from latentheads.contrib.heads.relevance import Relevance
from latentheads.contrib.heads.roles import Role
from latentheads.contrib.heads.syntactic import SyntacticHeads
from latentheads.frames import make_head_frame
from latentheads.inference.shuffled import ShuffledTarget
from latentheads.names import ATTENTION_TYPES, Block

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class HeadReport:
    """All measures of a run's heads.

    Attributes:
        name: Name of the run.
        blocks: Its attention blocks, latent or not.
        divergence: JSD between the heads of every block, by site.
        measures: Entropy, confidence and cosine.
        importance: Importance by the gradient of the loss, by block.
        relevance: Relevance for the predictions; None if it was not computed.
        positional: Relative positions that heads attend to.
        rare: Rare words that heads attend to, by attention type.
        syntactic: Dependencies that heads follow; None without parsed sentences, or without
            self-attention over them.
        ngrams: Its n-gram blocks, whose heads have outputs but no weights.
        links: Scores of its alignments and of its best cross-attention heads against gold links;
            empty without gold links.
        shuffled: How much the guide's bound loses when it is conditioned on shuffled targets; None
            for a run without alignments whose guide is not conditioned on the target.
        other_roles: Roles that detectors of your own have found.
    """

    name: str
    blocks: tuple[Block, ...]
    divergence: Divergence
    measures: Measures
    importance: dict[str, Tensor]
    relevance: Relevance | None
    positional: PositionalHeads
    rare: dict[str, RareWordHeads]
    syntactic: SyntacticHeads | None
    ngrams: tuple[Block, ...] = ()
    links: tuple[LinkScore, ...] = ()
    shuffled: ShuffledTarget | None = None
    other_roles: tuple[Role, ...] = ()

    def __repr__(self) -> str:
        blocks = ", ".join(f"{block.name}: {block.heads}" for block in self.blocks)
        return f"HeadReport({self.name!r}; heads of {blocks}; {len(self.roles):,} roles)"

    @property
    def attention_types(self) -> list[str]:
        """The attention types of its blocks."""
        types = {block.attention_type for block in self.blocks}
        return [attention_type for attention_type in ATTENTION_TYPES if attention_type in types]

    def blocks_of(self, attention_type: str) -> list[Block]:
        """The blocks of an attention type, bottom to top."""
        blocks = [block for block in self.blocks if block.attention_type == attention_type]
        return sorted(blocks, key=lambda block: block.layer)

    def active_heads(self, block: Block) -> list[int]:
        """Indices of the heads of a block that are active in at least one sentence."""
        return self.measures.entropy[block.name].isfinite().nonzero().flatten().tolist()

    @property
    def inactive_heads(self) -> int:
        """Number of heads that are active in no sentence."""
        return sum(block.heads - len(self.active_heads(block)) for block in self.blocks)

    @property
    def roles(self) -> list[Role]:
        """The roles of all heads."""
        syntactic = [] if self.syntactic is None else self.syntactic.roles
        rare = [role for report in self.rare.values() for role in report.roles]
        return [*self.positional.roles, *syntactic, *rare, *self.other_roles]

    @property
    def divergence_per_query(self) -> Divergence:
        """The JSD per query, whose average does not depend on sentence length."""
        return replace(self.divergence, summed=self.divergence.normalised)

    @property
    def maps(self) -> dict[str, dict[str, Tensor]]:
        """Every quantity with one value per head, by block."""
        maps = {
            "confidence": self.measures.confidence,
            "entropy": self.measures.entropy,
            "importance": self.importance,
            "cosine": {
                name: off_diagonal_mean(matrix) for name, matrix in self.measures.cosine.items()
            },
        }
        if self.relevance is not None:
            maps["relevance"] = self.relevance.shares
        return maps

    def to_frame(self) -> pd.DataFrame:
        """A row for each head, with every quantity of :attr:`maps`."""
        return make_head_frame(self.maps)


def off_diagonal_mean(matrix: Tensor) -> Tensor:
    """The mean of every row without its diagonal and NaN; NaN for a head without another head."""
    return matrix.masked_fill(torch.eye(len(matrix), dtype=torch.bool), torch.nan).nanmean(-1)
