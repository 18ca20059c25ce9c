"""Subwords: byte-pair encoding, learned on a corpus, that gives back the very text it read."""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from latentheads.batch import EOS, SPECIALS
from latentheads.corpora.characters import Characters
from latentheads.corpora.rows import Rows
from latentheads.corpora.speech.vocabulary import Positions
from latentheads.corpora.vocabulary import Tagged, Vocabulary, Words

__all__ = ["Subwords", "vocabulary_from_json"]

CHUNK = 10_000
"""Lines encoded at a time, by all cores."""

RESERVED = [f"{name} " for name in SPECIALS]
"""The special tokens inside the tokenizer. No subword ends in a space, so no text becomes one."""


def _one_thread() -> None:
    """The threads of a process do not live on in its forked child."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_one_thread)


class Subwords(Vocabulary):
    """Subwords learned by byte-pair encoding; a word carries the space before it.

    Raw text is cut at the boundaries of GPT-2 and into bytes: every text is known and decoded
    exactly. Tokenised text is cut at its spaces and into characters: characters that training did
    not have are unknown, one `UNK` each; all else, spaces included, is decoded exactly. The text
    of a special token, such as "<eos>", is text like any other.

    Args:
        tokenizer: A trained tokenizer of `train`.
        lowercase: Whether lines are lower-cased first; the text comes back lower-cased.
        tokenised: Whether lines are words with a space between.
    """

    kind = "bpe"

    def __init__(
        self, tokenizer: Tokenizer, lowercase: bool = False, tokenised: bool = False
    ) -> None:
        self.tokenizer = tokenizer
        self.lowercase = lowercase
        self.tokenised = tokenised
        places = tokenizer.get_vocab(with_added_tokens=False)
        types = sorted(places, key=lambda name: places[name])
        whole = sorted(places.values()) == list(range(len(types)))
        if types[: len(RESERVED)] != RESERVED or not whole:
            raise ValueError(
                f"a subword vocabulary begins with {', '.join(SPECIALS)} and has no gap"
            )
        spelled = (_spelled(name, tokenised) for name in types[len(RESERVED) :])
        self._pieces = [*(name.encode() for name in SPECIALS), *spelled]

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        types: int,
        lowercase: bool = False,
        tokenised: bool = False,
    ) -> Subwords:
        """Learns the subwords of some lines, the same for the same lines.

        Args:
            lines: Text to learn from; for a joint vocabulary, that of both languages.
            types: Types to end with, special tokens and characters included; fewer where nothing
                is left to merge.
            lowercase: As in `Subwords`.
            tokenised: As in `Subwords`.

        Raises:
            ValueError: The characters alone are more than `types`.
        """
        tokenizer = _untrained(tokenised)
        trainer = trainers.BpeTrainer(
            vocab_size=types,
            min_frequency=2,  # what stands once is no pattern
            special_tokens=RESERVED,
            initial_alphabet=[] if tokenised else sorted(_BYTES),
            show_progress=False,
        )
        tokenizer.train_from_iterator((_marked(line, lowercase) for line in lines), trainer)
        if tokenizer.get_vocab_size() > types:
            least = tokenizer.get_vocab_size()
            raise ValueError(
                f"types must be at least {least}, {len(SPECIALS)} special tokens and "
                f"{least - len(SPECIALS)} {'characters' if tokenised else 'bytes'}; got {types}"
            )
        plain = json.loads(tokenizer.to_str()) | {"added_tokens": []}
        return cls(Tokenizer.from_str(json.dumps(plain)), lowercase, tokenised)

    def __len__(self) -> int:
        return len(self._pieces)

    def encode(self, line: str) -> list[int]:
        """Turns a line into ids, ended by EOS."""
        return [*self.tokenizer.encode(_marked(line, self.lowercase)).ids, EOS]

    def encode_all(self, lines: Iterable[str]) -> Rows:
        """Encodes every line, some thousands at a time."""
        tokens, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        for chunk in _chunks(lines):
            flat, ends = self._encode_chunk(chunk)
            tokens.append(flat)
            lengths.append(ends)
        return Rows(np.concatenate(tokens), np.cumsum(np.concatenate(lengths)))

    def _encode_chunk(self, lines: list[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The ids of some lines one behind the other, and the length of each."""
        marked = [_marked(line, self.lowercase) for line in lines]
        rows = [[*found.ids, EOS] for found in self.tokenizer.encode_batch_fast(marked)]
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        flat = (place for row in rows for place in row)
        return np.fromiter(flat, np.int32, int(lengths.sum())), lengths

    def decode(self, ids: Iterable[int]) -> str:
        """Turns ids into text, up to the first EOS; bytes that are no text become U+FFFD."""
        found = []
        for place in ids:
            if place == EOS:
                break
            found.append(self._pieces[place])
        return b"".join(found).decode("utf-8", "replace").removeprefix(" ")

    def word_places(self, ids: Iterable[int]) -> list[int | None]:
        """Follows the text from token to token; part of a character goes with what completes it."""
        read = codecs.getincrementaldecoder("utf-8")("replace")
        found: list[int | None] = []
        open_tokens, place, inside = 0, -1, False
        for token in takewhile(EOS.__ne__, ids):
            text = read.decode(self._pieces[token])
            open_tokens += 1
            if not text:
                continue
            first = None
            for character in text:
                starts = not (character.isspace() or inside)
                inside = not character.isspace()
                place += starts
                first = place if first is None and inside else first
            found += [first] * open_tokens
            open_tokens = 0
        place += bool(open_tokens) and not inside  # bytes that never become a character
        return found + [place] * open_tokens

    def to_json(self) -> dict[str, Any]:
        """The trained tokenizer as an object, and how lines are prepared for it."""
        return {
            "kind": self.kind,
            "lowercase": self.lowercase,
            "tokenised": self.tokenised,
            "tokenizer": json.loads(self.tokenizer.to_str()),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Subwords:
        """Makes the vocabulary again that `to_json` described.

        Raises:
            ValueError: It does not describe one.
        """
        lowercase, tokenised = value.get("lowercase"), value.get("tokenised")
        described = value.get("tokenizer")
        if not (isinstance(lowercase, bool) and isinstance(tokenised, bool)):
            raise ValueError("a bpe vocabulary says lowercase and tokenised, each true or false")
        if not isinstance(described, dict):
            raise ValueError("a bpe vocabulary has a tokenizer, an object")
        return cls(_read(described, tokenised), lowercase, tokenised)


def _untrained(tokenised: bool) -> Tokenizer:
    if tokenised:
        tokenizer = Tokenizer(models.BPE(unk_token=RESERVED[-1]))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_next")
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


LEARNED = ("vocab", "merges")
"""All that a trained tokenizer has of its own."""


def _read(described: dict[str, Any], tokenised: bool) -> Tokenizer:
    """Makes a trained tokenizer again; in all but what it learned it is one that `train` makes."""
    own, model = json.loads(_untrained(tokenised).to_str()), described.get("model", {})
    if not isinstance(model, dict):
        raise ValueError("the model of a bpe vocabulary is an object")
    given = [(name, value, own.get(name)) for name, value in described.items() if name != "model"]
    given += [(n, value, own["model"].get(n)) for n, value in model.items() if n not in LEARNED]
    for name, value, expected in given:
        if value != expected:
            raise ValueError(
                f"the tokenizer of a bpe vocabulary was not written by latentheads: its {name} is "
                "another"
            )
    try:
        return Tokenizer.from_str(json.dumps(described))
    except Exception as reason:
        said = " ".join(str(reason).split())
        raise ValueError(f"the tokenizer of a bpe vocabulary is malformed: {said}") from reason


def _marked(line: str, lowercase: bool) -> str:
    """A space before the line, so that its first word is like the others; nothing if empty."""
    line = line.lower() if lowercase else line
    return f" {line}" if line else line


def _chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    waiting = iter(lines)
    while chunk := list(islice(waiting, CHUNK)):
        yield chunk


def _byte_names() -> dict[str, int]:
    """The character that stands for each byte in GPT-2's alphabet.

    A printable Latin-1 character stands for itself; the n-th other byte, from 0, is U+0100 + n.
    """
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in own]
    return {chr(b): b for b in own} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


