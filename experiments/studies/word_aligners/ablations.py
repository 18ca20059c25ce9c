"""What each part of the aligner contributes: error rates on trial with that part changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from latentheads.contrib.align import aligner, bitext, lexicon, training
from latentheads.contrib.align.aligner import infer_posteriors, train_aligner
from latentheads.contrib.align.bitext import Bitext, PairBatch
from latentheads.contrib.align.counts import CountTable
from latentheads.contrib.align.lexicon import Lexicon, TranslationTable
from latentheads.contrib.align.model import LinkModel
from latentheads.contrib.align.spelling import Spelling, make_spelling
from latentheads.contrib.align.symmetrization import LinkPosterior, select_links
from latentheads.contrib.align.tokenization import TokenizedLine
from latentheads.contrib.align.training import AlignerOptions, Training
from latentheads.contrib.align.vocabulary import Words
from latentheads.experiments.studies.word_aligners.measures import Gold
from latentheads.metrics.alignment import Links, count_links
from latentheads.metrics.resampling import (
    RESAMPLES,
    SEED,
    Counts,
    Resamples,
    resample_counts,
)

METHODS = ("product", "grow", "grow-diag-final-and")
"""Symmetrizations whose error rates are written."""

IBM1_PASSES = 5

AGREEMENT_STEPS, AGREEMENT_RATE = 10, 2.0
"""Steps of gradient ascent, and their size, by which posteriors are made to agree."""

Pairs = Sequence[tuple[Words, Words]]


@dataclass(frozen=True)
class Ablation:
    """A change of the aligner.

    Attributes:
        options: Options of training that differ.
        replaced: Parts of the library that are replaced: owner, name and value.
        agreed: Whether the posteriors of both directions are made to agree after training.
    """

    options: dict[str, Any] = field(default_factory=dict)
    replaced: tuple[tuple[Any, str, Any], ...] = ()
    agreed: bool = False


def _uniform(prior: Lexicon, text: Bitext) -> TranslationTable:
    """A table whose words are all alike."""
    null = torch.full_like(prior.unigram, 1 / len(prior.unigram))
    links = null.new_full((prior.pairs.entries,), 1 / len(null))
    return TranslationTable(torch.nn.functional.pad(links, (0, 1)), null)


def _ibm1(prior: Lexicon, text: Bitext) -> TranslationTable:
    """The table of IBM model 1 after some passes from uniform translations."""
    table = _uniform(prior, text)
    pairs = text.pairs
    spelling = make_spelling(
        pairs.source.words, pairs.target.words, pairs.pair_source, pairs.pair_target
    )
    for _ in range(IBM1_PASSES):
        links, null = torch.zeros_like(table.links), prior.new_null()
        for batch in text.batches:
            linked, without = table.linked(batch), table.without_link(batch)
            total = linked.sum(-1, keepdim=True) + without
            links.index_add_(0, batch.entries.flatten(), (linked / total).flatten())
            unlinked = (without / total)[..., 0] * batch.target_mask
            null.index_add_(0, batch.target.clamp(min=0).flatten(), unlinked.flatten())
        table = prior.variational(CountTable(pairs, spelling, links), null)
    return table


def _nothing_alike(
    source: Sequence[str], target: Sequence[str], pair_source: Tensor, pair_target: Tensor
) -> Spelling:
    """No two words are spelt alike."""
    numbers = (torch.zeros(len(side), dtype=torch.int32) for side in (source, target))
    return Spelling(torch.zeros(len(pair_source), dtype=torch.bool), *numbers)


def _product(forward: Tensor, backward: Tensor) -> Tensor:
    """The product of both directions' posteriors, without the square root."""
    return forward * backward.mT


def _start(
    table: Callable[[Lexicon, Bitext], TranslationTable],
) -> tuple[tuple[Any, str, Any], ...]:
    return ((Lexicon, "associations", table),)


ABLATIONS: dict[str, Ablation] = {
    "the aligner": Ablation(),
    "each direction alone: agreement 0": Ablation({"agreement": 0.0}),
    "product of posteriors, without the square root": Ablation(
        replaced=((training, "geometric_mean", _product),)
    ),
    "start: IBM model 1": Ablation(replaced=_start(_ibm1)),
    "start: uniform translations": Ablation(replaced=_start(_uniform)),
    "no line left out": Ablation({"leave_one_out": 0}),
    "lines left out in the last E step alone": Ablation({"leave_one_out": 1}),
    "lines left out in all passes": Ablation({"leave_one_out": 7}),
    "no back-off to prefixes": Ablation(replaced=((bitext, "PREFIXES", (0,)),)),
    "prefix classes of concentration 5": Ablation(
        replaced=((lexicon, "CLASS_CONCENTRATION", 5.0),)
    ),
    "null of concentration 1,000": Ablation(replaced=((lexicon, "NULL_CONCENTRATION", 1000.0),)),
    "no prior for words spelt alike": Ablation(
        replaced=((training, "make_spelling", _nothing_alike),)
    ),
    "mean of the Dirichlet, not its variational posterior": Ablation(
        replaced=((Lexicon, "variational", Lexicon.predictive),)
    ),
    "no word for the end of sentences": Ablation(replaced=((aligner, "mark_ends", list),)),
    "jumps independent of the word": Ablation({"jump_smoothing": 1e9}),
    "jumps of each word smoothed by 60": Ablation({"jump_smoothing": 60.0}),
    "prior probability of no link .1": Ablation({"null_probability": 0.1}),
    "4 passes": Ablation({"iterations": 4}),
    "8 passes": Ablation({"iterations": 8}),
    "10 passes": Ablation({"iterations": 10}),
    "posteriors made to agree after training": Ablation(agreed=True),
}
"""Changes of the aligner by name; the first changes nothing."""


