"""Computes all measures of the heads of a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypedDict, Unpack

import torch
from annotated_types import Gt, Le
from pydantic import NonNegativeFloat
from torch import Tensor

from latentheads.batch import Batch
from latentheads.checks import check_choice
from latentheads.console import show_progress
from latentheads.contrib.heads.alignments import LinkScore, score_alignments, score_best_attention
from latentheads.contrib.heads.divergence import PAIR_BATCH_TOKENS, divergence
from latentheads.contrib.heads.head_report import HeadReport
from latentheads.contrib.heads.importance import gradient_importance
from latentheads.contrib.heads.measures import measure
from latentheads.contrib.heads.parses import Parses, grammar_parses
from latentheads.contrib.heads.positional import PositionalDetector
from latentheads.contrib.heads.rare import RareWordDetector, frequency_ranks
from latentheads.contrib.heads.record import Recording
from latentheads.contrib.heads.relevance import Relevance, relevance
from latentheads.contrib.heads.roles import detect
from latentheads.contrib.heads.syntactic import SyntacticDetector, SyntacticHeads
from latentheads.contrib.heads.tokens import Exclude
from latentheads.corpora.batches import batches
from latentheads.corpora.corpus import Corpus
from latentheads.corpora.part import Part
from latentheads.corpora.text import PARTS
from latentheads.guide import ModelGuide
from latentheads.inference.shuffled import ShuffledTarget, shuffled_target
from latentheads.latents.handlers import WithSelection
from latentheads.names import ATTENTION_TYPES
from latentheads.options import Count, Size, from_dict, options_class
from latentheads.runs.loading import open_run
from latentheads.runs.run import Run
from latentheads.runs.trained_model import TrainedModel, check_is_stochastic

Share = Annotated[float, Gt(0), Le(1)]


@options_class()
class AnalysisOptions:
    """Options of the head analysis, with the thresholds of roles.

    Attributes:
        sentences: Number of sentences that are analysed, from the first; of running text, blocks.
        relevance: Number of sentences for relevance, which needs one pass per target token; 0: skip
            relevance; by default equal to ``sentences``.
        num_samples: Number of samples of every head from the guide, over which all measures are
            averaged; 0: heads at their prior's location. Relevance always uses the plug-in heads.
        exclude: Where BOS and EOS do not count for the confidence.
        positional: Minimum share of queries for which a positional head attends to one relative
            position.
        margin: Minimum difference of a syntactic head to the best fixed offset.
        rare: Minimum share of queries for which a rare-word head attends to one of the two rarest
            words.
        top: Number of most frequent tokens that are not rare.
        seed: Seed of the samples.
    """

    sentences: Count = 500
    relevance: Size | None = None
    num_samples: Size = 0
    exclude: Exclude = "both"
    positional: Share = 0.9
    margin: NonNegativeFloat = 0.1
    rare: Share = 0.5
    top: Size = 500
    seed: Size = 0


class AnalysisKwargs(TypedDict, total=False):
    """The options of :class:`AnalysisOptions`."""

    sentences: int
    relevance: int | None
    num_samples: int
    exclude: Exclude
    positional: float
    margin: float
    rare: float
    top: int
    seed: int


def analyse(
    run: Run | str | Path,
    part: Literal["train", "valid", "test"] = "valid",
    **options: Unpack[AnalysisKwargs],
) -> HeadReport:
    """Analyses the heads of a run on a part of its corpus, for ``lh.plot.draw_maps``.

    Args:
        run: The run, or its folder.
        part: The part.
        **options: Those of :class:`AnalysisOptions`, such as ``sentences``.

    Raises:
        ValueError: This is no run, there is no such part, an option is invalid or has no effect, or
            the model has no attention heads.
    """
    if not isinstance(run, Run | str | Path):
        raise ValueError(
            f"run must be a run, or its folder, got {type(run).__name__}: measure(model, "
            "batches) and other measures take a network of transformers"
        )
    check_choice("part", part, PARTS)
    run = open_run(run)
    analysis = from_dict(AnalysisOptions, options)
    if analysis.num_samples:
        check_is_stochastic([run], "num_samples", ("heads", "alignments"))
    text = getattr(run.corpus, part).first(analysis.sentences)
    parses = grammar_parses(text, run.corpus) if run.settings.data.has_parses else None
    return analyse_heads(run, run.corpus, text, analysis, parses, run.path.name)


def analyse_heads(
    trained: TrainedModel,
    corpus: Corpus,
    part: Part,
    options: AnalysisOptions,
    parses: Parses | None = None,
    name: str = "",
) -> HeadReport:
    """Computes all measures of the heads of a model, with the heads that its guide selects.

    Args:
        trained: The model with its guide and vocabularies.
        corpus: Its corpus, for the frequencies of tokens.
        part: The sentences that are analysed.
        options: Options of the analysis.
        parses: Parsed sentences, for syntactic roles.
        name: Name of the model in figures; by default its own name.
    """
    with WithSelection(trained.guide):
        return _HeadAnalysis(trained, corpus, part, options, parses, name or trained.name).report()


@dataclass(frozen=True)
class _HeadAnalysis:
    """The arguments of :func:`analyse_heads`, with one method per group of measures."""

    trained: TrainedModel
    corpus: Corpus
    part: Part
    options: AnalysisOptions
    parses: Parses | None
    name: str

    @property
    def guide(self) -> ModelGuide | None:
        """The guide that samples the heads; None for heads at their prior's location."""
        return self.trained.guide if self.options.num_samples else None

    def batches(
        self, stage: str, part: Part | None = None, repeats: int | None = None
    ) -> Iterable[Batch]:
        """The batches of a part, repeated for every sample, with a progress bar."""
        once = list(batches(self.part if part is None else part, PAIR_BATCH_TOKENS, shuffle=False))
        repeated = once * (max(1, self.options.num_samples) if repeats is None else repeats)
        return show_progress(repeated, f"{self.name}, {stage}", "batch")

    def report(self) -> HeadReport:
        """Computes all measures."""
        model, guide, options = self.trained.model, self.guide, self.options
        recording = Recording(model)
        blocks = tuple(recording.attention_blocks)
        if not blocks:
            raise ValueError(
                f"{self.trained.name} has no attention: there are no weights to analyse"
            )
        positional, rare = PositionalDetector(options.positional), {}
        types = {block.attention_type for block in blocks}
        for attention_type in (name for name in ATTENTION_TYPES if name in types):
            ranks = _frequency_ranks(self.corpus, attention_type)
            rare_words = RareWordDetector(ranks, options.top, options.rare)
            text = self.batches(f"roles of {attention_type}")
            detect(model, text, [positional, rare_words], attention_type, guide, options.seed)
            rare[attention_type] = rare_words.result()
        return HeadReport(
            name=self.name,
            blocks=blocks,
            ngrams=tuple(block for block in recording.blocks if block not in blocks),
            divergence=divergence(
                model, self.batches("divergence"), guide, options.seed, latent=False
            ),
            measures=measure(model, self.batches("measures"), guide, options.seed, options.exclude),
            importance=gradient_importance(model, self.batches("importance"), guide, options.seed),
            relevance=self.relevance(),
            positional=positional.result(),
            rare=rare,
            syntactic=self.syntactic_heads(),
            links=self.score_links(),
            shuffled=self.shuffle_targets(),
        )

    def score_links(self) -> tuple[LinkScore, ...]:
        """Scores alignments and the best cross-attention; empty without gold links."""
        if not self.part.links:
            return ()
        trained, valid = self.trained, self.corpus.valid.first(self.options.sentences)
        aligned = trained.model.aligns_with_text
        alignments = score_alignments(trained.model, trained.guide, self.part) if aligned else []
        return (*alignments, *score_best_attention(trained.model, valid, self.part, trained.guide))

    def shuffle_targets(self) -> ShuffledTarget | None:
        """Computes the loss of the bound if the guide is conditioned on shuffled targets."""
        model, guide = self.trained.model, self.trained.guide
        if len(self.part) < 2 or not (model.samples_alignments or guide.is_target_conditioned):
            return None
        return shuffled_target(model, guide, self.part, self.options.seed)

    def relevance(self) -> Relevance | None:
        """Computes the relevance; None if it is skipped."""
        options = self.options
        sentences = options.sentences if options.relevance is None else options.relevance
        if not sentences:
            return None
        return relevance(
            self.trained.model, self.batches("relevance", self.part.first(sentences), 1)
        )

    def syntactic_heads(self) -> SyntacticHeads | None:
        """Finds syntactic heads; None without parses or without self-attention over them."""
        parses, options, model = self.parses, self.options, self.trained.model
        attention_type = ATTENTION_TYPES[1 if self.part.sources is None else 0]
        types = {block.attention_type for block in Recording(model).attention_blocks}
        if parses is None or attention_type not in types:
            return None
        detector = SyntacticDetector(parses.arcs, parses.words, margin=options.margin)
        text = self.batches("dependencies", parses.part)
        detect(model, text, [detector], attention_type, self.guide, options.seed)
        return detector.result()


def _frequency_ranks(corpus: Corpus, attention_type: str) -> Tensor:
    """Ranks the tokens at the keys of an attention type by their frequency in training."""
    train, source = corpus.train, corpus.source
    if attention_type == "decoder-self" or source is None or train.sources is None:
        return frequency_ranks(torch.tensor(train.targets.tokens), len(corpus.target))
    return frequency_ranks(torch.tensor(train.sources.tokens), len(source))
