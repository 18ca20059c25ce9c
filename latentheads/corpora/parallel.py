"""Sentence pairs, cleaned and encoded as subwords."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from latentheads.corpora.cleaning import Cleaning, clean
from latentheads.corpora.part import Log, Part
from latentheads.corpora.processor import Processor
from latentheads.corpora.subwords import Subwords
from latentheads.corpora.text import SentencePair, SizedPairs
from latentheads.corpora.vocabulary import Vocabulary
from latentheads.errors import shown

SentencePairs = Iterable[SentencePair] | SizedPairs
"""Pairs of a source sentence and its target."""


@dataclass(frozen=True)
class PairOptions:
    """How sentence pairs are cleaned and encoded as subwords.

    Attributes:
        vocab_size: Maximum size of each subword vocabulary.
        joint: Whether source and target share one vocabulary, learned on both sides.
        lowercase: As in `Subwords`.
        tokenised: As in `Subwords`.
        cleaning: Which training pairs to keep.
    """

    vocab_size: int = 10_000
    joint: bool = True
    lowercase: bool = False
    tokenised: bool = False
    cleaning: Cleaning = field(default_factory=Cleaning)


DEFAULT_OPTIONS = PairOptions()
"""The default options."""


class EncodedPairs(NamedTuple):
    """The parts of a parallel corpus and what encoded them, as a ``Corpus`` takes them."""

    train: Part
    valid: Part
    test: Part
    processor: Processor


def encode_pairs(
    name: str,
    train: Iterable[SentencePair],
    valid: Iterable[SentencePair],
    test: Iterable[SentencePair],
    options: PairOptions = DEFAULT_OPTIONS,
    log: Log | None = None,
    max_source: int = 0,
    multiple_references: bool = False,
) -> EncodedPairs:
    """Learns the vocabularies of training pairs, and encodes all parts.

    Only training pairs are cleaned. The references of valid and test are the original target lines,
    even with ``lowercase``.

    Args:
        name: Name of the corpus, for messages.
        train: Sentence pairs for training.
        valid: Sentence pairs for validation.
        test: Sentence pairs for test.
        options: How pairs are cleaned and encoded.
        log: Called with one line: how many training pairs are kept.
        max_source: Maximum number of tokens of a source, EOS included; longer ones are truncated.
            0: no limit.
        multiple_references: Whether a held-out target is several references separated by tabs. The
            bound is that of the first.

    Raises:
        ValueError: A part has no pair, or ``vocab_size`` is too small.
    """
    train_pairs = clean_training_pairs(name, train, options.cleaning, log)
    source, target = learn_vocabularies(train_pairs, options)

    def held_out(part: str, pairs: Iterable[SentencePair]) -> Part:
        encoded = _encode(
            pairs,
            source,
            target,
            max_source,
            references=True,
            multiple_references=multiple_references,
        )
        check_held_out(name, part, encoded.references)
        return encoded

    return EncodedPairs(
        train=_encode(train_pairs, source, target, max_source),
        valid=held_out("valid", valid),
        test=held_out("test", test),
        processor=Processor(target, source, max_source=max_source),
    )


def iterate_pairs(part: str, pairs: Any) -> Iterator[SentencePair]:
    """Iterates over a user's pairs, and checks each.

    Raises:
        ValueError: There are no pairs to iterate over, or an item is not a pair of texts.
    """
    is_sized = hasattr(pairs, "__len__") and hasattr(pairs, "__getitem__")
    if isinstance(pairs, str | Mapping) or not (is_sized or isinstance(pairs, Iterable)):
        raise ValueError(f"{part} must be pairs of texts (source, target), got {shown(pairs)}")
    # a Dataset need not raise the IndexError that would end an iteration
    items = (pairs[index] for index in range(len(pairs))) if is_sized else pairs
    for index, item in enumerate(items):
        is_pair = isinstance(item, tuple | list) and len(item) == 2
        if not is_pair or not all(isinstance(text, str) for text in item):
            raise ValueError(
                f"{part}[{index}] must be a pair of texts (source, target), got {shown(item)}"
            )
        yield item[0], item[1]


def clean_training_pairs(
    name: str, pairs: Iterable[SentencePair], cleaning: Cleaning, log: Log | None, task: str = ""
) -> list[SentencePair]:
    """Cleans the training pairs, of one task if there are several, and logs how many are kept."""
    kept, counts = clean(pairs, cleaning)
    if not kept:
        raise ValueError(f"{name} has nothing to train on{task and f' in {task}'}: {counts}")
    if log is not None:
        log(f"{task}: {counts}" if task else str(counts))
    return kept


def check_held_out(name: str, part: str, targets: Sequence[str]) -> None:
    """Raises an error if a held-out part has no word in its targets."""
    if not any(line.strip() for line in targets):
        raise ValueError(f"{name} has no word in the targets of {part}")


def learn_vocabularies(
    pairs: Sequence[SentencePair], options: PairOptions
) -> tuple[Vocabulary, Vocabulary]:
    """Learns the vocabularies of source and target; a joint vocabulary is one object."""

    def train_subwords(lines: Iterable[str]) -> Subwords:
        return Subwords.train(lines, options.vocab_size, options.lowercase, options.tokenised)

    if options.joint:
        joint = train_subwords([line for pair in pairs for line in pair])
        return joint, joint
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    return train_subwords(sources), train_subwords(targets)


def _encode(
    pairs: Iterable[SentencePair],
    source: Vocabulary,
    target: Vocabulary,
    max_source: int,
    references: bool = False,
    multiple_references: bool = False,
) -> Part:
    pairs = pairs if isinstance(pairs, list) else list(pairs)
    first_references = [line for _, line in pairs]
    alternatives = [*map(split_references, first_references)] if multiple_references else ()
    if alternatives:
        first_references = [reference for reference, *_ in alternatives]
    sources = source.encode_all([line for line, _ in pairs])
    return Part(
        targets=target.encode_all(first_references),
        sources=sources.truncate(max_source) if max_source else sources,
        references=first_references if references else (),
        alternatives=alternatives,
    )


def split_references(line: str) -> list[str]:
    """Splits a line into its references, at tabs; a line without text is one empty reference."""
    return [cell for cell in line.split("\t") if cell.strip()] or [""]
