"""Links of words from the cross-attention of a translation network, without a label.

    python experiments/run.py --recipe transformer --data hansards ... --out runs/plain
    python experiments/studies/bench_word_links.py runs/plain data/hansards --out links.json

``lh.alignment_heads`` looks at words of a source in place of moments of a sound: its profiles say
which heads attend to the word that is translated, how many words beside it, and at which step of
the decoder; a chain of jumps between source words is summed out. It is learned from the first lines
of the training text. Beside it stand the best head by itself, and the mean of all heads and of the
best four, each at the step that predicts a word and at the step that reads it. Whatever is chosen,
by ``trial`` alone: the best heads, the number of heads, and the draws that attention counts as.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import latentheads.experiments.cli.startup  # noqa: F401

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.contrib.heads.alignment_heads import AlignmentHeads, fit_alignment_heads
from latentheads.contrib.heads.boundary_chain import jump_chain
from latentheads.contrib.heads.boundary_fit import FitOptions
from latentheads.contrib.heads.record import record_heads
from latentheads.contrib.heads.switch import label_head
from latentheads.contrib.heads.word_attention import Head, WordAttention
from latentheads.corpora.batches import batches
from latentheads.corpora.text import read_lines
from latentheads.experiments.cli.errors import error_handling
from latentheads.experiments.cli.parser import Parser
from latentheads.experiments.studies.word_aligners.measures import Gold, measure_links, read_gold
from latentheads.files import write_text
from latentheads.metrics.alignment import Links, count_links
from latentheads.runs.generation import encode_pairs, raise_on_skip
from latentheads.runs.loading import load_run
from latentheads.runs.run import Run

COUNTS = (1.0, 2.0, 4.0)
"""Draws that the attention of a word may count as."""

VIEWS = (4, 8, 12)
"""Numbers of views, a head at one of two steps, that may be chosen."""

STEPS = ("predicts", "reads")
RESAMPLES = 2000


@dataclass(frozen=True)
class Text:
    """Pairs of lines with what heads attend to, and their manual links if there are any.

    Attributes:
        attentions: The attention of every head in both views at each target word; positions are
            source words.
        gold: The manual links.
    """

    attentions: Sequence[WordAttention]
    gold: Gold | None = None


def record_text(run: Run, sources: Sequence[str], targets: Sequence[str]) -> list[WordAttention]:
    """The attention of every head of cross-attention between the words of each pair of lines."""
    encoded = encode_pairs(run.trained_model, sources, targets, None, raise_on_skip)
    if len(encoded.indices) != len(sources):
        raise ValueError("every line must have words on both sides, and not too many")
    words: dict[int, WordAttention] = {}
    parts = batches(encoded.part, 2048, shuffle=False)
    for batch, recorded in record_heads(run.model, parts):
        blocks = [b for b in recorded.attention_blocks if b.attention_type == "decoder-cross"]
        weights = torch.cat([recorded[block.name].weights for block in blocks], 1)
        assert batch.source is not None
        for row, index in enumerate(batch.sentences.tolist()):
            word_ids = (
                run.trained_model.source.word_ids(batch.source[row].tolist()),
                run.trained_model.target.word_ids(batch.target[row].tolist()),
            )
            words[index] = join_words(weights[row].double(), *word_ids)
    return [words[index] for index in range(len(sources))]


def join_words(
    weights: Float[Tensor, "head token key"],
    source: Sequence[int | None],
    target: Sequence[int | None],
) -> WordAttention:
    """Attention between words, given that between tokens, whose words are given."""
    heads = len(weights)
    keys = torch.zeros(weights.shape[-1], 1 + max(w for w in source if w is not None))
    for token, word in enumerate(source):
        if word is not None:
            keys[token, word] = 1
    tokens: dict[int, list[int]] = {}
    for token, word in enumerate(target):
        if word is not None:
            tokens.setdefault(word, []).append(token)
    rows = [tokens[word] for word in sorted(tokens)]
    by_word = weights @ keys.double()
    # step t predicts token t, and step t + 1 reads it
    predicts = torch.stack([by_word[:, row[0]] for row in rows], 1)
    reads = torch.stack([by_word[:, row[-1] + 1] for row in rows], 1)
    unknown = torch.full((len(rows),), torch.nan, dtype=torch.float64)
    assert len(predicts) == heads
    return WordAttention(torch.cat([predicts, reads]), unknown, unknown)


def read_text(run: Run, folder: Path, part: str, lines: int | None = None) -> Text:
    """The attention of a part of a folder of pairs, with its links if it has any."""
    data = run.settings.data
    sides = [
        list(read_lines(folder / f"{part}.{language}"))[:lines]
        for language in (data.source, data.target)
    ]
    links = folder / f"{part}.links"
    return Text(record_text(run, *sides), read_gold(links) if links.exists() else None)


def link_likeliest(scores: Sequence[Float[Tensor, "word position"]]) -> list[Links]:
    """Links every target word with its likeliest source word."""
    return [frozenset((int(key), word) for word, key in enumerate(s.argmax(-1))) for s in scores]


def mean_views(text: Text, views: Sequence[int]) -> list[Tensor]:
    """The mean attention of some views."""
    return [attention.weights[list(views)].mean(0) for attention in text.attentions]


def posteriors(heads: AlignmentHeads, text: Text) -> list[Tensor]:
    """The exact posterior of the source word of every target word."""
    return [
        heads.model.marginals(heads.model.posterior(attention, False))[0]
        for attention in text.attentions
    ]


def aer(links: Sequence[Links], gold: Gold) -> float:
    """The alignment error rate."""
    return count_links(links, gold.sure, gold.possible).aer


def fit(heads: Sequence[Head], text: Text, counts: float, views: int) -> AlignmentHeads:
    """Alignment heads of unlabelled text."""
    options = FitOptions(views=views, reach=4, width=0.3, counts=counts)
    chain = jump_chain()
    return fit_alignment_heads(heads, text.attentions, options=options, chain=chain)


def score_views(text: Text) -> Float[Tensor, " view"]:
    """The alignment error rate of every view by itself."""
    assert text.gold is not None
    number = len(text.attentions[0].weights)
    rates = [aer(link_likeliest(mean_views(text, [view])), text.gold) for view in range(number)]
    return torch.tensor(rates)


def measure(systems: dict[str, Sequence[Tensor]], gold: Gold) -> dict[str, Any]:
    """The scores of every system, each with the interval of its difference to the first."""
    links = {name: link_likeliest(scores) for name, scores in systems.items()}
    first, *_ = links
    rng = np.random.default_rng(0)
    draws = rng.integers(len(gold.sure), size=(RESAMPLES, len(gold.sure)))
    counts = {name: _line_counts(found, gold) for name, found in links.items()}
    rows = {}
    for name in links:
        difference = _rates(counts[name], draws) - _rates(counts[first], draws)
        low, high = np.quantile(difference, (0.025, 0.975))
        rows[name] = measure_links(links[name], gold) | {
            "aer_less_first": [
                round(float(value), 5)
                for value in (aer(links[name], gold) - aer(links[first], gold), low, high)
            ]
        }
    return rows


def _line_counts(links: Sequence[Links], gold: Gold) -> np.ndarray:
    """Sure and possible links that are found, and all links, of each line."""
    rows = zip(links, gold.sure, gold.possible, strict=True)
    return np.array([(len(a & s) + len(a & p), len(a) + len(s)) for a, s, p in rows])


def _rates(counts: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Alignment error rates of resampled lines."""
    right, total = counts[draws].sum(1).T
    return 1 - right / total
