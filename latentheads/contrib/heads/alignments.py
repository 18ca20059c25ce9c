"""Word alignment of latent alignment heads and of cross-attention, scored against gold links.

Each head links each target word to its most likely source word (Garg et al. 2019,
https://arxiv.org/abs/1909.02074). BOS, EOS, tags and padding are no words and get no link.
Cross-attention can be read at two decoder steps: at the step that predicts the word, which is not
conditioned on it, like a prior; or at the next step, whose input is the word (Chen et al. 2020,
https://arxiv.org/abs/2004.14837), like a posterior.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from latentheads.batch import Batch, check_batch
from latentheads.contrib.heads.record import record_heads
from latentheads.contrib.heads.tokens import is_boundary
from latentheads.corpora.batches import batches
from latentheads.corpora.part import Part, check_part
from latentheads.frames import in_one_line, make_frame
from latentheads.guide import ModelGuide, check_pair
from latentheads.handlers import PlugIn, blocked_from_tracers
from latentheads.inference.bound import traces
from latentheads.inference.evaluation import eval_no_grad
from latentheads.latents.alignments.aligner import Aligner
from latentheads.latents.alignments.distribution import CategoricalParameters
from latentheads.latents.alignments.enumeration import enumerate_alignments
from latentheads.latents.alignments.marginals import head_marginals
from latentheads.latents.handlers import WithSelection
from latentheads.metrics.alignment import (
    LinkCounts,
    Links,
    count_by_sentence,
    count_links,
    score_interval,
)
from latentheads.model import HeadModel
from latentheads.names import Block

if TYPE_CHECKING:
    import pandas as pd

DISTRIBUTIONS = ("prior", "guide", "posterior")
"""Distributions over the position that a head points at, in the order of the report."""

SOFT = "soft"
"""The attention weights of deterministic (soft) alignment heads."""

ATTENTION = ("attention before", "attention after")
"""Cross-attention at the step that predicts a word, and at the next step, whose input is it."""

UNION = "all heads"
"""The union of the links of all heads."""

BATCH_TOKENS = 1024
"""Tokens per batch; the memory of two heads grows with the square of the source length."""


@dataclass(frozen=True)
class AlignmentDistributions:
    """Marginal distributions over positions, for each alignment head and target word.

    :func:`latentheads.contrib.heads.name_positions` names the keys.

    Attributes:
        heads: Names of the heads of all blocks, bottom to top.
        prior: Under the prior, which is not conditioned on the word.
        guide: Under the guide.
        posterior: Under the exact posterior (Bayes' rule).
        first_position: Index of the first key that is a position: 1 after null or generate.
    """

    heads: tuple[str, ...]
    prior: Float[Tensor, "batch head target key"]
    guide: Float[Tensor, "batch head target key"]
    posterior: Float[Tensor, "batch head target key"]
    first_position: int = 0

    __repr__ = in_one_line

    def to_frame(self) -> pd.DataFrame:
        """A row for each sentence, head, target token and key, with the three probabilities."""
        sentences, heads, targets, keys = torch.meshgrid(
            *map(torch.arange, self.posterior.shape), indexing="ij"
        )
        indices = {"sentence": sentences, "target": targets, "key": keys}
        columns = {name: index.flatten() for name, index in indices.items()}
        names = [self.heads[index] for index in heads.flatten().tolist()]
        probabilities = {name: getattr(self, name).flatten() for name in DISTRIBUTIONS}
        return make_frame({**columns, "head": names, **probabilities})


def alignment_distributions(
    model: HeadModel, guide: ModelGuide, batch: Batch
) -> AlignmentDistributions:
    """Computes the distributions over positions exactly, without sampling.

    All other latent heads are set to the location of the guide's posterior.

    Args:
        model: A model with latent alignments, or with a copy head.
        guide: Its guide.
        batch: The sentences, with their target.
    """
    check_batch(batch)
    check_pair(model, guide)
    heads = model.output_heads
    if heads is None or not model.samples_alignments:
        raise ValueError("this model has no latent alignments, and so no posterior over them")
    device_batch = batch.to(model.device)
    with eval_no_grad(model, guide), blocked_from_tracers(), PlugIn(), WithSelection(guide):
        enumeration = enumerate_alignments(*traces(model, guide, device_batch))
        exact = enumeration.inference
        distributions = (exact.priors, enumeration.posterior, exact.posterior())
        marginals = [heads.by_position(head_marginals(blocks)) for blocks in distributions]
    first_position = int(heads.no_position is not None)
    prior, posterior, exact_posterior = marginals
    names = _name_heads(heads.addresses)
    return AlignmentDistributions(names, prior, posterior, exact_posterior, first_position)


def _name_heads(blocks: Sequence[Block]) -> tuple[str, ...]:
    """Names the heads of some blocks."""
    return tuple(f"{block.name} head {head}" for block in blocks for head in range(block.heads))


def _soft_weights(
    model: HeadModel, guide: ModelGuide, batch: Batch
) -> tuple[tuple[str, ...], Float[Tensor, "batch head target key"]]:
    """Computes the names and the attention weights of the heads of a deterministic aligner."""
    aligner = model.find_latent(Aligner)
    assert aligner is not None
    recorded: list[Sequence[CategoricalParameters]] = []
    hook = aligner.register_forward_pre_hook(
        lambda _, inputs: recorded.append(aligner.prepare(*inputs[:3]).priors)
    )
    try:
        with eval_no_grad(model), blocked_from_tracers(), PlugIn(), WithSelection(guide):
            model.token_distribution(batch.to(model.device))
    finally:
        hook.remove()
    return _name_heads(aligner.all_addresses), head_marginals(recorded[0])


def target_words(batch: Batch) -> Bool[Tensor, "batch target"]:
    """True at the target's words, which get links."""
    return batch.scored_mask & ~is_boundary(batch.scored, batch.boundary_ids)


def _source_words(batch: Batch, tagged: bool) -> Bool[Tensor, "batch key"]:
    """True at the source's words; the first token may be a tag."""
    if batch.source is None:
        raise ValueError("links are between a source and a target, and this batch has no source")
    is_word = batch.source_valid & ~is_boundary(batch.source, batch.boundary_ids)
    is_word[:, 0] &= not tagged
    return is_word


def likeliest_links(
    weights: Float[Tensor, "batch head target key"],
    batch: Batch,
    *,
    tagged: bool = False,
    first_position: int = 0,
) -> list[list[Links]]:
    """Links each target word to its most likely source word, for each head.

    Where key 0 is no position, words for which it has most of the probability get no link.

    Args:
        weights: Probability of each position for each target word; NaN for an inactive head, which
            gets no links.
        batch: The sentences.
        tagged: Whether the source's first token is a tag.
        first_position: Index of the first key that is a position.

    Returns:
        For every sentence, for every head, pairs of a source and a target token index.

    Raises:
        ValueError: The batch has no source.
    """
    key_is_word = _source_words(batch, tagged).to(weights.device)
    is_linked = target_words(batch).to(weights.device) & key_is_word.any(-1, keepdim=True)
    active = is_linked.unsqueeze(1) & ~weights.isnan().any(-1)
    active = active & (weights[..., :first_position].sum(-1) <= 0.5)
    weights = weights[..., first_position:]
    best_keys = weights.masked_fill(~key_is_word[:, None, None], -1.0).argmax(-1).tolist()
    return [
        [
            frozenset((key, query) for query, key in enumerate(row) if linked[query])
            for row, linked in zip(rows, linked_of_heads, strict=True)
        ]
        for rows, linked_of_heads in zip(best_keys, active.tolist(), strict=True)
    ]


@dataclass(frozen=True)
class LinkScore:
    """Agreement of the links of one head with gold links.

    Attributes:
        distribution: What the links were taken from: one of ``DISTRIBUTIONS``, ``SOFT``, or one of
            ``ATTENTION``.
        head: The head, or ``UNION`` for the links of all heads together.
        counts: Counts of predicted and gold links, over all sentences.
        by_sentence: The same of each sentence.
    """

    distribution: str
    head: str
    counts: LinkCounts
    by_sentence: tuple[LinkCounts, ...] = field(default=(), repr=False)

    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the alignment error rate, by bootstrap over sentences.

        It is too narrow for fewer than 30 sentences, and too low for a head chosen on them.
        NaN of less than two sentences, without any error or right link, and where a resample has no
        links.
        """
        return self._interval

    @cached_property
    def _interval(self) -> tuple[float, float]:
        return score_interval(self.by_sentence)


class _LinkCollector:
    """Predicted and gold links of a part's sentences, by distribution and head."""

    def __init__(self, part: Part) -> None:
        if not part.links:
            raise ValueError("part has no links: only the grammar has gold alignments")
        self.part, self.tagged = part, part.mixture is not None and bool(part.mixture.tags)
        self._predicted: dict[tuple[str, str], list[Links]] = defaultdict(list)
        self._gold: dict[tuple[str, str], list[Links]] = defaultdict(list)

    def add(
        self,
        distribution: str,
        heads: Sequence[str],
        weights: Tensor,
        batch: Batch,
        first_position: int = 0,
    ) -> None:
        """Adds the links of a batch."""
        links = likeliest_links(weights, batch, tagged=self.tagged, first_position=first_position)
        for index, links_of_heads in zip(batch.sentences.tolist(), links, strict=True):
            for head, head_links in zip(heads, links_of_heads, strict=True):
                self._append((distribution, head), head_links, index)
            if distribution not in ATTENTION and len(heads) > 1:
                self._append((distribution, UNION), frozenset().union(*links_of_heads), index)

    def _append(self, key: tuple[str, str], links: Links, index: int) -> None:
        self._predicted[key].append(links)
        self._gold[key].append(self.part.links[index])

    def result(self) -> list[LinkScore]:
        """The scores, by distribution and then by head."""
        order = [*DISTRIBUTIONS, SOFT, *ATTENTION]
        keys = sorted(self._predicted, key=lambda key: order.index(key[0]))
        return [self._score(*key) for key in keys]

    def _score(self, distribution: str, head: str) -> LinkScore:
        predicted, gold = (links[distribution, head] for links in (self._predicted, self._gold))
        by_sentence = tuple(count_by_sentence(predicted, gold))
        return LinkScore(distribution, head, count_links(predicted, gold), by_sentence)


def score_alignments(model: HeadModel, guide: ModelGuide, part: Part) -> list[LinkScore]:
    """Scores the alignments of prior, guide and exact posterior against gold links.

    Args:
        model: A model with alignments.
        guide: Its guide.
        part: Sentences with gold links, such as those of the grammar.

    Returns:
        A score for each distribution and head, and with several heads one for the union of their
        links. For a deterministic aligner the only distribution is ``SOFT``.
    """
    check_part(part)
    check_pair(model, guide)
    links = _LinkCollector(part)
    aligner = model.find_latent(Aligner)
    soft = aligner is not None and aligner.soft
    for batch in batches(part, BATCH_TOKENS, shuffle=False):
        if soft:
            links.add(SOFT, *_soft_weights(model, guide, batch), batch)
            continue
        distributions = alignment_distributions(model, guide, batch)
        for name in DISTRIBUTIONS:
            weights, first_position = getattr(distributions, name), distributions.first_position
            links.add(name, distributions.heads, weights, batch, first_position)
    return links.result()


def score_attention(
    model: HeadModel, part: Part, guide: ModelGuide | None = None
) -> list[LinkScore]:
    """Scores every cross-attention head at both decoder steps; see ``ATTENTION``.

    Args:
        model: The model; its heads are set to their prior's location.
        part: Sentences with gold links.
        guide: Selects the heads of a model with a latent selection.

    Returns:
        A score for each head at both steps; empty for a model without cross-attention.
    """
    check_part(part)
    if guide is not None:
        check_pair(model, guide)
    links = _LinkCollector(part)
    with WithSelection(guide):
        for batch, heads, weights in _cross_weights(model, part):
            before, after = ATTENTION
            links.add(before, heads, weights, batch)
            links.add(after, heads, weights.roll(-1, -2), batch)
    return links.result()


def _cross_weights(
    model: HeadModel, part: Part
) -> Iterator[tuple[Batch, tuple[str, ...], Float[Tensor, "batch head target key"]]]:
    """Yields the names and weights of all cross-attention heads, batch by batch."""
    for batch, recorded in record_heads(model, batches(part, BATCH_TOKENS, shuffle=False)):
        blocks = [
            block for block in recorded.attention_blocks if block.attention_type == "decoder-cross"
        ]
        if blocks:
            weights = torch.cat([recorded[block.name].weights for block in blocks], 1)
            yield batch, _name_heads(blocks), weights


def score_best_attention(
    model: HeadModel, valid: Part, part: Part, guide: ModelGuide | None = None
) -> list[LinkScore]:
    """Scores the cross-attention head with the lowest error rate on validation.

    Args:
        model: The model.
        valid: Sentences on which the head is chosen; of equal heads the first.
        part: Sentences on which it is scored; on those of ``valid`` its error rate is too low.
        guide: Selects the heads of a model with a latent selection.

    Returns:
        The score of the best head at both steps; empty for a model without cross-attention.
    """
    valid_scores, scores = score_attention(model, valid, guide), score_attention(model, part, guide)
    best = []
    for distribution in ATTENTION:
        candidates = [score for score in valid_scores if score.distribution == distribution]
        if candidates:
            head = min(candidates, key=_error_of).head
            best += [s for s in scores if (s.distribution, s.head) == (distribution, head)]
    return best


def _error_of(score: LinkScore) -> float:
    """The alignment error rate; 1, the worst, without any link."""
    return 1.0 if math.isnan(score.counts.aer) else score.counts.aer
