"""Where alignments and cross-attention point, and how well that meets gold links.

Each word of the target has one link a head: to the likeliest of the source's words, as is usual
(Garg et al. 2019, https://arxiv.org/abs/1909.02074). The ends of sentences, tags and padding are no
words. A cross-attention head can be read at two places: where it predicts the word, which it does
not know, as a prior does not; or one step further, where the decoder has read it (Chen et al. 2020,
https://arxiv.org/abs/2004.14837), as a posterior has.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from latentheads.alignment.distribution import CategoricalParameters
from latentheads.alignment.marginals import head_marginals
from latentheads.analysis.record import readings
from latentheads.batch import Batch
from latentheads.corpora import Part, batches
from latentheads.guide import ModelGuide, WithSelection
from latentheads.handlers import PlugIn, blocked_from_tracers
from latentheads.inference.bound import traces
from latentheads.inference.enumeration import enumerate_alignments
from latentheads.inference.evaluation import evaluating
from latentheads.metrics.alignment import LinkCounts, Links, count_links
from latentheads.model import HeadModel
from latentheads.names import Block

__all__ = [
    "ATTENTION",
    "DISTRIBUTIONS",
    "SOFT",
    "UNION",
    "AlignmentDistributions",
    "LinkScore",
    "alignment_distributions",
    "best_attention",
    "likeliest_links",
    "points_at_text",
    "samples_alignments",
    "score_alignments",
    "score_attention",
    "target_words",
]

DISTRIBUTIONS = ("prior", "guide", "posterior")
"""The laws of where the heads of a word point, from the poorest to the best."""

SOFT = "soft"
"""The means of alignment heads of which nothing is drawn."""

ATTENTION = ("attention before", "attention after")
"""Cross-attention where it predicts a word, and one step further, where it has read it."""

UNION = "all heads"
"""The links of every head of a word together."""

TOKENS = 1024
"""Tokens of a batch; memory of two heads grows with the square of the source's length."""


@dataclass(frozen=True)
class AlignmentDistributions:
    """Probabilities of where the heads of each word point, summed over other heads and words.

    :func:`latentheads.analysis.name_positions` names the keys.

    Attributes:
        heads: Names of the heads of all blocks, from the lowest.
        prior: Before the word is known.
        guide: Under the guide.
        posterior: Under the exact posterior: Bayes' rule.
    """

    heads: tuple[str, ...]
    prior: Float[Tensor, "batch head target key"]
    guide: Float[Tensor, "batch head target key"]
    posterior: Float[Tensor, "batch head target key"]


def samples_alignments(model: HeadModel) -> bool:
    """Whether a model has alignments that are drawn, and so a posterior of them.

    Components of a mixture are no alignments: they are no positions of a text.
    """
    return points_at_text(model) and model.has_latent_alignments


def points_at_text(model: HeadModel) -> bool:
    """Whether heads of a model point at positions of a text, drawn or with a mean over them."""
    return model.alignments is not None and model.alignments.points


def _is_soft(model: HeadModel) -> bool:
    return model.alignments is not None and model.alignments.soft


def alignment_distributions(
    model: HeadModel, guide: ModelGuide, batch: Batch
) -> AlignmentDistributions:
    """Computes where the heads of every word point, without a draw.

    All other heads stand at the location of the guide's posterior.

    Args:
        model: A model with alignments.
        guide: Its guide.
        batch: The sentences, with their target.

    Raises:
        ValueError: The model has no alignments that are drawn.
    """
    if model.alignments is None or not samples_alignments(model):
        raise ValueError("this model has no alignments that are drawn: there is no law to read")
    here = batch.to(model.device)
    with evaluating(model, guide), blocked_from_tracers(), PlugIn(), WithSelection(guide):
        found = enumerate_alignments(*traces(model, guide, here))
        assert found is not None
        laws = (found.summed.priors, found.posterior, found.summed.posterior())
        tables = [head_marginals(each) for each in laws]
    return AlignmentDistributions(_name_heads(model.alignments.addresses), *tables)


