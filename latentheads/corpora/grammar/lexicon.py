"""English words of the source side, with Zipfian frequencies that differ between domains.

Each class of words has three lists: common words, words of the domain news, words of the domain
talk. A domain ranks common words and its own alternately, then the other domain's. Rank r has a
probability proportional to 1 / (r + c).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, zip_longest
from typing import NamedTuple

from latentheads.corpora.grammar.choice import Choice


class Word(NamedTuple):
    """One source word form: its spelling, lemma, category and number ("sg", "pl" or "")."""

    form: str
    lemma: str
    category: str
    number: str = ""


_NOUNS = (
    "child/children man/men woman/women party/parties friend paper house star city/cities "
    "match/matches teacher board road court student doctor",
    "minister government president company/companies leader bank judge market senator lawyer "
    "soldier election budget treaty/treaties",
    "mother dog sister game father cat brother song neighbor movie dinner kitchen garden birthday",
)
_TRANSITIVE = (
    "see know find help follow cover remember charge visit",
    "support criticize reject accuse approve elect investigate",
    "love like hug miss/misses kiss/kisses tease feed",
)
_INTRANSITIVE = (
    "wait leave work arrive",
    "resign protest vote retreat hesitate",
    "sleep laugh cry/cries dance sing",
)
_CLAUSAL = ("say think believe", "claim announce", "hope guess/guesses")
_OPINION = (
    "good bad strange fair famous",
    "powerful rich corrupt angry dangerous",
    "nice happy funny silly lazy",
)
_KIND = (
    "old new young big small",
    "foreign national secret military poor",
    "little tired hungry shy blond",
)
_ADVERBS = ("often always never", "rarely publicly openly", "really usually sometimes")
_MANNERS = ("quickly together alone", "abroad peacefully slowly", "loudly outside happily")
_DEGREES = ("very quite", "extremely", "too")
_PREPOSITIONS = ("with near", "from without", "behind beside")

_DETERMINERS = {"sg": "the a this/this every", "pl": "the some these/this many few all"}
_PRONOUNS = {
    "subject.sg": "he/he she/she",
    "subject.pl": "they/they we/we",
    "object.sg": "him/he her/she",
    "object.pl": "them/they us/we",
}

ALTERNATIVES: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "party": ((1.0, 0.0), (0.0, 1.0)),
    "star": ((1.0, 0.0), (0.0, 1.0)),
    "board": ((1.0, 0.0), (0.0, 1.0)),
    "court": ((1.0, 0.0), (0.0, 1.0)),
    "cover": ((1.0, 0.0), (0.0, 1.0)),
    "charge": ((1.0, 0.0), (0.0, 1.0)),
    "fair": ((1.0, 0.0), (0.0, 1.0)),
    "child": ((0.9, 0.1), (0.9, 0.1)),
    "paper": ((0.8, 0.2), (0.8, 0.2)),
    "minister": ((0.94, 0.06), (0.94, 0.06)),
    "mother": ((0.94, 0.06), (0.94, 0.06)),
    "see": ((0.96, 0.04), (0.92, 0.08)),
    "say": ((0.94, 0.06), (0.9, 0.1)),
    "wait": ((0.9, 0.1), (0.9, 0.1)),
    "good": ((0.94, 0.06), (0.9, 0.1)),
    "old": ((0.94, 0.06), (0.94, 0.06)),
    "often": ((0.85, 0.15), (0.95, 0.05)),
    "near": ((0.94, 0.06), (0.94, 0.06)),
}
"""Lemmas with two translations and p(translation | domain), one row for each domain.

Rows of zeros and ones are two senses that the domain alone determines; the others are synonyms.
"""

_Classes = tuple[str, str, str]


def _forms(entry: str) -> tuple[str, str]:
    """The bare form and the form in -s: `dog` or, when irregular, `man/men`."""
    bare, _, other = entry.partition("/")
    return bare, other or bare + "s"


def _alternating(first: list[str], second: list[str]) -> Iterator[str]:
    pairs = chain.from_iterable(zip_longest(first, second))
    return (entry for entry in pairs if entry is not None)


def _weights(classes: _Classes, constant: float) -> list[list[float]]:
    """Weights 1 / (rank + constant) of all entries, one row for each domain."""
    common, news, talk = (entries.split() for entries in classes)
    rankings = [*_alternating(common, news), *talk], [*_alternating(common, talk), *news]
    return [
        [1 / (ranking.index(entry) + 1 + constant) for entry in (*common, *news, *talk)]
        for ranking in rankings
    ]


def _content_words(classes: _Classes, category: str, form: int, number: str = "") -> Choice[Word]:
    """The distribution over a class of words in the bare form (0) or the form in -s (1)."""
    pairs = [_forms(entry) for entry in " ".join(classes).split()]
    words = (Word(pair[form], pair[0], category, number) for pair in pairs)
    return Choice.weighted(words, _weights(classes, 1.0 if len(pairs) > 6 else 0.5))


def _function_words(entries: str, category: str, number: str = "") -> Choice[Word]:
    """The distribution over function words written `form/lemma`, the same in both domains."""
    pairs = [entry.partition("/") for entry in entries.split()]
    words = [Word(form, lemma or form, category, number) for form, _, lemma in pairs]
    return Choice.weighted(words, [[1 / rank for rank, _ in enumerate(words, 1)]] * 2)


def _numbered() -> Iterator[tuple[str, Choice[Word]]]:
    """Words with a singular and a plural; nouns take -s in the plural, verbs in the singular."""
    for plural, number in enumerate(("sg", "pl")):
        yield f"noun.{number}", _content_words(_NOUNS, "noun", plural, number)
        yield f"transitive.{number}", _content_words(_TRANSITIVE, "verb", 1 - plural, number)
        yield f"intransitive.{number}", _content_words(_INTRANSITIVE, "verb", 1 - plural, number)
        yield f"clausal.{number}", _content_words(_CLAUSAL, "verb", 1 - plural, number)
        yield f"determiner.{number}", _function_words(_DETERMINERS[number], "determiner", number)
    for role, entries in _PRONOUNS.items():
        yield f"pronoun.{role}", _function_words(entries, "pronoun", role[-2:])


LEXICON: dict[str, Choice[Word]] = {
    **dict(_numbered()),
    "opinion": _content_words(_OPINION, "adjective", 0),
    "kind": _content_words(_KIND, "adjective", 0),
    "adverb": _content_words(_ADVERBS, "adverb", 0),
    "manner": _content_words(_MANNERS, "adverb", 0),
    "degree": _content_words(_DEGREES, "degree", 0),
    "preposition": _content_words(_PREPOSITIONS, "preposition", 0),
    "relative": _function_words("that", "relative"),
    "complementizer": _function_words("that/whether", "complementizer"),
}
"""Every lexical symbol (preterminal) of the grammar with its words and their probabilities."""
