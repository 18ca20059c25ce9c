"""A corpus from pairs of sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from latentheads.corpora.cleaning import Cleaning, clean
from latentheads.corpora.corpus import Corpus, Part, Tell
from latentheads.corpora.subwords import Subwords
from latentheads.corpora.text import Pair
from latentheads.corpora.vocabulary import Vocabulary

__all__ = [
    "USUAL",
    "PairOptions",
    "check_held_out",
    "keep",
    "learn",
    "parallel",
    "split_references",
]


@dataclass(frozen=True)
class PairOptions:
    """How pairs of sentences are cleaned, and written in subwords.

    Attributes:
        types: Subwords of each vocabulary, at most.
        joint: Whether source and target share one vocabulary, learned on both sides of training.
        lowercase: As in `Subwords`.
        tokenised: As in `Subwords`.
        cleaning: Which training pairs to keep.
    """

    types: int = 10_000
    joint: bool = True
    lowercase: bool = False
    tokenised: bool = False
    cleaning: Cleaning = field(default_factory=Cleaning)


USUAL = PairOptions()
"""The default options."""


def parallel(
    name: str,
    train: Iterable[Pair],
    valid: Iterable[Pair],
    test: Iterable[Pair],
    options: PairOptions = USUAL,
    tell: Tell | None = None,
    max_source: int = 0,
    several: bool = False,
) -> Corpus:
    """Makes a corpus from pairs of sentences.

    Only training pairs are cleaned. The references of valid and test are the target lines as they
    were given, whatever ``lowercase`` says.

    Args:
        name: What the corpus is called.
        train: Source and target sentences to train on.
        valid: The same for validation.
        test: The same for testing.
        options: How they are cleaned and written.
        tell: Called with one line that says how many training pairs were kept.
        max_source: Most tokens of a source, its end counted; what is longer is cut. 0: any.
        several: Whether a held-out target is several references with tabs between. The first is
            bounded.

    Raises:
        ValueError: A part has no pair, or ``types`` is too small.
    """
    kept = keep(name, train, options.cleaning, tell)
    source, target = learn(kept, options)

    def held_out(part: str, pairs: Iterable[Pair]) -> Part:
        found = _encode(pairs, source, target, max_source, references=True, several=several)
        check_held_out(name, part, found.references)
        return found

    return Corpus(
        name=name,
        train=_encode(kept, source, target, max_source),
        valid=held_out("valid", valid),
        test=held_out("test", test),
        target=target,
        source=source,
    )


def keep(
    name: str, pairs: Iterable[Pair], cleaning: Cleaning, tell: Tell | None, task: str = ""
) -> list[Pair]:
    """The training pairs that are kept, of a task where there are several; tells how many.

    Raises:
        ValueError: There is none.
    """
    kept, counts = clean(pairs, cleaning)
    if not kept:
        raise ValueError(f"{name} has nothing to train on{task and f' in {task}'}: {counts}")
    if tell is not None:
        tell(f"{task}: {counts}" if task else str(counts))
    return kept


def check_held_out(name: str, part: str, targets: Sequence[str]) -> None:
    """Refuses a held-out part that has no target, or no word in any."""
    if not targets:
        raise ValueError(f"{name} has no pair in {part}")
    if not any(line.strip() for line in targets):
        raise ValueError(f"{name} has no word in the targets of {part}")


def learn(pairs: Sequence[Pair], options: PairOptions) -> tuple[Vocabulary, Vocabulary]:
    """The vocabularies of source and target; one and the same object where they are joint."""

    def learn_one(lines: Iterable[str]) -> Subwords:
        return Subwords.train(lines, options.types, options.lowercase, options.tokenised)

    if options.joint:
        both = learn_one(line for pair in pairs for line in pair)
        return both, both
    return learn_one(left for left, _ in pairs), learn_one(right for _, right in pairs)


def _encode(
    pairs: Iterable[Pair],
    source: Vocabulary,
    target: Vocabulary,
    max_source: int,
    references: bool = False,
    several: bool = False,
) -> Part:
    pairs = pairs if isinstance(pairs, list) else list(pairs)
    every = [split_references(right) if several else [right] for _, right in pairs]
    rights = [first for first, *_ in every]
    sources = source.encode_all(left for left, _ in pairs)
    return Part(
        targets=target.encode_all(rights),
        sources=sources.shortened(max_source) if max_source else sources,
        references=rights if references else (),
        alternatives=every if references and several else (),
    )


def split_references(line: str) -> list[str]:
    """The texts of a line that count as right, tabs between; an empty one is none, unless all are.

    Args:
        line: The line.
    """
    return [cell for cell in line.split("\t") if cell.strip()] or [""]