def _name_heads(blocks: Sequence[Block]) -> tuple[str, ...]:
    """The names of the heads of some blocks."""
    return tuple(f"{block.name} head {head}" for block in blocks for head in range(block.heads))


def _soft_weights(
    model: HeadModel, guide: ModelGuide, batch: Batch
) -> tuple[tuple[str, ...], Float[Tensor, "batch head target key"]]:
    """The weights of the heads of a soft aligner, and their names."""
    aligner = model.alignments
    assert aligner is not None
    told: list[Sequence[CategoricalParameters]] = []
    watch = aligner.register_forward_pre_hook(
        lambda _, given: told.append(aligner.prepare(*given[:3]).priors)
    )
    try:
        with evaluating(model), blocked_from_tracers(), PlugIn(), WithSelection(guide):
            model.law(batch.to(model.device))
    finally:
        watch.remove()
    return _name_heads(aligner.all_addresses), head_marginals(told[0])


def target_words(batch: Batch) -> Bool[Tensor, "batch target"]:
    """True at the target's words, which have links."""
    return _are_words(batch.scored, batch.counted, batch)


def _source_words(batch: Batch, tagged: bool) -> Bool[Tensor, "batch key"]:
    """True at the source's words; the first token may be a tag."""
    if batch.source is None:
        raise ValueError("links are between a source and a target, and this batch has no source")
    found = _are_words(batch.source, batch.source_valid, batch)
    found[:, 0] &= not tagged
    return found


def _are_words(tokens: Tensor, real: Tensor, batch: Batch) -> Tensor:
    """True at the real tokens but for those that only begin or end a sentence."""
    return real & ~torch.isin(tokens, tokens.new_tensor(batch.ends))


def likeliest_links(
    weights: Float[Tensor, "batch head target key"], batch: Batch, tagged: bool = False
) -> list[list[Links]]:
    """Links each word of the target to the likeliest of the source's, for each head.

    Args:
        weights: Of every position for every word; NaN of a silent head, which has no links.
        batch: The sentences.
        tagged: Whether the source's first token is a tag.

    Returns:
        For every sentence, for every head, pairs of places of a source and a target token.

    Raises:
        ValueError: The batch has no source.
    """
    keys = _source_words(batch, tagged).to(weights.device)
    asked = target_words(batch).to(weights.device) & keys.any(-1, keepdim=True)
    heard = asked.unsqueeze(1) & ~weights.isnan().any(-1)
    places = weights.masked_fill(~keys[:, None, None], -1.0).argmax(-1).tolist()
    return [
        [
            frozenset((place, word) for word, place in enumerate(row) if counts[word])
            for row, counts in zip(rows, all_counts, strict=True)
        ]
        for rows, all_counts in zip(places, heard.tolist(), strict=True)
    ]


@dataclass(frozen=True)
class LinkScore:
    """How well links meet gold links.

    Attributes:
        law: The law that was asked where words point: one of ``DISTRIBUTIONS``, ``SOFT``, or one of
            ``ATTENTION``.
        head: The head; or ``UNION``, of several all their links together.
        counts: Links found and gold, over all sentences.
    """

    law: str
    head: str
    counts: LinkCounts