def measure_ablations(
    pairs: Pairs,
    part: slice,
    gold: Gold,
    report: Callable[[str], None],
    changes: Sequence[str] = ("",),
) -> dict[str, Any]:
    """Error rates of every ablation, with paired bootstrap intervals over sentence pairs.

    Args:
        pairs: The words of the text to train on.
        part: Which of them have manual links.
        gold: Those links.
        report: Called with a line for each ablation.
        changes: Parts of the names of the ablations that are measured.

    Raises:
        ValueError: No ablation has one of these in its name.
    """
    first_name, *others = ABLATIONS
    names = [name for name in others if any(part_of_name in name for part_of_name in changes)]
    if not names:
        raise ValueError(f"no change is named {' or '.join(changes)}: there are {others}")
    indices = Resamples(part.stop - part.start, RESAMPLES, SEED)
    first: dict[str, Counts] = {}
    rows: dict[str, Any] = {}
    for name in (first_name, *names):
        posteriors = align_ablated(pairs, part, ABLATIONS[name])
        links = {m: [select_links(p, m) for p in posteriors] for m in METHODS}
        counts = {method: count_lines(links[method], gold) for method in METHODS}
        first = first or counts
        rows[name] = {m: compare(counts[m], first[m], indices) for m in METHODS}
        report(f"{name}: {rows[name]}")
    return rows


def align_ablated(pairs: Pairs, part: slice, ablation: Ablation) -> list[LinkPosterior]:
    """Trains an aligner with a change, and aligns some of its sentence pairs."""
    with ExitStack() as stack:
        for owner, name, value in ablation.replaced:
            stack.enter_context(patch.object(owner, name, value))
        _, training = train_aligner(pairs, AlignerOptions(**ablation.options))
        if ablation.agreed:
            return agreed_posteriors(training, pairs, part)
        of_words = TokenizedLine.of_words
        lines = [(of_words(source), of_words(target)) for source, target in pairs]
        posteriors = infer_posteriors(training.bitext.batches, training.models, lines)
        return list(islice(posteriors, part.start, part.stop))


def compare(counts: Counts, first: Counts, indices: Resamples) -> dict[str, Any]:
    """The error rate by the counts of each line, and its difference to another's, in %.

    Args:
        counts: The counts of each line.
        first: Those of the aligner that it is compared with.
        indices: The lines of every resample.
    """
    value, resampled = resample_counts(counts, _aer, indices)
    other, resampled_other = resample_counts(first, _aer, indices)
    low, high = np.quantile(resampled - resampled_other, (0.025, 0.975))
    difference = [round(100 * float(x), 2) for x in (value - other, low, high)]
    return {"aer": round(100 * value, 2), "difference": difference}


def count_lines(links: Sequence[Links], gold: Gold) -> Counts:
    """Links that are sure and possible, and links that are written and sure, of each line."""
    lines = [
        count_links([line], [sure], [possible])
        for line, sure, possible in zip(links, gold.sure, gold.possible, strict=True)
    ]
    return np.array([(c.found_sure + c.found_possible, c.found + c.sure) for c in lines], float)


def _aer(counts: Float[ndarray, " count"]) -> float:
    return 1 - float(counts[0] / counts[1])


@torch.no_grad()
def agreed_posteriors(training: Training, pairs: Pairs, part: slice) -> list[LinkPosterior]:
    r"""The posteriors of both directions of some lines, such that they agree on every link.

    Each direction's weights are multiplied by :math:`e^{\pm\lambda_{st}}`, and :math:`\lambda`
    maximises the dual of the smallest KL to both posteriors under the constraint that all link
    probabilities are equal (Ganchev et al. 2008, https://aclanthology.org/P08-1112).
    """
    posteriors = [LinkPosterior.unknown(len(left), len(right)) for left, right in pairs]
    asked = {*range(len(pairs))[part]}
    for number, batch in enumerate(training.bitext.batches):
        if asked.isdisjoint(batch.indices):
            continue
        forward, backward = _agree(training.models(number), batch)
        for row, index in enumerate(batch.indices):
            source, target = (len(words) for words in pairs[index])
            posteriors[index] = LinkPosterior(
                forward[row, :target, :source].T.numpy(),
                backward[row, :source, :target].numpy(),
                (math.nan, math.nan),
            )
    return posteriors[part]


def _agree(models: tuple[LinkModel, LinkModel], batch: PairBatch) -> tuple[Tensor, Tensor]:
    ahead, back = models[0].posterior(batch), models[1].posterior(batch.reverse())
    shift = torch.zeros_like(ahead.weights.linked)
    forward, backward = ahead.marginals, back.marginals
    for _ in range(AGREEMENT_STEPS):
        shift -= AGREEMENT_RATE * (forward - backward.mT)
        forward = ahead.with_weights(linked=ahead.weights.linked * shift.exp()).marginals
        backward = back.with_weights(linked=back.weights.linked * (-shift.mT).exp()).marginals
    return forward, backward
