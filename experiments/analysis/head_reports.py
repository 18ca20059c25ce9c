"""What the heads of a run are like, read in every way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from jsonargparse import Namespace
from torch import Tensor
from tqdm import tqdm

from latentheads.batch import Batch
from latentheads.corpora import Part, batches
from latentheads.experiments.analysis.texts import Text
from latentheads.guide import WithSelection
from latentheads.names import CHAINS, Block
from latentheads.reading import (
    Measures,
    Positional,
    Positions,
    RareWord,
    Rarity,
    Recording,
    Relations,
    Relevance,
    Role,
    Syntactic,
    detect,
    gradient_importance,
    measure,
    relevance,
)
from latentheads.reading.divergence import Divergence, divergence

__all__ = ["HeadReport", "others", "pair_mean", "portray"]

TOKENS = 512
"""Of a batch; memory grows with the square of the heads."""


@dataclass(frozen=True)
class HeadReport:
    """What the heads of a run are like.

    Attributes:
        name: What the run is called.
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

    @property
    def chains(self) -> list[str]:
        """Its chains."""
        own = {block.chain for block in self.blocks}
        return [chain for chain in CHAINS if chain in own]

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


def pair_mean(matrix: Tensor) -> float | None:
    """The mean over all pairs of heads that speak; None where there are none."""
    rows, columns = torch.triu_indices(len(matrix), len(matrix), offset=1)
    mean = float(matrix[rows, columns].nanmean())
    return None if math.isnan(mean) else mean


def portray(text: Text, options: Namespace) -> HeadReport:
    """Reads the heads of a run in every way, with the heads that its guide selects."""
    with WithSelection(text.run.guide):
        return _portray(text, options)


def _portray(text: Text, options: Namespace) -> HeadReport:
    model, seed = text.run.model, options.seed
    guide = text.run.guide if options.draws else None

    def watched(
        stage: str, part: Part = text.part, times: int = max(1, options.draws)
    ) -> Iterable[Batch]:
        line, parts = f"{text.name}, {stage}", list(batches(part, TOKENS)) * times
        return tqdm(parts, line, unit="batch", leave=False, dynamic_ncols=True)

    recorded = Recording(model)
    blocks = tuple(recorded.attending)
    if not blocks:
        raise ValueError(f"{text.run.path} has no heads that attend: there are no weights to read")
    positions, rare = Positions(options.positional), {}
    for chain in (name for name in CHAINS if name in {block.chain for block in blocks}):
        rarity = Rarity(text.ranks(chain), options.top, options.rare)
        detect(model, watched(f"roles of {chain}"), [positions, rarity], chain, guide, seed)
        rare[chain] = rarity.result()
    return HeadReport(
        name=text.name,
        blocks=blocks,
        ngrams=tuple(block for block in recorded.blocks if block not in blocks),
        divergence=divergence(model, watched("divergence"), guide, seed, latent=False),
        measures=measure(model, watched("measures"), guide, seed, options.exclude),
        importance=gradient_importance(model, watched("importance"), guide, seed),
        relevance=_relevance(text, options, watched),
        positional=positions.result(),
        rare=rare,
        syntactic=_syntactic(text, options, watched),
    )


Watched = Callable[[str, Part, int], Iterable[Batch]]


def _relevance(text: Text, options: Namespace, watched: Watched) -> Relevance | None:
    number = options.sentences if options.relevance is None else options.relevance
    if not number:
        return None
    return relevance(text.run.model, watched("relevance", text.part.first(number), 1))


def _syntactic(text: Text, options: Namespace, watched: Watched) -> Syntactic | None:
    parsed = CHAINS[1 if text.part.sources is None else 0]
    if text.parses is None or parsed not in {b.chain for b in Recording(text.run.model).attending}:
        return None
    relations = Relations(text.parses.arcs, text.parses.words, margin=options.margin)
    guide = text.run.guide if options.draws else None
    shown = watched("dependencies", text.parses.part, max(1, options.draws))
    detect(text.run.model, shown, [relations], parsed, guide, options.seed)
    return relations.result()
