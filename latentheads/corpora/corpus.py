"""A corpus: three parts (train, valid, test) of token ids, and their vocabularies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from latentheads.checks import check_instance, check_least
from latentheads.corpora.cleaning import TOKEN_CHARACTERS, Cleaning
from latentheads.corpora.length_limits import LineLocator, Side, drop_long_lines
from latentheads.corpora.overlap import Overlap, count_shared
from latentheads.corpora.parallel import PairOptions, SentencePairs, encode_pairs, iterate_pairs
from latentheads.corpora.part import Log, Part, check_part
from latentheads.corpora.processor import MAX_LINE, Processor
from latentheads.corpora.tasks import Mixture, Task
from latentheads.corpora.text import PARTS
from latentheads.corpora.vocabulary import Vocabulary


@dataclass(frozen=True)
class Corpus:
    """Train, valid and test, with their vocabularies.

    Attributes:
        name: Name of the corpus.
        train: The training part.
        valid: The validation part.
        test: The test part.
        processor: What encoded them, with the vocabularies; it encodes and decodes other text too.
        data: The options from which it was made, which a run folder keeps; None for a user-supplied
            corpus.
    """

    name: str
    train: Part
    valid: Part
    test: Part
    processor: Processor
    data: object = None

    def __repr__(self) -> str:
        names = ("train", "valid", "test", "target", "source", "overlap")
        shown = (f"{name}={getattr(self, name)!r}" for name in names)
        return f"Corpus({self.name!r}, {', '.join(shown)})"

    @property
    def target(self) -> Vocabulary:
        """Target vocabulary."""
        return self.processor.target

    @property
    def source(self) -> Vocabulary | None:
        """Source vocabulary; None for a language model."""
        return self.processor.source

    @property
    def mixture(self) -> Mixture | None:
        """The tasks and how they are mixed; None where there is one alone."""
        return self.processor.mixture

    @cached_property
    def overlap(self) -> Overlap:
        """How many held-out sentences also occur in training."""
        train = self.train.texts
        return Overlap(*(count_shared(train, part.texts) for part in (self.valid, self.test)))

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of the mixture; empty without tasks."""
        return () if self.train.mixture is None else self.train.mixture.tasks

    @staticmethod
    def from_pairs(
        train: SentencePairs,
        valid: SentencePairs,
        test: SentencePairs,
        *,
        name: str = "pairs",
        vocab_size: int = 10_000,
        joint: bool = True,
        lowercase: bool = False,
        tokenised: bool = False,
        max_length: int = 175,
        max_ratio: float = 0.0,
        max_line: int = MAX_LINE,
        log: Log | None = None,
    ) -> Corpus:
        """Makes a corpus of your own sentence pairs: subwords are learned from those of training.

        Args:
            train: The training pairs, each ``(source, target)``: a list, or a ``Dataset`` of
                PyTorch or anything else with ``__len__`` and ``__getitem__``, or an iterator.
            valid: The pairs for validation.
            test: The pairs for the test.
            name: Name of the corpus in tables and titles.
            vocab_size: Most subwords of a vocabulary.
            joint: One vocabulary for both sides.
            lowercase: Lower-case everything that the model reads and writes.
            tokenised: The text is tokenised: keep its words, and score it as it is.
            max_length: Longest training sentence in words; 0: any.
            max_ratio: Training pairs whose lengths differ by more than this factor are left out;
                0: any.
            max_line: Most tokens of a sentence, its end counted; 0: any. In training a longer one
                is left out, in valid and test it is an error.
            log: Called with a line about the pairs that were left out, such as ``print``.

        Raises:
            ValueError: An item is no pair of texts, or a part has none.

        Example:
            >>> pairs = [("ein Haus", "a house"), ("zwei Katzen", "two cats")]
            >>> own = lh.data.Corpus.from_pairs(pairs, pairs[:1], pairs[1:], vocab_size=300)
            >>> own.test.references
            ['two cats']
        """
        sizes = {"vocab_size": vocab_size, "max_line": max_line, "max_length": max_length}
        check_least(sizes, vocab_size=1, max_line=0, max_length=0)
        given = {"train": train, "valid": valid, "test": test}
        texts = [[*iterate_pairs(part, pairs)] for part, pairs in given.items()]
        cleaning = Cleaning(max_length, max_ratio, TOKEN_CHARACTERS * max_line)
        options = PairOptions(vocab_size, joint, lowercase, tokenised, cleaning)
        corpus = Corpus(name, *encode_pairs(name, texts[0], texts[1], texts[2], options, log))

        def locate(part: str, side: Side, index: int) -> str:
            return f"the {side} of pair {index} of {part}{' that was kept' * (part == 'train')}"

        return corpus.without_long_lines(max_line, locate, log)

    def source_texts(self, part: Part) -> list[str]:
        """The source sentences of a part as text; their translations are its ``references``."""
        check_part(part)
        if self.source is None or part.sources is None:
            raise ValueError(f"corpus {self.name!r} has no source: its texts are the references")
        return [self.source.decode(row.tolist()) for row in part.sources]

    def without_long_lines(
        self, max_line: int, locate: LineLocator, log: Log | None = None
    ) -> Corpus:
        """The same corpus without training lines that have too many tokens, and with that limit.

        Args:
            max_line: Most tokens of a line; 0: any.
            locate: Where a line stands, for messages.
            log: Called with a line about what was dropped.

        Raises:
            ValueError: A line of valid or test is too long, or nothing is left to train on.
        """
        train, held_out = self.train, {"valid": self.valid, "test": self.test}
        if max_line:
            train = drop_long_lines(self.name, train, held_out, self.target, max_line, locate, log)
        return replace(self, train=train, processor=replace(self.processor, max_line=max_line))

    def with_mixture(self, mixture: Mixture) -> Corpus:
        """The same corpus with another mixture of its tasks."""
        parts = {name: getattr(self, name) for name in PARTS}
        mixed: dict[str, Any] = {
            name: replace(part, mixture=mixture) for name, part in parts.items()
        }
        return replace(self, processor=replace(self.processor, mixture=mixture), **mixed)


def check_corpus(corpus: object) -> None:
    """Raises an error if the value is not a corpus."""
    check_instance("corpus", corpus, Corpus, "a Corpus, with all its parts")
