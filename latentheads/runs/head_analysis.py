"""Reads the heads of a run in every way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from tqdm import tqdm

from latentheads.analysis import (
    EXCLUDE,
    LinkScore,
    Positions,
    Rarity,
    Recording,
    Relations,
    Relevance,
    Syntactic,
    best_attention,
    detect,
    frequency_ranks,
    gradient_importance,
    measure,
    relevance,
    score_alignments,
)
from latentheads.analysis.alignments import points_at_text, samples_alignments
from latentheads.analysis.divergence import PAIRED, divergence
from latentheads.analysis.head_report import HeadReport
from latentheads.analysis.sides import Exclude
from latentheads.batch import Batch
from latentheads.checks import check_least, check_seed, check_words
from latentheads.corpora import Corpus, Part, batches
from latentheads.guide import ModelGuide, WithSelection
from latentheads.inference.shuffled import ShuffledTarget, shuffled_target
from latentheads.names import ATTENTION_TYPES
from latentheads.runs.parses import Parses

if TYPE_CHECKING:
    from latentheads.runs.run import Run

__all__ = ["AnalysisOptions", "analyse_heads"]


@dataclass(frozen=True)
class AnalysisOptions:
    """How heads are read, and when one plays a role.

    Attributes:
        sentences: How many are read, the first ones; of running text blocks.
        relevance: How many are read for the relevance, which costs a pass a target token; 0: it is
            left out; when not given, as many as ``sentences``.
        draws: Draws of every head from the guide, all figures averaged over them; 0: heads at their
            prior's location. Relevance is of the plug-in heads all the same.
        exclude: Where BOS and EOS do not count for the confidence.
        positional: Share of its queries in which a positional head points to one relative position.
        margin: How much better a syntactic head is than the best fixed offset.
        rare: Share of its queries in which a rare-word head points to one of the two rarest words.
        top: How many of the most frequent types are not rare.
        seed: Of the draws.
    """

    sentences: int = 500
    relevance: int | None = None
    draws: int = 0
    exclude: Exclude = "both"
    positional: float = 0.9
    margin: float = 0.1
    rare: float = 0.5
    top: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        check_least(vars(self), sentences=1, relevance=0, draws=0, margin=0.0, top=0)
        check_seed(self.seed)
        check_words(vars(self), exclude=EXCLUDE)
        for name in ("positional", "rare"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in (0, 1], got {getattr(self, name)}")


def analyse_heads(
    run: Run, part: Part, how: AnalysisOptions, parses: Parses | None = None, name: str = ""
) -> HeadReport:
    """Reads the heads of a run in every way, with the heads that its guide selects.

    Args:
        run: The run.
        part: The sentences that are read.
        how: How.
        parses: Parsed sentences, for syntactic roles.
        name: What the run is called in figures; its folder's name when not given.
    """
    with WithSelection(run.guide):
        return _Reader(run, part, how, parses, name or run.path.name).report()


@dataclass(frozen=True)
class _Reader:
    """What is read, and how; see :func:`analyse_heads`."""

    run: Run
    part: Part
    how: AnalysisOptions
    parses: Parses | None
    name: str

    @property
    def guide(self) -> ModelGuide | None:
        """Whose draws are read; None where heads stand at their prior's location."""
        return self.run.guide if self.how.draws else None

    def watched(
        self, stage: str, part: Part | None = None, times: int | None = None
    ) -> Iterable[Batch]:
        """The batches of a part, which a bar counts; once for every draw."""
        known = list(batches(self.part if part is None else part, PAIRED))
        parts = known * (max(1, self.how.draws) if times is None else times)
        line = f"{self.name}, {stage}"
        return tqdm(parts, line, unit="batch", leave=False, dynamic_ncols=True, disable=None)

    def report(self) -> HeadReport:
        """Everything that is read."""
        model, guide, how = self.run.model, self.guide, self.how
        recorded = Recording(model)
        blocks = tuple(recorded.attending)
        if not blocks:
            raise ValueError(
                f"{self.run.path} has no heads that attend: there are no weights to read"
            )
        positions, rare = Positions(how.positional), {}
        for chain in (
            name for name in ATTENTION_TYPES if name in {block.chain for block in blocks}
        ):
            rarity = Rarity(_rank(self.run.corpus, chain), how.top, how.rare)
            shown = self.watched(f"roles of {chain}")
            detect(model, shown, [positions, rarity], chain, guide, how.seed)
            rare[chain] = rarity.result()
        return HeadReport(
            name=self.name,
            blocks=blocks,
            ngrams=tuple(block for block in recorded.blocks if block not in blocks),
            divergence=divergence(model, self.watched("divergence"), guide, how.seed, latent=False),
            measures=measure(model, self.watched("measures"), guide, how.seed, how.exclude),
            importance=gradient_importance(model, self.watched("importance"), guide, how.seed),
            relevance=self.read_relevance(),
            positional=positions.result(),
            rare=rare,
            syntactic=self.read_dependencies(),
            links=self.score_links(),
            shuffled=self.shuffle_targets(),
        )

    def score_links(self) -> tuple[LinkScore, ...]:
        """The scores of all links, where gold ones are known."""
        if not self.part.links:
            return ()
        run, valid = self.run, self.run.corpus.valid.first(self.how.sentences)
        points = points_at_text(run.model)
        own = score_alignments(run.model, run.guide, self.part) if points else []
        return (*own, *best_attention(run.model, valid, self.part, run.guide))

    def shuffle_targets(self) -> ShuffledTarget | None:
        """The loss of the guide's bound when it is told other targets; None without any."""
        model, guide = self.run.model, self.run.guide
        if len(self.part) < 2 or not (samples_alignments(model) or guide.is_target_conditioned):
            return None
        return shuffled_target(model, guide, self.part, self.how.seed)

    def read_relevance(self) -> Relevance | None:
        """The relevance; None where it is left out."""
        asked = self.how.relevance
        number = self.how.sentences if asked is None else asked
        if not number:
            return None
        return relevance(self.run.model, self.watched("relevance", self.part.first(number), 1))

    def read_dependencies(self) -> Syntactic | None:
        """Dependencies that heads follow; None where no parse is known, or no head attends."""
        parses, how, model = self.parses, self.how, self.run.model
        parsed = ATTENTION_TYPES[1 if self.part.sources is None else 0]
        if parses is None or parsed not in {b.chain for b in Recording(model).attending}:
            return None
        relations = Relations(parses.arcs, parses.words, margin=how.margin)
        shown = self.watched("dependencies", parses.part)
        detect(model, shown, [relations], parsed, self.guide, how.seed)
        return relations.result()


def _rank(corpus: Corpus, chain: str) -> Tensor:
    """Places by frequency in training of the types that a chain points at."""
    train, source = corpus.train, corpus.source
    if chain == "decoder-self" or source is None or train.sources is None:
        return frequency_ranks(torch.tensor(train.targets.tokens), len(corpus.target))
    return frequency_ranks(torch.tensor(train.sources.tokens), len(source))
