"""Dependencies from a CoNLL-U file, and the pieces into which a vocabulary cuts its words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from latentheads.corpora.grammar import Arc
from latentheads.corpora.rows import Rows
from latentheads.corpora.text import lines_of
from latentheads.corpora.vocabulary import Vocabulary

__all__ = ["Parsed", "encode_parsed", "read_conllu"]

COLUMNS = 10
OLD_NAMES = {"obj": "dobj"}
"""Universal Dependencies 2 calls a direct object obj."""


@dataclass(frozen=True)
class Parsed:
    """A sentence and its dependencies.

    Attributes:
        words: Its words.
        arcs: Dependencies between words, from 0; the root has none.
        glued: Whether no space follows each word.
    """

    words: tuple[str, ...]
    arcs: tuple[Arc, ...]
    glued: tuple[bool, ...]

    @property
    def text(self) -> str:
        """The words as they stood, without a space where there was none."""
        spaced = zip(self.words, self.glued, strict=True)
        return "".join(word if glued else f"{word} " for word, glued in spaced).rstrip(" ")


def read_conllu(path: str | Path) -> list[Parsed]:
    """Reads the sentences of a CoNLL-U file.

    Of its columns ID, FORM, HEAD, DEPREL and, in MISC, ``SpaceAfter=No`` are read. Multi-word
    ranges and empty nodes are skipped. ``obj`` becomes ``dobj``; a subtype such as ``nsubj:pass``
    is a relation of its own.

    Raises:
        ValueError: The file is missing or is no CoNLL-U; one line with file and line number.
    """
    return list(_sentences(Path(path)))


def _sentences(path: Path) -> Iterator[Parsed]:
    rows: list[_Row] = []
    first = True
    for number, line in enumerate(lines_of(path), 1):
        if line and not line.startswith("#"):
            row = _row(line, f"{path}, line {number}", len(rows) + 1)
            rows += [row] if row else []
        elif not line and rows:
            yield _parsed(rows)
            rows, first = [], False
    if rows:
        yield _parsed(rows)
    elif first:
        raise ValueError(f"{path} holds no sentence")


@dataclass(frozen=True)
class _Row:
    """A word's line; its governor from 1, 0 for the root."""

    place: str
    form: str
    governor: int
    relation: str
    glued: bool


def _row(line: str, place: str, expected: int) -> _Row | None:
    """Reads a line; None for a range or an empty node."""
    columns = line.split("\t")
    if len(columns) != COLUMNS:
        raise ValueError(
            f"{place}: {COLUMNS} columns between tabs are expected, got {len(columns)}"
        )
    name, form, governor, relation, misc = (columns[n] for n in (0, 1, 6, 7, 9))
    if all(part.isdecimal() for part in name.replace(".", "-").split("-")) and not name.isdecimal():
        return None
    if name != str(expected):
        raise ValueError(f"{place}: ID {expected} is expected, got {name!r}")
    if not form.strip():
        raise ValueError(f"{place}: FORM is empty")
    if not governor.isdecimal():
        raise ValueError(f"{place}: HEAD must be the ID of a word or 0, got {governor!r}")
    glued = "SpaceAfter=No" in misc.split("|")
    return _Row(place, form, int(governor), OLD_NAMES.get(relation, relation), glued)


def _parsed(rows: Sequence[_Row]) -> Parsed:
    arcs = []
    for dependent, row in enumerate(rows):
        if row.governor > len(rows) or row.governor == dependent + 1:
            raise ValueError(
                f"{row.place}: HEAD must be another of the {len(rows)} words or 0, "
                f"got {row.governor}"
            )
        if row.governor:
            arcs.append(Arc(row.relation, row.governor - 1, dependent))
    return Parsed(
        tuple(row.form for row in rows), tuple(sorted(arcs)), tuple(row.glued for row in rows)
    )


def encode_parsed(
    sentences: Iterable[Parsed], vocabulary: Vocabulary, spaced: bool = True
) -> tuple[Rows, list[list[int]]]:
    """Encodes sentences and tells the word of each token, EOS left out.

    Args:
        sentences: What a CoNLL-U file holds.
        vocabulary: That of the model.
        spaced: Words with a space between, as a model of tokenised text reads them; if not, the
            text as it stood. A token then belongs to the word of its last character, a space to
            the word behind it.

    Raises:
        ValueError: The vocabulary cuts across words, or does not give the text back.
    """
    tokens, words = [], []
    for number, sentence in enumerate(sentences, 1):
        cut = _spaced if spaced else _as_it_stood
        ids, owners = cut(sentence, vocabulary, f"sentence {number}")
        tokens.append(ids)
        words.append(owners)
    return Rows.of(tokens), words


def _spaced(sentence: Parsed, vocabulary: Vocabulary, name: str) -> tuple[list[int], list[int]]:
    pieces = [vocabulary.encode(word)[:-1] for word in sentence.words]
    ids = vocabulary.encode(" ".join(sentence.words))
    if [piece for each in pieces for piece in each] != ids[:-1] or not all(pieces):
        raise ValueError(f"{name}: the vocabulary does not cut it at its words")
    return ids, [word for word, each in enumerate(pieces) for _ in each]


def _as_it_stood(
    sentence: Parsed, vocabulary: Vocabulary, name: str
) -> tuple[list[int], list[int]]:
    ids = vocabulary.encode(sentence.text)
    text = vocabulary.decode(ids)
    if text.lower() != sentence.text.lower() or len(text) != len(sentence.text):
        raise ValueError(f"{name}: the vocabulary does not give back {sentence.text!r}")
    owner: list[int] = []
    before = (True, *sentence.glued)
    for word, (form, glued) in enumerate(zip(sentence.words, before, strict=False)):
        owner += [word] * (len(form) + (not glued))
    ends = (len(vocabulary.decode(ids[:count])) for count in range(1, len(ids)))
    return ids, [owner[max(end - 1, 0)] for end in ends]
