"""Constructions of the source side: the grammar's rules and their probabilities in each domain.

A symbol is a key of `RULES` or of the lexicon; its last parts are a number ("sg", "pl") and a
depth of embedding. A rule is a label, a letter for the role of each part, and the parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from latentheads.corpora.grammar.choice import DOMAINS, Choice
from latentheads.corpora.grammar.lexicon import LEXICON

__all__ = ["HABITS", "LONGEST", "RULES", "Habits", "Rule", "lengths", "log_kept"]

LONGEST = 24
_DEPTHS = range(3)
_NUMBERS = ("sg", "pl")


class Rule(NamedTuple):
    """A production; an empty label marks a rule that leaves no node of its own."""

    label: str
    roles: str
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Habits:
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
        """Both numbers with their probabilities."""
        return ("sg", 1 - self.plural), ("pl", self.plural)


HABITS: dict[str, Habits] = {
    "news": Habits(
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
    "talk": Habits(
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


def _clause(habits: Habits, depth: int) -> _Weighted:
    """Transitive, intransitive and, in main clauses, "says that ..."."""
    transitive, intransitive, clausal = habits.verbs
    for number, weight in habits.numbers:
        front = f"subject.{number}.{depth}", "adverb?"
        for other, share in habits.numbers:
            sees = (*front, f"transitive.{number}", f"object.{other}.{depth}")
            yield weight * transitive * share, Rule("clause", "SAVO", sees)
        waits = (*front, f"intransitive.{number}", "manner?")
        yield weight * intransitive, Rule("clause", "SAVM", waits)
        if depth == 0:
            says = (*front, f"clausal.{number}", "complementizer", "clause.1")
            yield weight * clausal, Rule("clause", "SAVTC", says)


def _phrase(habits: Habits, role: str, number: str, depth: int) -> _Weighted:
    """A pronoun, a determined noun or a bare plural."""
    pronoun = habits.pronoun_subject if role == "subject" else habits.pronoun_object
    bare = habits.bare if number == "pl" else 0.0
    core = ("adjectives", f"noun.{number}", f"after.{number}.{depth}")
    determined = Rule("noun", "DJNP", (f"determiner.{number}", *core))
    yield pronoun, Rule("", "", (f"pronoun.{role}.{number}",))
    yield (1 - pronoun) * (1 - bare), determined
    if bare:
        yield (1 - pronoun) * bare, Rule("noun", "JNP", core)


def _after(habits: Habits, number: str, depth: int) -> _Weighted:
    """Nothing, a prepositional phrase or, above the last depth, a relative clause."""
    fade = 0.5**depth
    relative = habits.relative * fade if depth + 1 in _DEPTHS else 0.0
    prepositional = habits.prepositional * fade
    yield 1 - prepositional - relative, Rule("", "", ())
    for other, share in habits.numbers:
        yield prepositional * share, Rule("adposition", "EO", ("preposition", f"place.{other}"))
    if relative:
        for weight, rule in _relative(habits, number, depth + 1):
            yield relative * weight, rule


def _relative(habits: Habits, number: str, depth: int) -> _Weighted:
    """The noun as subject, transitive or not, or as object of a relative clause."""
    transitive, intransitive, gap = habits.relatives
    waits = ("relative", "adverb?", f"intransitive.{number}", "manner?")
    yield intransitive, Rule("relative", "TAVM", waits)
    for other, share in habits.numbers:
        sees = ("relative", "adverb?", f"transitive.{number}", f"object.{other}.{depth}")
        yield transitive * share, Rule("relative", "TAVO", sees)
        seen = ("relative", f"subject.{other}.{depth}", "adverb?", f"transitive.{other}")
        yield gap * share, Rule("relative", "TSAV", seen)


def _optional(symbol: str, probability: float) -> _Weighted:
    """Nothing or a symbol."""
    yield 1 - probability, Rule("", "", ())
    yield probability, Rule("", "", (symbol,))


def _quality(adjective: str, degree: float) -> _Weighted:
    """An adjective with or without an adverb of degree."""
    yield 1 - degree, Rule("", "", (adjective,))
    yield degree, Rule("quality", "GJ", ("degree", adjective))


def _adjectives(habits: Habits) -> _Weighted:
    """No adjective, an opinion, a kind, or both in this order."""
    none, opinion, kind, both = habits.adjectives
    yield none, Rule("", "", ())
    yield opinion, Rule("", "", ("quality.opinion",))
    yield kind, Rule("", "", ("quality.kind",))
    yield both, Rule("adjectives", "XY", ("quality.opinion", "quality.kind"))


def _place(number: str) -> _Weighted:
    """The noun phrase of a preposition, which nothing follows."""
    yield 1.0, Rule("noun", "DJN", (f"determiner.{number}", "adjectives", f"noun.{number}"))


def _productions(habits: Habits) -> Iterator[tuple[str, _Weighted]]:
    """All symbols with their weighted rules in one domain."""
    yield "adverb?", _optional("adverb", habits.adverb)
    yield "manner?", _optional("manner", habits.manner)
    yield "adjectives", _adjectives(habits)
    yield "quality.opinion", _quality("opinion", habits.degree)
    yield "quality.kind", _quality("kind", habits.degree)
    for depth in _DEPTHS:
        yield f"clause.{depth}", _clause(habits, depth)
    for number in _NUMBERS:
        yield f"place.{number}", _place(number)
        for depth in _DEPTHS:
            yield f"after.{number}.{depth}", _after(habits, number, depth)
            for role in ("subject", "object"):
                yield f"{role}.{number}.{depth}", _phrase(habits, role, number, depth)


def _rules() -> dict[str, Choice[Rule]]:
    """One choice of rules a symbol, its rows the domains."""
    tables = [
        {symbol: list(rules) for symbol, rules in _productions(HABITS[domain])}
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
    """p(length = n | symbol, domain) for n = 0 .. `LONGEST`, before truncation.

    Lengths add along a rule and mix over rules, so their generating functions multiply and add.
    """
    if symbol in LEXICON:
        return (0.0, 1.0) + (0.0,) * (LONGEST - 1)
    total = [0.0] * (LONGEST + 1)
    choice = RULES[symbol]
    for rule, weight in zip(choice.options, choice.probabilities[domain], strict=True):
        product = (1.0,) + (0.0,) * LONGEST
        for part in rule.parts:
            product = _convolved(product, lengths(part, domain))
        total = [old + weight * new for old, new in zip(total, product, strict=True)]
    return tuple(total)


def _convolved(left: tuple[float, ...], right: tuple[float, ...]) -> tuple[float, ...]:
    """Product of two polynomials up to degree `LONGEST`."""
    return tuple(
        sum(left[part] * right[degree - part] for part in range(degree + 1))
        for degree in range(LONGEST + 1)
    )


@cache
def log_kept(domain: int) -> float:
    """Log-probability that a sentence of the domain has at most `LONGEST` words."""
    return math.log(sum(lengths("clause.0", domain)))
