"""Sentence pairs with the exact probabilities of their translations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from latentheads.checks import check_choice, check_least
from latentheads.corpora.grammar.choice import DOMAINS, Sampler
from latentheads.corpora.grammar.languages import LANGUAGES, Language
from latentheads.corpora.grammar.languages import language as make_language
from latentheads.corpora.grammar.syntax import Arc, arcs, sample_tree

DOMAIN_PROBABILITY = 1 / len(DOMAINS)
"""p(d) of every domain d."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence pair with its alignment, dependencies and exact log-probabilities.

    Attributes:
        source: Words of the source x.
        target: Words of the translation y.
        domain: Domain d that the sentence was sampled in.
        alignment: (source index, target index), sorted; every word of both sides has a link.
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


def _log_sum_exp(terms: Sequence[float]) -> float:
    """Log sum exp."""
    largest = max(terms)
    return largest + math.log(math.fsum(math.exp(term - largest) for term in terms))


def sample(size: int, *, language: str = "velu", seed: int = 0) -> list[Sentence]:
    """Samples sentence pairs, each domain with probability 1/2, the same on every machine.

    A smaller sample is a prefix of a larger one. The sources and domains do not depend on the
    language, so that samples in several languages are parallel.
    """
    check_least({"size": size}, size=1)
    check_choice("language", language, LANGUAGES)
    target = make_language(language)
    source_rng = Random(f"latentheads.source.{seed}")
    target_rng = Random(f"latentheads.{language}.{seed}")
    return [_sample_sentence(target, source_rng, target_rng) for _ in range(size)]


def _sample_sentence(language: Language, source_rng: Random, target_rng: Random) -> Sentence:
    """Samples a sentence pair from two random number generators, one for each side."""
    domain = int(source_rng.random() * len(DOMAINS))
    tree, source, source_log_probs = sample_tree(domain, source_rng)
    sampler = Sampler(domain, target_rng)
    target, alignment = language.render(tree, sampler)
    log_sources = [math.log(DOMAIN_PROBABILITY) + log_prob for log_prob in source_log_probs]
    log_joints = [
        log_joint + log_p_target
        for log_joint, log_p_target in zip(log_sources, sampler.log_probs, strict=True)
    ]
    return Sentence(
        source=source,
        target=target,
        domain=DOMAINS[domain],
        alignment=alignment,
        arcs=arcs(tree),
        log_p_target=sampler.log_probs[domain],
        log_p_mixture=_log_sum_exp(log_joints) - _log_sum_exp(log_sources),
    )
