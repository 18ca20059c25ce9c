"""Labels for the queries and keys of a block, and for the positions of alignment heads."""

from __future__ import annotations

from collections.abc import Iterable

from latentheads.batch import SPECIALS, Batch
from latentheads.contrib.heads.tokens import NO_TOKEN, attention_tokens
from latentheads.contrib.speech.vocabulary import Positions
from latentheads.corpora.vocabulary import Vocabulary
from latentheads.latents.output_heads import OutputHeads
from latentheads.names import side_of

SPACE = "␣"
"""The symbol for a token that is a space."""


def name_tokens(vocabulary: Vocabulary, tokens: Iterable[int]) -> list[str]:
    """Labels each token, special ones too; a position of speech is labelled with its time.

    Without a vocabulary of positions, sound is labelled with the number of each.
    """
    if isinstance(vocabulary, Positions):
        return vocabulary.time_labels(sum(1 for _ in tokens))
    return [
        str(position) if token == NO_TOKEN else _name_token(vocabulary, token)
        for position, token in enumerate(tokens)
    ]


def _name_token(vocabulary: Vocabulary, token: int) -> str:
    if token < len(SPECIALS):
        return SPECIALS[token]
    return _show_text(vocabulary.token_text(token))


def _show_text(text: str) -> str:
    """Makes a text visible: a symbol for a space, an escape for unprintable characters."""
    visible = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return visible if visible.strip() else SPACE * max(1, len(visible))


def name_queries_and_keys(
    batch: Batch, attention_type: str, source: Vocabulary | None, target: Vocabulary, index: int = 0
) -> tuple[list[str], list[str]]:
    """Labels the tokens at the queries and at the keys of an attention type, without padding.

    Args:
        batch: The sentences.
        attention_type: One of ``ATTENTION_TYPES``.
        source: The vocabulary of the source; None for a language model.
        target: The vocabulary of the target.
        index: Index of the sentence in the batch.
    """
    tokens = attention_tokens(batch, attention_type)
    query_vocabulary = source or target if side_of(attention_type) == "encoder" else target
    key_vocabulary = target if attention_type == "decoder-self" else source or target
    queries = tokens.queries[index][tokens.valid_queries[index]]
    keys = tokens.keys[index][tokens.valid_keys[index]]
    labels = name_tokens(query_vocabulary, queries.tolist())
    return labels, name_tokens(key_vocabulary, keys.tolist())


def name_positions(
    batch: Batch,
    source: Vocabulary | None,
    target: Vocabulary,
    heads: OutputHeads,
    index: int = 0,
) -> list[str]:
    """Labels the positions that heads above a decoder may point at, without padding.

    The first may be none: null, for pointing at no word, or generate. Positions of a language model
    are the earlier decoder states, named by their input tokens, beginning with BOS, or by the
    tokens that a copy head may copy.

    Args:
        batch: The sentences.
        source: The vocabulary of the source; None for a language model.
        target: The vocabulary of the target.
        heads: The heads.
        index: Index of the sentence in the batch.
    """
    first = [] if heads.no_position is None else [heads.no_position]
    if source is not None and batch.source is not None:
        token_ids = batch.source[index][batch.source_valid[index]].tolist()
        return first + name_tokens(source, token_ids)
    token_ids = heads.position_tokens(batch)[index][batch.target_valid[index]].tolist()
    return first + name_tokens(target, token_ids[:-1])
