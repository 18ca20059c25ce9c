"""Names of the tokens at the queries and keys of a block, and where alignments may point."""

from __future__ import annotations

from collections.abc import Iterable

from latentheads.analysis.sides import sides
from latentheads.batch import SPECIALS, Batch
from latentheads.corpora.speech.vocabulary import Positions
from latentheads.corpora.vocabulary import Tagged, Vocabulary
from latentheads.names import side_of

__all__ = ["name_positions", "name_sides", "name_tokens"]

NULL = "null"
"""The name of the position at which a word of a language model points at no word."""

SPACE = "␣"
"""The sign for a token that is a space alone."""


def name_tokens(vocabulary: Vocabulary, tokens: Iterable[int]) -> list[str]:
    """A name for each token, special ones too; for a position of speech its time."""
    if isinstance(vocabulary, Positions):
        return vocabulary.name_places(sum(1 for _ in tokens))
    return [_name_token(vocabulary, token) for token in tokens]


def _name_token(vocabulary: Vocabulary, token: int) -> str:
    if token < len(SPECIALS):
        return SPECIALS[token]
    if isinstance(vocabulary, Tagged) and token >= len(vocabulary.plain):
        return vocabulary.tags[token - len(vocabulary.plain)]
    return _show_text(vocabulary.decode([token]))


def _show_text(text: str) -> str:
    """A text made visible: a sign for a space, an escape for what cannot be printed."""
    shown = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
    return shown if shown.strip() else SPACE * max(1, len(shown))


def name_sides(
    batch: Batch, chain: str, source: Vocabulary | None, target: Vocabulary, place: int = 0
) -> tuple[list[str], list[str]]:
    """The tokens read at the queries and at the keys of a chain, without padding.

    Args:
        batch: The sentences.
        chain: One of ``ATTENTION_TYPES``.
        source: The vocabulary of the source; None of a language model.
        target: The vocabulary of the target.
        place: Which sentence of the batch.
    """
    known = sides(batch, chain)
    of_queries = source or target if side_of(chain) == "encoder" else target
    of_keys = target if chain == "decoder-self" else source or target
    queries = known.queries[place][known.real_queries[place]]
    keys = known.keys[place][known.real_keys[place]]
    return name_tokens(of_queries, queries.tolist()), name_tokens(of_keys, keys.tolist())


def name_positions(
    batch: Batch, source: Vocabulary | None, target: Vocabulary, place: int = 0
) -> list[str]:
    """What stands at the positions that heads of alignments may point at, without padding.

    In a language model the first is null, where a word points at no word; each further one is the
    state that has read a token, BOS before all others.

    Args:
        batch: The sentences.
        source: The vocabulary of the source; None of a language model.
        target: The vocabulary of the target.
        place: Which sentence of the batch.
    """
    if source is None or batch.source is None:
        read = batch.fed[place][batch.target_valid[place]].tolist()
        return [NULL, *name_tokens(target, read[:-1])]
    return name_tokens(source, batch.source[place][batch.source_valid[place]].tolist())
