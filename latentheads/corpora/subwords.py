"""Subwords: byte-pair encoding (BPE), learned on a corpus, with lossless decoding."""

from __future__ import annotations

import codecs
import json
import os
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, takewhile
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from latentheads.batch import EOS, SPECIALS
from latentheads.checks import check_unicode
from latentheads.console import show_progress
from latentheads.corpora.rows import Rows
from latentheads.corpora.vocabulary import Vocabulary, before_end
from latentheads.options import OptionError

CHUNK = 10_000
"""Number of lines encoded at a time, on all cores."""

RESERVED = [f"{name} " for name in SPECIALS]
"""The special tokens inside the tokenizer. No learned subword ends in a space, so none collides."""


def _one_thread() -> None:
    """Turns off parallel tokenization in a forked child, where the threads no longer exist."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_one_thread)


class Subwords(Vocabulary):
    """Subwords learned by byte-pair encoding; a word's first subword includes the space before it.

    Raw text is pre-tokenized as by GPT-2 and encoded as bytes: no text is unknown, and every text
    is decoded exactly. Tokenised text is split at its spaces and encoded as characters: characters
    that do not occur in training become one `UNK` each; everything else, spaces included, is
    decoded exactly. The text of a special token, such as "<eos>", is encoded like any other text.

    Args:
        tokenizer: A tokenizer trained by `train`.
        lowercase: Whether lines are lower-cased first; the decoded text is then lower-case.
        tokenised: Whether lines are words separated by spaces.
    """

    kind = "bpe"

    def __init__(
        self, tokenizer: Tokenizer, lowercase: bool = False, tokenised: bool = False
    ) -> None:
        self.tokenizer = tokenizer
        self.lowercase = lowercase
        self.tokenised = tokenised
        token_ids = tokenizer.get_vocab(with_added_tokens=False)
        tokens = sorted(token_ids, key=lambda token: token_ids[token])
        token_bytes = (_bytes_of(token, tokenised) for token in tokens[len(RESERVED) :])
        self._token_bytes = [*(token.encode() for token in SPECIALS), *token_bytes]

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        vocab_size: int,
        lowercase: bool = False,
        tokenised: bool = False,
    ) -> Subwords:
        """Learns the subwords of some lines, deterministically.

        Args:
            lines: Text to learn from; for a joint vocabulary, that of both languages.
            vocab_size: Size of the vocabulary, special tokens and characters included; it is
                smaller where no pair is left to merge.
            lowercase: As in `Subwords`.
            tokenised: As in `Subwords`.

        Raises:
            ValueError: Special tokens and characters alone are more than `vocab_size`.
        """
        tokenizer = _untrained_tokenizer(tokenised)
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            min_frequency=2,  # a pair that occurs once is not a pattern
            special_tokens=RESERVED,
            initial_alphabet=[] if tokenised else sorted(_BYTES),
            show_progress=False,
        )
        shown = show_progress(lines, "learning subwords", "line")
        _train(tokenizer, (_prepend_space(line, lowercase) for line in shown), trainer)
        if tokenizer.get_vocab_size() > vocab_size:
            minimum, unit = tokenizer.get_vocab_size(), "characters" if tokenised else "bytes"
            raise OptionError(
                "vocab_size",
                f" must be at least {minimum}, {len(SPECIALS)} special tokens and "
                f"{minimum - len(SPECIALS)} {unit}; got {vocab_size}",
            )
        config = json.loads(tokenizer.to_str()) | {"added_tokens": []}
        return cls(Tokenizer.from_str(json.dumps(config)), lowercase, tokenised)

    def __len__(self) -> int:
        return len(self._token_bytes)

    def encode(self, line: str) -> list[int]:
        return [*self.tokenizer.encode(_prepend_space(line, self.lowercase)).ids, EOS]

    def encode_all(self, lines: Iterable[str]) -> Rows:
        def encode() -> Iterator[list[int]]:
            shown = show_progress(lines, "encoding", "line")
            prepared = (_prepend_space(line, self.lowercase) for line in shown)
            while chunk := list(islice(prepared, CHUNK)):
                for encoding in self.tokenizer.encode_batch_fast(chunk):
                    yield [*encoding.ids, EOS]

        return Rows.of(encode())

    def decode(self, ids: Iterable[int]) -> str:
        """Decodes token ids up to the first EOS; bytes that are not UTF-8 become U+FFFD."""
        pieces = (self._token_bytes[token_id] for token_id in before_end(ids))
        return b"".join(pieces).decode("utf-8", "replace").removeprefix(" ")

    def token_text(self, token: int) -> str:
        # a part of a character is no text: its bytes are shown
        return self._token_bytes[token].decode("utf-8", "backslashreplace").removeprefix(" ")

    def word_ids(self, ids: Iterable[int]) -> list[int | None]:
        """The word of each token; a token with part of a character gets the completed one's."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        word_ids: list[int | None] = []
        pending, word, in_word = 0, -1, False
        for token in before_end(ids):
            text = decoder.decode(self._token_bytes[token])
            pending += 1
            if not text:
                continue
            first_word = None
            for character in text:
                starts = not (character.isspace() or in_word)
                in_word = not character.isspace()
                word += starts
                first_word = word if first_word is None and in_word else first_word
            word_ids += [first_word] * pending
            pending = 0
        word += bool(pending) and not in_word  # bytes that never become a character
        return word_ids + [word] * pending

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "lowercase": self.lowercase,
            "tokenised": self.tokenised,
            "tokenizer": json.loads(self.tokenizer.to_str()),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Subwords:
        try:
            tokenizer = Tokenizer.from_str(json.dumps(value["tokenizer"]))
        except Exception as error:  # tokenizers raises no class of its own
            raise ValueError(f"the tokenizer of a vocabulary is malformed: {error}") from error
        return cls(tokenizer, value["lowercase"], value["tokenised"])


def _train(tokenizer: Tokenizer, lines: Iterable[str], trainer: Any) -> None:
    """Trains in a thread; in the main one Ctrl-C would have no effect before the last line."""
    stopped = threading.Event()
    unread = takewhile(lambda _: not stopped.is_set(), lines)
    with ThreadPoolExecutor(1) as executor:
        training = executor.submit(tokenizer.train_from_iterator, unread, trainer)
        try:
            training.result()
        finally:
            stopped.set()


def _untrained_tokenizer(tokenised: bool) -> Tokenizer:
    if tokenised:
        tokenizer = Tokenizer(models.BPE(unk_token=RESERVED[-1]))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_next")
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def _prepend_space(line: str, lowercase: bool) -> str:
    """Prepends a space, so that the first word is encoded like the others; not to an empty line."""
    check_unicode("a text", line)  # the tokenizer's own error names nothing
    line = line.lower() if lowercase else line
    return f" {line}" if line else line


def _byte_names() -> dict[str, int]:
    """Maps the characters of GPT-2's byte-level alphabet to bytes.

    A printable Latin-1 byte is its own character; the n-th other byte, from 0, is U+0100 + n.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


_BYTES = _byte_names()


def _bytes_of(token: str, tokenised: bool) -> bytes:
    """The bytes of text that a subword encodes."""
    if tokenised:
        return token.encode()
    return bytes(_BYTES[character] for character in token)
