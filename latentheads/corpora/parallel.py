"""A corpus from pairs of sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from latentheads.corpora.cleaning import USUAL, Cleaning, clean
from latentheads.corpora.corpus import Corpus, Part
from latentheads.corpora.subwords import Subwords
from latentheads.corpora.text import Pair
from latentheads.corpora.vocabulary import Vocabulary

__all__ = ["learn", "parallel"]


def parallel(
    name: str,
    train: Iterable[Pair],
    valid: Iterable[Pair],
    test: Iterable[Pair],
    types: int = 10_000,
    joint: bool = True,
    lowercase: bool = False,
    tokenised: bool = False,
    cleaning: Cleaning = USUAL,
    vocabulary: tuple[Vocabulary, Vocabulary] | None = None,
    tell: Callable[[str], object] | None = None,
    max_source: int = 0,
    several: bool = False,
) -> Corpus:
    """Makes a corpus from pairs of sentences.

    Only training pairs are cleaned. The references of valid and test are the target lines as they
    were given, whatever `lowercase` says.

    Args:
        name: What the corpus is called.
        train: Source and target sentences to train on.
        valid: The same for validation.
        test: The same for testing.
        types: Subwords of each vocabulary, at most.
        joint: Whether source and target share one vocabulary, learned on both sides of training.
        lowercase: As in `Subwords`.
        tokenised: As in `Subwords`.
        cleaning: Which training pairs to keep.
        vocabulary: That of the source and that of the target, made before; nothing is learned.
        tell: Called with one line that says how many training pairs were kept.
        max_source: Most tokens of a source, its end counted; what is longer is cut. 0: any.
        several: Whether a target line is several references with tabs between. The first is
            learned and bounded.

    Raises:
        ValueError: A part has no pair, or `types` is too small.
    """
    if several:
        train = ((left, right.split("\t")[0]) for left, right in train)
    kept, counts = clean(train, cleaning)
    if not kept:
        raise ValueError(f"{name} has nothing to train on: {counts}")
    if tell is not None:
        tell(str(counts))
    source, target = vocabulary or learn(kept, types, joint, lowercase, tokenised)

    def held_out(part: str, pairs: Iterable[Pair]) -> Part:
        found = _encode(pairs, source, target, max_source, references=True, several=several)
        if not len(found):
            raise ValueError(f"{name} has no pair in {part}")
        if not any(line.strip() for line in found.references):
            raise ValueError(f"{name} has no word in the targets of {part}")
        return found

    return Corpus(
        name=name,
        train=_encode(kept, source, target, max_source),
        valid=held_out("valid", valid),
        test=held_out("test", test),
        target=target,
        source=source,
    )


def learn(
    pairs: Sequence[Pair], types: int, joint: bool, lowercase: bool, tokenised: bool
) -> tuple[Vocabulary, Vocabulary]:
    """The vocabularies of source and target; one and the same object where they are joint."""
    if joint:
        lines = (line for pair in pairs for line in pair)
        both = Subwords.train(lines, types, lowercase, tokenised)
        return both, both
    sides = ((pair[side] for pair in pairs) for side in (0, 1))
    source, target = (Subwords.train(lines, types, lowercase, tokenised) for lines in sides)
    return source, target


def _encode(
    pairs: Iterable[Pair],
    source: Vocabulary,
    target: Vocabulary,
    max_source: int,
    references: bool = False,
    several: bool = False,
) -> Part:
    pairs = pairs if isinstance(pairs, list) else list(pairs)
    every = [right.split("\t") if several else [right] for _, right in pairs]
    rights = [first for first, *_ in every]
    sources = source.encode_all(left for left, _ in pairs)
    return Part(
        targets=target.encode_all(rights),
        sources=sources.shortened(max_source) if max_source else sources,
        references=rights if references else (),
        alternatives=every if references and several else (),
    )
