"""Reads the heads of a run in every way."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jsonargparse import Namespace
from tqdm import tqdm

from latentheads.batch import Batch
from latentheads.corpora import Part, batches
from latentheads.experiments.analysis.texts import Text
from latentheads.guide import WithSelection
from latentheads.inference.shuffled import ShuffledTarget, shuffled_target
from latentheads.names import CHAINS
from latentheads.reading import (
    LinkScore,
    Positions,
    Rarity,
    Recording,
    Relations,
    Relevance,
    Syntactic,
    best_attention,
    detect,
    gradient_importance,
    measure,
    relevance,
    score_alignments,
)
from latentheads.reading.alignments import draws_alignments, points_at_text
from latentheads.reading.divergence import PAIRED, divergence
from latentheads.reading.head_report import HeadReport

__all__ = ["portray"]


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
        line, parts = f"{text.name}, {stage}", list(batches(part, PAIRED)) * times
        return tqdm(parts, line, unit="batch", leave=False, dynamic_ncols=True, disable=None)

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
        links=_score_links(text, options),
        shuffled=_shuffle_targets(text, options),
    )


def _score_links(text: Text, options: Namespace) -> tuple[LinkScore, ...]:
    """The scores of all links, where gold ones are known."""
    if not text.part.links:
        return ()
    run, valid = text.run, text.corpus.valid.first(options.sentences)
    points = points_at_text(run.model)
    own = score_alignments(run.model, run.guide, text.part) if points else []
    return (*own, *best_attention(run.model, valid, text.part, run.guide))


def _shuffle_targets(text: Text, options: Namespace) -> ShuffledTarget | None:
    """The loss of the guide's bound when it is told other targets; None where there are none."""
    model, guide = text.run.model, text.run.guide
    if len(text.part) < 2 or not (draws_alignments(model) or guide.is_told):
        return None
    return shuffled_target(model, guide, text.part, options.seed)


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