class _Scores:
    """Links found on the sentences of a part, by law and head."""

    def __init__(self, part: Part) -> None:
        if not part.links:
            raise ValueError("part has no links: alignments are known of the grammar's alone")
        self.part, self.tagged = part, part.mixture is not None and bool(part.mixture.tags)
        self._found: dict[tuple[str, str], list[Links]] = defaultdict(list)
        self._gold: dict[tuple[str, str], list[Links]] = defaultdict(list)

    def note(self, law: str, heads: Sequence[str], weights: Tensor, batch: Batch) -> None:
        """Adds the links of a batch."""
        links = likeliest_links(weights, batch, self.tagged)
        for place, of_heads in zip(batch.sentences.tolist(), links, strict=True):
            for head, found in zip(heads, of_heads, strict=True):
                self._note_links((law, head), found, place)
            if law not in ATTENTION and len(heads) > 1:
                self._note_links((law, UNION), frozenset().union(*of_heads), place)

    def _note_links(self, key: tuple[str, str], found: Links, place: int) -> None:
        self._found[key].append(found)
        self._gold[key].append(self.part.links[place])

    def result(self) -> list[LinkScore]:
        """The scores, by law and then by head."""
        order = [*DISTRIBUTIONS, SOFT, *ATTENTION]
        keys = sorted(self._found, key=lambda key: order.index(key[0]))
        return [LinkScore(*key, count_links(self._found[key], self._gold[key])) for key in keys]


def score_alignments(model: HeadModel, guide: ModelGuide, part: Part) -> list[LinkScore]:
    """Scores the alignments of prior, guide and exact posterior against gold links.

    Args:
        model: A model with alignments.
        guide: Its guide.
        part: Sentences whose links are known, such as those of the grammar.

    Returns:
        A score for each law and head, and of several heads one for all links together. Where
        nothing is drawn the one law is ``SOFT``.
    """
    scores = _Scores(part)
    soft = _is_soft(model)
    for batch in batches(part, TOKENS):
        if soft:
            scores.note(SOFT, *_soft_weights(model, guide, batch), batch)
            continue
        laws = alignment_distributions(model, guide, batch)
        for law in DISTRIBUTIONS:
            scores.note(law, laws.heads, getattr(laws, law), batch)
    return scores.result()


def score_attention(
    model: HeadModel, part: Part, guide: ModelGuide | None = None
) -> list[LinkScore]:
    """Scores every head of the cross-attention, where it predicts a word and where it has read it.

    Args:
        model: The model; its heads stand at their prior's location.
        part: Sentences whose links are known.
        guide: Selects the heads, where they are selected.

    Returns:
        A score for each head at both places; nothing for a model without cross-attention.
    """
    scores = _Scores(part)
    with WithSelection(guide):
        for batch, heads, weights in _cross_weights(model, part):
            before, after = ATTENTION
            scores.note(before, heads, weights, batch)
            scores.note(after, heads, weights.roll(-1, -2), batch)
    return scores.result()


def _cross_weights(
    model: HeadModel, part: Part
) -> Iterator[tuple[Batch, tuple[str, ...], Float[Tensor, "batch head target key"]]]:
    """The weights of all heads of the cross-attention, a batch at a time."""
    for batch, recorded in readings(model, batches(part, TOKENS)):
        blocks = [block for block in recorded.attending if block.chain == "decoder-cross"]
        if blocks:
            weights = torch.cat([recorded[block.name].weights for block in blocks], 1)
            yield batch, _name_heads(blocks), weights


def best_attention(
    model: HeadModel, valid: Part, part: Part, guide: ModelGuide | None = None
) -> list[LinkScore]:
    """Scores the cross-attention heads that are best on validation.

    Args:
        model: The model.
        valid: What heads are chosen on, by their error rate; the lowest of equals.
        part: What is scored.
        guide: Selects the heads, where they are selected.

    Returns:
        The score of the best head at both places; nothing for a model without cross-attention.
    """
    chosen, found = score_attention(model, valid, guide), score_attention(model, part, guide)
    best = []
    for law in ATTENTION:
        rivals = [score for score in chosen if score.law == law]
        if rivals:
            head = min(rivals, key=_error_of).head
            best += [score for score in found if (score.law, score.head) == (law, head)]
    return best


def _error_of(score: LinkScore) -> float:
    """The error rate, the worst where nothing was found."""
    return 1.0 if math.isnan(score.counts.aer) else score.counts.aer
