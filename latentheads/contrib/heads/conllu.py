"""Reads dependencies from a CoNLL-U file and maps the tokens of a vocabulary to its words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from latentheads.corpora.grammar.syntax import Arc
from latentheads.corpora.rows import Rows
from latentheads.corpora.text import iterate_lines
from latentheads.corpora.vocabulary import Vocabulary
from latentheads.errors import shown

COLUMNS = 10
OLD_NAMES = {"obj": "dobj"}
"""Universal Dependencies 2 renamed dobj (direct object) to obj."""


@dataclass(frozen=True)
class ParsedSentence:
    """A sentence and its dependencies.

    Attributes:
        words: Its words.
        arcs: Dependencies between words, from 0; the root has none.
        no_space_after: Whether no space follows each word.
    """

    words: tuple[str, ...]
    arcs: tuple[Arc, ...]
    no_space_after: tuple[bool, ...]

    @property
    def text(self) -> str:
        """The original text, with its spaces."""
        pairs = zip(self.words, self.no_space_after, strict=True)
        return "".join(word if joined else f"{word} " for word, joined in pairs).rstrip(" ")


def read_conllu(path: str | Path) -> list[ParsedSentence]:
    """Reads the sentences of a CoNLL-U file.

    It uses the columns ID, FORM, HEAD, DEPREL and ``SpaceAfter=No`` in MISC. It skips multi-word
    ranges and empty nodes. ``obj`` becomes ``dobj``; a subtype such as ``nsubj:pass`` is a
    relation of its own.

    Raises:
        ValueError: The file is missing or is no CoNLL-U; the message has file and line number.
    """
    path = Path(path)
    sentences: list[ParsedSentence] = []
    rows: list[_Row] = []
    for number, line in enumerate(iterate_lines(path), 1):
        if line and not line.startswith("#"):
            row = _parse_row(line, f"{path}, line {number}", len(rows) + 1)
            rows += [row] if row else []
        elif not line and rows:
            sentences.append(_make_sentence(rows))
            rows = []
    if rows:
        sentences.append(_make_sentence(rows))
    if not sentences:
        raise ValueError(f"{path} holds no sentence")
    return sentences


@dataclass(frozen=True)
class _Row:
    """The line of a word; its governor is counted from 1, 0 is the root."""

    location: str
    form: str
    governor: int
    relation: str
    no_space_after: bool


def _parse_row(line: str, location: str, expected: int) -> _Row | None:
    """Parses a line; returns None for a multi-word range or an empty node."""
    columns = line.split("\t")
    if len(columns) != COLUMNS:
        raise ValueError(
            f"{location}: {COLUMNS} columns between tabs are expected, got {len(columns)}"
        )
    word_id, form, governor, relation, misc = (columns[n] for n in (0, 1, 6, 7, 9))
    if (
        all(part.isdecimal() for part in word_id.replace(".", "-").split("-"))
        and not word_id.isdecimal()
    ):
        return None
    if word_id != str(expected):
        raise ValueError(f"{location}: ID {expected} is expected, got {shown(word_id)}")
    if not governor.isdecimal():
        raise ValueError(f"{location}: HEAD must be the ID of a word or 0, got {shown(governor)}")
    no_space_after = "SpaceAfter=No" in misc.split("|")
    return _Row(location, form, int(governor), OLD_NAMES.get(relation, relation), no_space_after)


def _make_sentence(rows: Sequence[_Row]) -> ParsedSentence:
    arcs = []
    for dependent, row in enumerate(rows):
        if row.governor > len(rows) or row.governor == dependent + 1:
            raise ValueError(
                f"{row.location}: HEAD must be another of the {len(rows)} words or 0, "
                f"got {row.governor}"
            )
        if row.governor:
            arcs.append(Arc(row.relation, row.governor - 1, dependent))
    return ParsedSentence(
        tuple(row.form for row in rows),
        tuple(sorted(arcs)),
        tuple(row.no_space_after for row in rows),
    )


def encode_parsed(
    sentences: Iterable[ParsedSentence], vocabulary: Vocabulary, *, spaced: bool = True
) -> tuple[Rows, list[list[int]]]:
    """Encodes sentences and returns the word index of each token, without EOS.

    Args:
        sentences: The sentences of a CoNLL-U file.
        vocabulary: The vocabulary of the model.
        spaced: Join words with spaces, as for a model of tokenised text; otherwise encode the
            original text. A token then belongs to the word of its last character, and a space to
            the next word.

    Raises:
        ValueError: A token spans two words, or decoding does not return the text.
    """
    token_ids, words_of_tokens = [], []
    for number, sentence in enumerate(sentences, 1):
        encode = _encode_words if spaced else _encode_text
        sentence_ids, word_indices = encode(sentence, vocabulary, f"sentence {number}")
        token_ids.append(sentence_ids)
        words_of_tokens.append(word_indices)
    return Rows.of(token_ids), words_of_tokens


def _encode_words(
    sentence: ParsedSentence, vocabulary: Vocabulary, location: str
) -> tuple[list[int], list[int]]:
    ids_of_words = [vocabulary.encode(word)[:-1] for word in sentence.words]
    token_ids = vocabulary.encode(" ".join(sentence.words))
    joined = [token_id for ids_of_word in ids_of_words for token_id in ids_of_word]
    if joined != token_ids[:-1] or not all(ids_of_words):
        raise ValueError(f"{location}: the vocabulary does not split it at word boundaries")
    return token_ids, [word for word, ids_of_word in enumerate(ids_of_words) for _ in ids_of_word]


def _encode_text(
    sentence: ParsedSentence, vocabulary: Vocabulary, location: str
) -> tuple[list[int], list[int]]:
    token_ids = vocabulary.encode(sentence.text)
    text = vocabulary.decode(token_ids)
    if text.lower() != sentence.text.lower() or len(text) != len(sentence.text):
        raise ValueError(f"{location}: the vocabulary does not decode to {shown(sentence.text)}")
    word_of_character: list[int] = []
    no_space_before = (True, *sentence.no_space_after)
    for word, (form, no_space_after) in enumerate(
        zip(sentence.words, no_space_before, strict=False)
    ):
        word_of_character += [word] * (len(form) + (not no_space_after))
    ends = (len(vocabulary.decode(token_ids[:count])) for count in range(1, len(token_ids)))
    return token_ids, [word_of_character[max(end - 1, 0)] for end in ends]