_BYTES = _byte_names()


def _spelled(name: str, tokenised: bool) -> bytes:
    """The bytes of text that a subword stands for."""
    if tokenised:
        return name.encode()
    try:
        return bytes(_BYTES[character] for character in name)
    except KeyError as reason:
        raise ValueError(f"a byte-level subword has no character {reason}") from reason


def vocabulary_from_json(value: object) -> Vocabulary:
    """Makes the vocabulary again that a `to_json` described; runs no code from it.

    Raises:
        ValueError: It describes none.
    """
    if not isinstance(value, dict):
        raise ValueError(f"a vocabulary is a JSON object, got {type(value).__name__}")
    kind = value.get("kind")
    if kind == Subwords.kind:
        return Subwords.from_json(value)
    if kind == Tagged.kind:
        return Tagged(vocabulary_from_json(value.get("plain")), _strings(value, kind, "tags"))
    if kind == Characters.kind:
        return Characters.from_json(value, _strings(value, kind, "characters"))
    if kind == Positions.kind:
        return Positions.from_json(value)
    if kind != Words.kind:
        known = ", ".join(each.kind for each in (Words, Subwords, Tagged, Characters))
        raise ValueError(f"a vocabulary's kind must be {known} or {Positions.kind}; got {kind!r}")
    if not isinstance(lowercase := value.get("lowercase", False), bool):
        raise ValueError(f"lowercase of a vocabulary of words is true or false, got {lowercase!r}")
    return Words(_strings(value, kind, "words"), lowercase)


def _strings(value: dict[str, Any], kind: str, name: str) -> list[str]:
    found = value.get(name)
    what = f"of {kind}" if kind in (Words.kind, Characters.kind) else kind
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError(f"a vocabulary {what} has {name}, a list of strings")
    if len(set(found)) != len(found):
        raise ValueError(f"a vocabulary {what} has each {name.removesuffix('s')} once")
    return found
