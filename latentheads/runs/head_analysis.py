"""Reads the heads of a model in every way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm import tqdm

from latentheads.batch import Batch
from latentheads.checks import check_choices, check_least, check_seed
from latentheads.corpora import Corpus, Part, batches
from latentheads.guide import ModelGuide, WithSelection
from latentheads.inference.shuffled import ShuffledTarget, shuffled_target
from latentheads.names import ATTENTION_TYPES
from latentheads.reading import (
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
from latentheads.reading.alignments import points_at_text, samples_alignments
from latentheads.reading.divergence import PAIRED, divergence
from latentheads.reading.head_report import HeadReport
from latentheads.reading.sides import Exclude
from latentheads.runs.parses import Parses
from latentheads.runs.trained_model import TrainedModel

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
        check_choices(vars(self), exclude=EXCLUDE)
        for name in ("positional", "rare"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in (0, 1], got {getattr(self, name)}")


def analyse_heads(
    trained: TrainedModel,
    corpus: Corpus,
    part: Part,
    how: AnalysisOptions,
    parses: Parses | None = None,
    name: str = "",
) -> HeadReport:
    """Reads the heads of a model in every way, with the heads that its guide selects.

    Args:
        trained: The model with its guide and vocabularies.
        corpus: Its corpus, for frequencies of tokens.
        part: The sentences that are read.
        how: How.
        parses: Parsed sentences, for syntactic roles.
        name: The name of the model in figures; by default its own name.
    """
    with WithSelection(trained.guide):
        return _Reader(trained, corpus, part, how, parses, name or trained.name).report()


@dataclass(frozen=True)
class _Reader:
    """What is read, and how; see :func:`analyse_heads`."""

    trained: TrainedModel
    corpus: Corpus
    part: Part
    how: AnalysisOptions
    parses: Parses | None
    name: str

    @property
    def guide(self) -> ModelGuide | None:
        """Whose draws are read; None where heads stand at their prior's location."""
        return self.trained.guide if self.how.draws else None

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
        model, guide, how = self.trained.model, self.guide, self.how
        recorded = Recording(model)
        blocks = tuple(recorded.attending)
        if not blocks:
            raise ValueError(
                f"{self.trained.name} has no heads that attend: there are no weights to read"
            )
        positions, rare = Positions(how.positional), {}
        for chain in (
            name for name in ATTENTION_TYPES if name in {block.attention_type for block in blocks}
        ):
            rarity = Rarity(_rank(self.corpus, chain), how.top, how.rare)
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
        trained, valid = self.trained, self.corpus.valid.first(self.how.sentences)
        points = points_at_text(trained.model)
        own = score_alignments(trained.model, trained.guide, self.part) if points else []
        return (*own, *best_attention(trained.model, valid, self.part, trained.guide))

    def shuffle_targets(self) -> ShuffledTarget | None:
        """The loss of the guide's bound when it is told other targets; None without any."""
        model, guide = self.trained.model, self.trained.guide
        if len(self.part) < 2 or not (samples_alignments(model) or guide.is_target_conditioned):
            return None
        return shuffled_target(model, guide, self.part, self.how.seed)

    def read_relevance(self) -> Relevance | None:
        """The relevance; None where it is left out."""
        asked = self.how.relevance
        number = self.how.sentences if asked is None else asked
        if not number:
            return None
        return relevance(self.trained.model, self.watched("relevance", self.part.first(number), 1))

    def read_dependencies(self) -> Syntactic | None:
        """Dependencies that heads follow; None where no parse is known, or no head attends."""
        parses, how, model = self.parses, self.how, self.trained.model
        parsed = ATTENTION_TYPES[1 if self.part.sources is None else 0]
        if parses is None or parsed not in {b.attention_type for b in Recording(model).attending}:
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
