"""Heads whose role is known because they were made for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from latentheads.batch import Batch
from latentheads.contrib.heads import AttentionView, Heads, attention_tokens
from latentheads.corpora.grammar import Arc, Sentence, sample
from latentheads.corpora.vocabulary import Words
from latentheads.mask import causal
from latentheads.names import Block

Aim = Callable[[int, int], int | None]
"""The key to which a query of a sentence points; None for none."""

SURE = 9.0


def grammar(size: int = 120, seed: int = 3) -> tuple[list[Sentence], Words, Batch]:
    """Sentences, their words most frequent first, and their batch."""
    sentences = sample(size, seed=seed)
    lines = [" ".join(sentence.source) for sentence in sentences]
    words = Words.count(lines)
    encoded = [words.encode(line) for line in lines]
    return sentences, words, Batch.of(encoded, encoded)


def heads_of(batch: Batch, aims: Sequence[Aim], block: Block, noise: int = 0) -> Heads:
    """Random heads that point where they are told, but for their noise."""
    tokens_read = attention_tokens(batch, block.attention_type)
    (size, queries), keys = tokens_read.queries.shape, tokens_read.keys.shape[1]
    generator = torch.Generator().manual_seed(noise)
    logits = torch.randn(size, len(aims), queries, keys, generator=generator)
    for row in range(size):
        for head, aim in enumerate(aims):
            for query in range(queries):
                key = aim(row, query)
                if key is not None and 0 <= key < keys:
                    logits[row, head, query, key] = SURE
    readable = tokens_read.valid_keys[:, None].expand(-1, queries, -1)
    if block.attention_type == "decoder-self":
        readable = readable & causal(queries)
    bias = torch.zeros(readable.shape).masked_fill(~readable, -torch.inf)[:, None]
    return Heads(block, torch.zeros(size, queries, len(aims)), (logits, bias))


def view_of(
    batch: Batch, aims: Sequence[Aim], chain: str = "encoder-self", noise: int = 0
) -> AttentionView:
    return AttentionView.of(heads_of(batch, aims, Block(chain, 0, len(aims)), noise), batch)


def at_random(row: int, query: int) -> None:
    return None


def at(offset: int) -> Aim:
    return lambda row, query: query + offset


def along(arcs: Sequence[Sequence[Arc]], relation: str, to_dependent: bool, shift: int = 0) -> Aim:
    """Follows a relation, to the last of several words; ``shift`` is where the first word is."""
    tables: list[dict[int, int]] = [{} for _ in arcs]
    for table, own in zip(tables, arcs, strict=True):
        for name, governor, dependent in own:
            if name == relation:
                start, end = (governor, dependent) if to_dependent else (dependent, governor)
                table[start + shift] = end + shift
    return lambda row, query: tables[row].get(query)


def at_rarest(batch: Batch, ranks: Tensor) -> Aim:
    tokens_read = attention_tokens(batch, "encoder-self")
    best = torch.where(tokens_read.counted_keys(), ranks[tokens_read.keys], -1).argmax(-1).tolist()
    return lambda row, query: best[row]
