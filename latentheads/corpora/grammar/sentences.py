"""Parallel sentences with exact probabilities, and the exact law of their translations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from latentheads.checks import check_word
from latentheads.corpora.grammar.choice import DOMAINS, Draw, Likeliest, Replay, log
from latentheads.corpora.grammar.languages import LANGUAGES, Language
from latentheads.corpora.grammar.languages import language as _language
from latentheads.corpora.grammar.syntax import Arc, Node, arcs, draw, parse

__all__ = ["Sentence", "mixed_targets", "posterior", "sample", "targets", "translation"]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A source sentence, a translation, and what is known of them.

    Attributes:
        source: Words of the source x.
        target: Words of the translation y.
        language: Target language.
        domain: Domain d the sentence was drawn in.
        alignment: (source index, target index), sorted; every word of both sides has one.
        arcs: Dependencies of the source.
        log_p_source: log p(x | d).
        log_p_target: log p(y | x, d).
        log_p_mixture: log p(y | x) under the sample's proportions p(d), that is
            log sum_d p(d | x) p(y | x, d).
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    language: str
    domain: str
    alignment: tuple[tuple[int, int], ...]
    arcs: tuple[Arc, ...]
    log_p_source: float
    log_p_target: float
    log_p_mixture: float


def _known_language(language: str) -> Language:
    check_word("language", language, LANGUAGES)
    return _language(language)


def _known_domain(domain: str) -> int:
    check_word("domain", domain, DOMAINS)
    return DOMAINS.index(domain)


def _proportions(domains: Mapping[str, float] | None) -> tuple[float, ...]:
    """p(d) in the order of `DOMAINS`; weights are normalised."""
    weights = dict.fromkeys(DOMAINS, 1.0) if domains is None else dict(domains)
    for domain in weights:
        check_word("domains", domain, DOMAINS)
    total = math.fsum(weights.values())
    if not (0 < total < math.inf and min(weights.values()) >= 0):
        raise ValueError(f"domains must be non-negative weights, not all zero; got {weights!r}")
    return tuple(weights.get(domain, 0.0) / total for domain in DOMAINS)


def _log_sum(terms: Sequence[float]) -> float:
    """Log sum exp, -inf for a sum of zeros."""
    top = max(terms)
    if top == -math.inf:
        return top
    return top + math.log(math.fsum(math.exp(term - top) for term in terms))


def _joint(proportions: Sequence[float], sources: Sequence[float]) -> list[float]:
    """Log p(d) + log p(x | d) for every domain."""
    return [log(share) + source for share, source in zip(proportions, sources, strict=True)]


def sample(
    size: int,
    *,
    language: str = "velu",
    domains: Mapping[str, float] | None = None,
    seed: int = 0,
) -> list[Sentence]:
    """Draw sentences; the same arguments give the same sentences everywhere.

    A shorter sample is a prefix of a longer one, and the sources and domains do not depend on
    the language, so that samples in several languages are parallel.

    Args:
        size: Number of sentences, positive.
        language: One of `LANGUAGES`.
        domains: Proportions of the domains, equal by default.
        seed: Seed of the sources and of the translations.

    Raises:
        ValueError: An argument is not accepted.
    """
    if size < 1:
        raise ValueError(f"size must be a positive number of sentences; got {size!r}")
    target = _known_language(language)
    proportions = _proportions(domains)
    sources = Random(f"latentheads.source.{seed}")
    choices = Random(f"latentheads.{language}.{seed}")
    return [_sentence(language, target, proportions, sources, choices) for _ in range(size)]


def _sentence(
    name: str,
    language: Language,
    proportions: tuple[float, ...],
    sources: Random,
    choices: Random,
) -> Sentence:
    """The next sentence of two streams of random numbers."""
    domain = _domain(proportions, sources.random())
    tree, source, source_logs = draw(domain, sources)
    chooser = Draw(domain, choices)
    target, alignment = language.render(tree, chooser)
    joint = _joint(proportions, source_logs)
    both = [one + other for one, other in zip(joint, chooser.logs, strict=True)]
    return Sentence(
        source=source,
        target=target,
        language=name,
        domain=DOMAINS[domain],
        alignment=alignment,
        arcs=arcs(tree),
        log_p_source=source_logs[domain],
        log_p_target=chooser.logs[domain],
        log_p_mixture=_log_sum(both) - _log_sum(joint),
    )


def _domain(proportions: tuple[float, ...], uniform: float) -> int:
    """The domain whose interval of the unit line holds a uniform number."""
    below = 0.0
    for domain, share in enumerate(proportions):
        below += share
        if uniform < below:
            return domain
    return max(domain for domain, share in enumerate(proportions) if share)


def _outcomes(tree: Node, language: Language) -> Iterator[tuple[tuple[str, ...], list[float]]]:
    """Every translation of a tree with its probability in every domain."""
    pending: list[tuple[int, ...]] = [()]
    while pending:
        replay = Replay(pending.pop())
        target, _ = language.render(tree, replay)
        pending.extend(replay.deviations())
        yield target, [replay.probability(domain) for domain in range(len(DOMAINS))]


def _law(tree: Node, language: Language, weights: Sequence[float]) -> dict[tuple[str, ...], float]:
    """sum_d w_d p(y | x, d) for every y where it is positive, the likeliest first."""
    law: dict[tuple[str, ...], float] = {}
    for target, probabilities in _outcomes(tree, language):
        mass = sum(w * p for w, p in zip(weights, probabilities, strict=True))
        if mass > 0:
            law[target] = law.get(target, 0.0) + mass
    return dict(sorted(law.items(), key=lambda item: -item[1]))


def targets(source: Sequence[str], *, language: str, domain: str) -> dict[tuple[str, ...], float]:
    """The exact distribution p(y | x, d) of the translations of a source sentence.

    Args:
        source: A sentence of the grammar.
        language: One of `LANGUAGES`.
        domain: One of `DOMAINS`.

    Returns:
        Every translation of positive probability, the likeliest first; the values sum to 1.
    """
    target, known = _known_language(language), _known_domain(domain)
    weights = [float(other == known) for other in range(len(DOMAINS))]
    return _law(parse(source)[0], target, weights)


def posterior(
    source: Sequence[str], *, domains: Mapping[str, float] | None = None
) -> dict[str, float]:
    """p(d | x), proportional to p(d) p(x | d), of a source sentence.

    Args:
        source: A sentence of the grammar.
        domains: Proportions p(d), equal by default.
    """
    joint = _joint(_proportions(domains), parse(source)[1])
    total = _log_sum(joint)
    return {domain: math.exp(term - total) for domain, term in zip(DOMAINS, joint, strict=True)}


def mixed_targets(
    source: Sequence[str], *, language: str, domains: Mapping[str, float] | None = None
) -> dict[tuple[str, ...], float]:
    """The exact p(y | x) = sum_d p(d | x) p(y | x, d) when the domain is not told.

    Args:
        source: A sentence of the grammar.
        language: One of `LANGUAGES`.
        domains: Proportions p(d), equal by default.

    Returns:
        Every translation of positive probability, the likeliest first; the values sum to 1.
    """
    target = _known_language(language)
    weights = list(posterior(source, domains=domains).values())
    return _law(parse(source)[0], target, weights)


def translation(source: Sequence[str], *, language: str, domain: str) -> tuple[str, ...]:
    """The likeliest translation, argmax_y p(y | x, d), of a source sentence.

    Args:
        source: A sentence of the grammar.
        language: One of `LANGUAGES`.
        domain: One of `DOMAINS`.
    """
    target, known = _known_language(language), _known_domain(domain)
    return target.render(parse(source)[0], Likeliest(known))[0]
