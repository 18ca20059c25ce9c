"""Which corpus: one that the program makes, one of the hub, or a folder of text."""

from __future__ import annotations

import os
import pydoc_data.topics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

from latentheads.corpora import Corpus, pydoc
from latentheads.corpora.cache import cached
from latentheads.corpora.cleaning import Cleaning
from latentheads.corpora.corpus import grammar, grammar_sources
from latentheads.corpora.grammar import LANGUAGES
from latentheads.corpora.hub import HUB, PROSE, load_lines, load_pairs
from latentheads.corpora.parallel import parallel
from latentheads.corpora.prose import Unit, prose
from latentheads.corpora.text import PARTS, Pair, find, lines_of, read_pairs

__all__ = ["Data", "make_corpus"]

MADE = ("grammar", "pydoc")


@dataclass(frozen=True)
class Data:
    """The corpus.

    Attributes:
        data: ``grammar``, sentences drawn from a synchronous grammar whose exact log p(y | x) is
            known; ``pydoc``, the prose of Python's own reference; a corpus of the Hugging Face hub,
            ``multi30k``, ``iwslt14``, ``iwslt17`` or ``wmt14``, or, for a language model,
            ``wikitext-2`` or ``wikitext-103``; or a folder with train.SOURCE and train.TARGET,
            valid.* and test.*, one sentence a line, for a language model train.txt, valid.txt and
            test.txt, .gz accepted.
        task: translation, or language-model (pydoc and wikitext: always; grammar: of its
            English-like side).
        language: Target language of the grammar.
        sentences: Training sentences drawn from the grammar.
        held_out: Sentences of valid and of test drawn from the grammar.
        source: Language translated from, as files or columns are called: en, de, ...
        target: Language translated into.
        block: Tokens of the blocks that a running text is cut into, for a language model; 0 takes
            every line for a sentence alone.
        context: Report perplexity by windows too, each token with so many before it or more; 0:
            by blocks alone.
        unit: What a language model's text is made of: its words, or subwords learned by BPE.
        minimum: A word seen less often in training is unknown to a language model.
        train_name: How a folder's training files are called before the dot.
        valid_name: The same for validation; empty: valid, val or dev.
        test_name: The same for test.
        types: Subwords of a vocabulary, at most, learned from training by BPE.
        joint: One vocabulary for both sides.
        lowercase: Lower-case everything that the model sees and writes.
        tokenised: A translation's text is tokenised: keep its words, and score it as it is.
        max_length: Longest training sentence in words; 0: any.
        max_ratio: Training pairs whose lengths differ by more than this factor are left out, as
            the papers do with 1.5; 0: any.
        first: Use the first so many training pairs, or lines, only; 0: all.
        hub_path: Another repository of the hub than the known one, or local files.
        hub_config: Its configuration.
        cache: Folder that keeps the encoded corpus for the next start; empty: none.
    """

    data: str = MADE[0]
    task: Literal["translation", "language-model"] = "translation"
    language: str = next(iter(LANGUAGES))
    sentences: int = 20_000
    held_out: int = 500
    block: int = 0
    context: int = 0
    unit: Unit = "word"
    minimum: int = 1
    source: str = "de"
    target: str = "en"
    train_name: str = "train"
    valid_name: str = ""
    test_name: str = "test"
    types: int = 10_000
    joint: bool = True
    lowercase: bool = False
    tokenised: bool = False
    max_length: int = 175
    max_ratio: float = 0.0
    first: int = 0
    hub_path: str = ""
    hub_config: str = ""
    cache: str = ""

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise ValueError(
                f"unknown language {self.language!r}: choose from {', '.join(LANGUAGES)}"
            )
        positive = ("sentences", "held_out", "types", "minimum")
        for name, least in (*((name, 1) for name in positive), ("first", 0), ("block", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.block and not self.running:
            raise ValueError(
                "block cuts running text for a language model: data pydoc, "
                f"{', '.join(PROSE)}, or a folder with --task language-model"
            )
        if not 0 <= self.context < max(self.block, 1):
            most = f"lie in 0 ... {self.block - 1}, a block less one"
            said = most if self.block else "be 0 without a block"
            raise ValueError(f"context must {said}, got {self.context}")
        if self.made and self.hub_path:
            raise ValueError(
                f"hub_path needs data to name what it holds: {', '.join([*HUB, *PROSE])}, or a "
                "name of your own for rows with a column translation (text for a language model); "
                f"got {self.data!r}"
            )
        if not (self.made or self.running) and self.source == self.target:
            raise ValueError(f"source and target must differ, got {self.source!r} twice")

    @property
    def made(self) -> bool:
        """Whether the program makes the corpus itself."""
        return self.data in MADE

    @property
    def running(self) -> bool:
        """Whether it is text of one language, for a language model."""
        if self.data in ("pydoc", *PROSE):
            return True
        return not self.made and self.task == "language-model"

    @property
    def from_hub(self) -> bool:
        """Whether it is read with ``datasets``."""
        return bool(self.hub_path) or self.data in (*HUB, *PROSE)

    @property
    def folder(self) -> Path:
        """Where the files are, if it is no corpus of the hub and not made."""
        return Path(self.data).expanduser()

    @property
    def name(self) -> str:
        """What the corpus is called."""
        name = os.path.basename(os.path.abspath(self.folder))
        return name if self.running else f"{name} {self.source}-{self.target}"

    @property
    def words(self) -> bool:
        """Whether its lines are their tokens already."""
        return self.made or self.tokenised


def make_corpus(data: Data, tell: Callable[[str], object] | None = None) -> Corpus:
    """Makes the corpus that the options name.

    Args:
        data: The options.
        tell: Called with a line about what was left out of training.

    Raises:
        ValueError: Its text is missing or broken; one line that names file and place.
    """
    if data.data == "grammar" and data.task == "language-model":
        return grammar_sources(data.sentences, data.held_out)
    if data.data == "grammar":
        return grammar(data.sentences, data.held_out, data.language)
    if not (data.made or data.from_hub or os.path.isdir(data.folder)):
        known = ", ".join([*MADE, *HUB, *PROSE])
        raise ValueError(f"data must be one of {known}, or a folder; got {data.data!r}")
    make = _prose if data.running else _parallel
    if not data.cache:
        return make(data, tell)
    return cached(Path(data.cache).expanduser(), _key(data), lambda: make(data, tell))


def _prose(data: Data, tell: Callable[[str], object] | None) -> Corpus:
    train, valid, test = (partial(_lines, data, part) for part in PARTS)
    return prose(
        data.name,
        train,
        valid,
        test,
        data.block,
        data.unit,
        data.types,
        data.minimum,
        data.lowercase,
        tell=tell,
    )


def _lines(data: Data, part: str) -> Iterator[str]:
    """The lines of a part of a running text."""
    first = (data.first or None) if part == "train" else None
    if data.data == "pydoc":
        return islice(map(" ".join, getattr(pydoc.split(), part)), first)
    if data.from_hub:
        lines = load_lines(data.data, part, data.hub_path or None, data.hub_config or None)
    else:
        lines = lines_of(find(data.folder, part, "txt", _stem(data, part)))
    return islice(lines, first)


def _parallel(data: Data, tell: Callable[[str], object] | None) -> Corpus:
    train, valid, test = (_pairs(data, part) for part in PARTS)
    return parallel(
        data.name,
        islice(train, data.first or None),
        valid,
        test,
        data.types,
        data.joint,
        data.lowercase,
        data.tokenised,
        Cleaning(data.max_length, data.max_ratio),
        tell=tell,
    )


def _pairs(data: Data, part: str) -> Iterator[Pair]:
    if data.from_hub:
        path, config = data.hub_path or None, data.hub_config or None
        return load_pairs(data.data, part, data.source, data.target, path, config)
    return iter(read_pairs(data.folder, part, data.source, data.target, _stem(data, part)))


def _stem(data: Data, part: str) -> str | None:
    return getattr(data, f"{part}_name") or None


def _key(data: Data) -> str:
    """Everything that the corpus depends on: the options, and when its files were written.

    The context is of the evaluation alone.
    """
    found = [(str(file.resolve()), file.stat()) for file in _files(data)]
    stamps = [(name, state.st_size, state.st_mtime_ns) for name, state in found]
    return repr((asdict(replace(data, context=0)), stamps))


def _files(data: Data) -> list[Path]:
    """The local files that it is read from, on which a kept one therefore depends."""
    if data.made:
        return [Path(pydoc_data.topics.__file__)]
    if not data.from_hub:
        sides = ("txt",) if data.running else (data.source, data.target)
        return [
            find(data.folder, part, side, _stem(data, part)) for part in PARTS for side in sides
        ]
    place = Path(data.hub_path or os.devnull)
    return sorted(file for file in (place, *place.rglob("*")) if file.is_file())
