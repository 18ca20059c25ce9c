"""Posteriors of links from two translation networks with latent alignments, one a direction."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from latentheads.batch import UNK, Batch
from latentheads.contrib.align.api import AlignedText, list_lines
from latentheads.contrib.align.symmetrization import LinkPosterior
from latentheads.contrib.heads.alignments import alignment_distributions, target_words
from latentheads.contrib.heads.word_alignment import check_alignments, name_spaces
from latentheads.corpora.vocabulary import Vocabulary
from latentheads.runs.generation import encode_pairs
from latentheads.runs.loading import open_run
from latentheads.runs.trained_model import TrainedModel

Table = Float[ndarray, "source target"]

FIRST_LINES = 1000
"""Lines by which the direction of networks is checked."""


def align_by_networks(
    source: Sequence[str],
    target: Sequence[str],
    forward: TrainedModel | str | Path,
    backward: TrainedModel | str | Path,
) -> AlignedText:
    """Aligns the words of lines by the exact posteriors of two translation networks.

    The probability of a link is that of the likeliest token of the generated word, over all heads,
    to point at any token of the other word.

    Args:
        source: Lines in one language.
        target: The translation of each.
        forward: A model that translates the source, such as a run; or the folder of a run.
        backward: One that translates the target.

    Raises:
        ValueError: A model has no alignments, both translate in one direction, or the texts differ
            in their number of lines.

    Warns:
        UserWarning: The texts fit the networks better if they are swapped.
    """
    source, target = list_lines(source, target)
    forward, backward = (
        model if isinstance(model, TrainedModel) else open_run(model)
        for model in (forward, backward)
    )
    check_directions(forward, backward)
    if _are_swapped(forward, source[:FIRST_LINES], target[:FIRST_LINES]):
        warnings.warn(
            f"{forward.name} does not seem to translate the source to the target: its vocabularies "
            "fit better if texts are swapped, or networks",
            stacklevel=2,
        )
    skipped: dict[int, str] = {}
    lengths = [(len(left.split()), len(right.split())) for left, right in zip(source, target)]
    tables = [
        _link_words(forward, source, target, lengths, skipped),
        _link_words(backward, target, source, [shape[::-1] for shape in lengths], skipped),
    ]
    unknown = math.nan, math.nan
    posteriors = [
        LinkPosterior.unknown(*lengths[index])
        if index in skipped or not all(lengths[index])
        else LinkPosterior(ahead, back.T, unknown)
        for index, (ahead, back) in enumerate(zip(*tables, strict=True))
    ]
    return AlignedText(posteriors, None, skipped)


def check_directions(forward: TrainedModel, backward: TrainedModel) -> None:
    """Checks that two models have alignments, and do not translate in the same direction."""
    for trained in (forward, backward):
        check_alignments(trained)
        heads = trained.model.output_heads
        if heads is not None and heads.copies:
            raise ValueError(f"{trained.name} has copy heads: give a run with latent alignments")
    direction = forward.processor.direction
    if direction and direction == backward.processor.direction:
        raise ValueError(
            f"{forward.name} and {backward.name} both translate {direction}: give a run of each "
            "direction"
        )


def _are_swapped(forward: TrainedModel, source: Sequence[str], target: Sequence[str]) -> bool:
    """Whether the vocabularies of a network fit both texts better if these are swapped.

    Vocabularies that fit have fewer tokens, and fewer unknown ones; a joint one fits both alike.
    """

    def cost(vocabulary: Vocabulary, lines: Sequence[str]) -> int:
        tokens = vocabulary.encode_all(lines).tokens
        return len(tokens) + int((tokens == UNK).sum())

    assert forward.source is not None
    own = cost(forward.source, source), cost(forward.target, target)
    swapped = cost(forward.source, target), cost(forward.target, source)
    return sum(own) > sum(swapped)


def _link_words(
    trained: TrainedModel,
    source: Sequence[str],
    target: Sequence[str],
    lengths: Sequence[tuple[int, int]],
    skipped: dict[int, str],
) -> list[Table]:
    """The probability of every link of each line in one direction."""

    def skip(index: int, reason: str) -> None:
        skipped[index] = reason

    encoded = encode_pairs(trained, source, target, None, skip)
    tables = encoded.map_batches(partial(_link_batch, trained), None, skip)
    return [
        np.zeros(shape) if table is None else _fit(table, shape)
        for table, shape in zip(tables, lengths, strict=True)
    ]


def _fit(table: Table, shape: tuple[int, int]) -> Table:
    """A table with all words of a line, also those at its end that have no token."""
    fitted = np.zeros(shape)
    source, target = np.minimum(table.shape, shape)
    fitted[:source, :target] = table[:source, :target]
    return fitted


def _link_batch(trained: TrainedModel, batch: Batch) -> list[Table | None]:
    """The probability of every link of the sentences of a batch."""
    assert trained.source is not None
    assert batch.source is not None
    distributions = alignment_distributions(trained.model, trained.guide, batch)
    posterior = distributions.posterior[..., distributions.first_position :]
    is_word = target_words(batch)
    tables: list[Table | None] = []
    for row in range(len(posterior)):
        source = name_spaces(trained.source.word_ids(batch.source[row].tolist()))
        target = [
            word if counts else None
            for word, counts in zip(
                trained.target.word_ids(batch.scored[row].tolist()), is_word[row].tolist()
            )
        ]
        tables.append(_join(posterior[row].double().cpu().nan_to_num(), source, target))
    return tables


def _join(
    posterior: Float[Tensor, "head target key"],
    source: Sequence[int | None],
    target: Sequence[int | None],
) -> Table:
    """Sums tokens of source words, and takes the likeliest token of target words and head."""
    shape = [1 + max((w for w in words if w is not None), default=-1) for words in (source, target)]
    keys = torch.zeros(len(source), shape[0], dtype=posterior.dtype)
    for token, word in enumerate(source):
        if word is not None:
            keys[token, word] = 1
    likeliest = (posterior[..., : len(source)] @ keys).amax(0).clamp(max=1)
    table = np.zeros(shape)
    for token, word in enumerate(target):
        if word is not None:
            table[:, word] = np.maximum(table[:, word], likeliest[token].numpy())
    return table
