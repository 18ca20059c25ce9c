"""Parallel sentences with the exact probabilities of their translations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from latentheads.checks import check_word
from latentheads.corpora.grammar.choice import DOMAINS, Draw
from latentheads.corpora.grammar.languages import LANGUAGES, Language
from latentheads.corpora.grammar.languages import language as make_language
from latentheads.corpora.grammar.syntax import Arc, arcs, draw

__all__ = ["Sentence", "sample"]

SHARE = 1 / len(DOMAINS)
"""The share p(d) of every domain."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A source sentence, a translation, and what is known of them.

    Attributes:
        source: Words of the source x.
        target: Words of the translation y.
        domain: Domain d the sentence was drawn in.
        alignment: (source index, target index), sorted; every word of both sides has one.
        arcs: Dependencies of the source.
        log_p_target: log p(y | x, d).
        log_p_mixture: log p(y | x) of both domains, log sum_d p(d | x) p(y | x, d).
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    domain: str
    alignment: tuple[tuple[int, int], ...]
    arcs: tuple[Arc, ...]
    log_p_target: float
    log_p_mixture: float


def _log_sum(terms: Sequence[float]) -> float:
    """Log sum exp."""
    top = max(terms)
    return top + math.log(math.fsum(math.exp(term - top) for term in terms))


def sample(size: int, *, language: str = "velu", seed: int = 0) -> list[Sentence]:
    """Draw sentences, half of each domain; the same arguments give the same sentences everywhere.

    A shorter sample is a prefix of a longer one, and the sources and domains do not depend on
    the language, so that samples in several languages are parallel.

    Args:
        size: Number of sentences, positive.
        language: One of `LANGUAGES`.
        seed: Seed of the sources and of the translations.

    Raises:
        ValueError: An argument is not accepted.
    """
    if size < 1:
        raise ValueError(f"size must be a positive number of sentences; got {size!r}")
    check_word("language", language, LANGUAGES)
    target = make_language(language)
    sources = Random(f"latentheads.source.{seed}")
    choices = Random(f"latentheads.{language}.{seed}")
    return [_sentence(target, sources, choices) for _ in range(size)]


def _sentence(language: Language, sources: Random, choices: Random) -> Sentence:
    """The next sentence of two streams of random numbers."""
    domain = int(sources.random() * len(DOMAINS))
    tree, source, source_logs = draw(domain, sources)
    chooser = Draw(domain, choices)
    target, alignment = language.render(tree, chooser)
    joint = [math.log(SHARE) + each for each in source_logs]
    both = [one + other for one, other in zip(joint, chooser.logs, strict=True)]
    return Sentence(
        source=source,
        target=target,
        domain=DOMAINS[domain],
        alignment=alignment,
        arcs=arcs(tree),
        log_p_target=chooser.logs[domain],
        log_p_mixture=_log_sum(both) - _log_sum(joint),
    )
