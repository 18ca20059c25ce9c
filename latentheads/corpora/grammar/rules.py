"""The grammar's rules of the source side and their probabilities in each domain.

A symbol is a key of `RULES` (nonterminals) or of the lexicon (preterminals). Its last components
are a grammatical number ("sg", "pl") and a depth of embedding. A rule has a label, a letter for
the role of each part, and the parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from latentheads.corpora.grammar.choice import DOMAINS, Choice
from latentheads.corpora.grammar.lexicon import LEXICON

MAX_WORDS = 24
_DEPTHS = range(3)
_NUMBERS = ("sg", "pl")


class Rule(NamedTuple):
    """A production; a rule with an empty label adds no node to the tree."""

    label: str
    roles: str
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RuleProbabilities:
    """Probabilities of the constructions in one domain."""

    plural: float
    pronoun_subject: float
    pronoun_object: float
    bare: float
    adjectives: tuple[float, float, float, float]
    degree: float
    prepositional: float
    relative: float
    verbs: tuple[float, float, float]
    relatives: tuple[float, float, float]
    adverb: float
    manner: float

    @property
    def numbers(self) -> tuple[tuple[str, float], tuple[str, float]]:
        """Both grammatical numbers with their probabilities."""
        return ("sg", 1 - self.plural), ("pl", self.plural)


RULE_PROBABILITIES: dict[str, RuleProbabilities] = {
    "news": RuleProbabilities(
        plural=0.35,
        pronoun_subject=0.08,
        pronoun_object=0.05,
        bare=0.35,
        adjectives=(0.56, 0.12, 0.25, 0.07),
        degree=0.12,
        prepositional=0.2,
        relative=0.22,
        verbs=(0.64, 0.2, 0.16),
        relatives=(0.35, 0.25, 0.4),
        adverb=0.18,
        manner=0.4,
    ),
    "talk": RuleProbabilities(
        plural=0.25,
        pronoun_subject=0.3,
        pronoun_object=0.18,
        bare=0.2,
        adjectives=(0.58, 0.24, 0.13, 0.05),
        degree=0.3,
        prepositional=0.17,
        relative=0.16,
        verbs=(0.62, 0.22, 0.16),
        relatives=(0.3, 0.3, 0.4),
        adverb=0.24,
        manner=0.5,
    ),
}

_Weighted = Iterator[tuple[float, Rule]]


def _clause(probabilities: RuleProbabilities, depth: int) -> _Weighted:
    """Transitive, intransitive and, in main clauses, ``says that ...``."""
    transitive, intransitive, clausal = probabilities.verbs
    for number, weight in probabilities.numbers:
        subject = f"subject.{number}.{depth}", "adverb?"
        for object_number, object_weight in probabilities.numbers:
            transitive_parts = (*subject, f"transitive.{number}", f"object.{object_number}.{depth}")
            yield weight * transitive * object_weight, Rule("clause", "SAVO", transitive_parts)
        intransitive_parts = (*subject, f"intransitive.{number}", "manner?")
        yield weight * intransitive, Rule("clause", "SAVM", intransitive_parts)
        if depth == 0:
            clausal_parts = (*subject, f"clausal.{number}", "complementizer", "clause.1")
            yield weight * clausal, Rule("clause", "SAVTC", clausal_parts)


def _phrase(probabilities: RuleProbabilities, role: str, number: str, depth: int) -> _Weighted:
    """A pronoun, a determined noun or a bare plural."""
    pronoun = probabilities.pronoun_subject if role == "subject" else probabilities.pronoun_object
    bare = probabilities.bare if number == "pl" else 0.0
    core = ("adjectives", f"noun.{number}", f"after.{number}.{depth}")
    determined = Rule("noun", "DJNP", (f"determiner.{number}", *core))
    yield pronoun, Rule("", "", (f"pronoun.{role}.{number}",))
    yield (1 - pronoun) * (1 - bare), determined
    if bare:
        yield (1 - pronoun) * bare, Rule("noun", "JNP", core)


def _after(probabilities: RuleProbabilities, number: str, depth: int) -> _Weighted:
    """Nothing, a prepositional phrase or, above the last depth, a relative clause."""
    decay = 0.5**depth
    relative = probabilities.relative * decay if depth + 1 in _DEPTHS else 0.0
    prepositional = probabilities.prepositional * decay
    yield 1 - prepositional - relative, Rule("", "", ())
    for object_number, object_weight in probabilities.numbers:
        yield (
            prepositional * object_weight,
            Rule("adposition", "EO", ("preposition", f"place.{object_number}")),
        )
    if relative:
        for weight, rule in _relative(probabilities, number, depth + 1):
            yield relative * weight, rule


def _relative(probabilities: RuleProbabilities, number: str, depth: int) -> _Weighted:
    """The noun as subject, transitive or not, or as object of a relative clause."""
    transitive, intransitive, gap = probabilities.relatives
    intransitive_parts = ("relative", "adverb?", f"intransitive.{number}", "manner?")
    yield intransitive, Rule("relative", "TAVM", intransitive_parts)
    for other_number, other_weight in probabilities.numbers:
        subject_relative = (
            "relative",
            "adverb?",
            f"transitive.{number}",
            f"object.{other_number}.{depth}",
        )
        yield transitive * other_weight, Rule("relative", "TAVO", subject_relative)
        object_relative = (
            "relative",
            f"subject.{other_number}.{depth}",
            "adverb?",
            f"transitive.{other_number}",
        )
        yield gap * other_weight, Rule("relative", "TSAV", object_relative)


def _optional(symbol: str, probability: float) -> _Weighted:
    """Nothing or a symbol."""
    yield 1 - probability, Rule("", "", ())
    yield probability, Rule("", "", (symbol,))


def _quality(adjective: str, degree: float) -> _Weighted:
    """An adjective with or without an adverb of degree."""
    yield 1 - degree, Rule("", "", (adjective,))
    yield degree, Rule("quality", "GJ", ("degree", adjective))


def _adjectives(probabilities: RuleProbabilities) -> _Weighted:
    """No adjective, an opinion, a kind, or both in this order."""
    none, opinion, kind, both = probabilities.adjectives
    yield none, Rule("", "", ())
    yield opinion, Rule("", "", ("quality.opinion",))
    yield kind, Rule("", "", ("quality.kind",))
    yield both, Rule("adjectives", "XY", ("quality.opinion", "quality.kind"))


def _preposition_object(number: str) -> _Weighted:
    """The noun phrase of a preposition, which nothing follows."""
    yield 1.0, Rule("noun", "DJN", (f"determiner.{number}", "adjectives", f"noun.{number}"))


def _productions(probabilities: RuleProbabilities) -> Iterator[tuple[str, _Weighted]]:
    """All nonterminals with their weighted rules in one domain."""
    yield "adverb?", _optional("adverb", probabilities.adverb)
    yield "manner?", _optional("manner", probabilities.manner)
    yield "adjectives", _adjectives(probabilities)
    yield "quality.opinion", _quality("opinion", probabilities.degree)
    yield "quality.kind", _quality("kind", probabilities.degree)
    for depth in _DEPTHS:
        yield f"clause.{depth}", _clause(probabilities, depth)
    for number in _NUMBERS:
        yield f"place.{number}", _preposition_object(number)
        for depth in _DEPTHS:
            yield f"after.{number}.{depth}", _after(probabilities, number, depth)
            for role in ("subject", "object"):
                yield f"{role}.{number}.{depth}", _phrase(probabilities, role, number, depth)


def _rules() -> dict[str, Choice[Rule]]:
    """The distribution over rules of every nonterminal, one row for each domain."""
    tables = [
        {symbol: list(rules) for symbol, rules in _productions(RULE_PROBABILITIES[domain])}
        for domain in DOMAINS
    ]
    return {
        symbol: Choice.weighted(
            (rule for _, rule in rules),
            ([weight for weight, _ in table[symbol]] for table in tables),
        )
        for symbol, rules in tables[0].items()
    }


RULES: dict[str, Choice[Rule]] = _rules()


@cache
def lengths(symbol: str, domain: int) -> tuple[float, ...]:
    """p(length = n | symbol, domain) for n = 0 .. `MAX_WORDS`, before truncation.

    The length of a rule is the sum of its parts' lengths, so their distributions are convolved. A
    symbol's length is a mixture over its rules.
    """
    if symbol in LEXICON:
        return (0.0, 1.0) + (0.0,) * (MAX_WORDS - 1)
    total = [0.0] * (MAX_WORDS + 1)
    choice = RULES[symbol]
    for rule, weight in zip(choice.options, choice.probabilities[domain], strict=True):
        product = (1.0,) + (0.0,) * MAX_WORDS
        for part in rule.parts:
            product = _convolve(product, lengths(part, domain))
        total = [previous + weight * added for previous, added in zip(total, product, strict=True)]
    return tuple(total)


def _convolve(left: tuple[float, ...], right: tuple[float, ...]) -> tuple[float, ...]:
    """Product of two polynomials up to degree `MAX_WORDS`."""
    return tuple(
        sum(left[part] * right[degree - part] for part in range(degree + 1))
        for degree in range(MAX_WORDS + 1)
    )


@cache
def log_prob_within_limit(domain: int) -> float:
    """Log-probability that a sentence of the domain has at most `MAX_WORDS` words."""
    return math.log(sum(lengths("clause.0", domain)))
