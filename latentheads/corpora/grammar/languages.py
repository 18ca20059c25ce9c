"""Five invented target languages: word order, agreement, and words generated from stems.

A language turns a source tree into a target sentence. Its morphology is agglutinative: a form is
a stem and one suffix for each feature its category inflects for. Its word order sorts the children
of every node by role. Both may be random, with known probabilities.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from random import Random
from typing import NamedTuple

from latentheads.corpora.grammar.choice import DOMAINS, Choice, Chooser
from latentheads.corpora.grammar.lexicon import ALTERNATIVES, LEXICON, Word
from latentheads.corpora.grammar.syntax import Leaf, Node, Tree, head


class Agreement(NamedTuple):
    """The grammatical features that the words of a phrase share."""

    number: str = "sg"
    gender: str = "m"
    case: str = "nominative"
    definite: str = "no"


FEATURES: dict[str, tuple[str, ...]] = {
    "number": ("sg", "pl"),
    "gender": ("m", "f"),
    "case": ("nominative", "accusative"),
    "definite": ("no", "yes"),
}

_DEFAULT = Agreement()
_ACCUSATIVE = Agreement(case="accusative")

Paradigm = dict[Agreement, str]
Orders = dict[str, float]
Suffixes = dict[str, dict[str, tuple[str, str]]]


class Order(NamedTuple):
    """Word order: for every node label, sequences of roles and their probabilities."""

    clause: Orders
    relative: Orders
    noun: Orders
    adposition: Orders
    quality: Orders
    adjectives: Orders


@dataclass(frozen=True, slots=True)
class Specification:
    """What defines a language.

    Attributes:
        description: One line on it.
        order: Word order.
        suffixes: Category, then feature, to the suffixes of the feature's two values.
        syllables: Consonants and vowels of its stems.
        article: Whether "the" is a word; otherwise only the noun's definite suffix shows it.
    """

    description: str
    order: Order
    suffixes: Suffixes
    syllables: tuple[str, str]
    article: bool = True


_VERB_MEDIAL = Order(
    clause={"SVAMOTC": 0.92, "ASVMOTC": 0.08},
    relative={"TSVAMO": 1.0},
    noun={"DNJP": 1.0},
    adposition={"EO": 1.0},
    quality={"GJ": 1.0},
    adjectives={"YX": 1.0},
)
_VERB_FINAL = Order(
    clause={"SOCTAMV": 0.92, "ASOCTMV": 0.08},
    relative={"SOAMVT": 1.0},
    noun={"PDJN": 1.0},
    adposition={"OE": 1.0},
    quality={"GJ": 1.0},
    adjectives={"XY": 1.0},
)
_VERB_INITIAL = Order(
    clause={"VSOMATC": 0.92, "AVSOMTC": 0.08},
    relative={"TVSOMA": 1.0},
    noun={"DNJP": 1.0},
    adposition={"EO": 1.0},
    quality={"JG": 1.0},
    adjectives={"XY": 1.0},
)

_FREE = Order(
    clause={"SAVOMTC": 0.4, "OAVSMTC": 0.3, "SAOVMTC": 0.15, "VASOMTC": 0.15},
    relative={"TSAVMO": 1.0},
    noun={"DJNP": 0.5, "DNJP": 0.5},
    adposition={"EO": 1.0},
    quality={"GJ": 1.0},
    adjectives={"XY": 1.0},
)

SPECIFICATIONS: dict[str, Specification] = {
    "velu": Specification(
        "SVO; adjectives and relative clauses after the noun; gender on determiner and adjective",
        _VERB_MEDIAL,
        {
            "noun": {"number": ("", "s")},
            "adjective": {"gender": ("o", "a"), "number": ("", "s")},
            "determiner": {"gender": ("o", "a"), "number": ("", "s")},
            "relative": {"gender": ("o", "a"), "number": ("", "s")},
            "verb": {"number": ("e", "on")},
            "pronoun": {"case": ("", "i")},
        },
        ("vlmrndpt", "aeiou"),
    ),
    "tamir": Specification(
        "SOV; modifiers and relative clauses before the noun; case on noun and determiner",
        _VERB_FINAL,
        {
            "noun": {"number": ("", "lar"), "case": ("", "ni")},
            "determiner": {"number": ("", "la"), "case": ("", "n")},
            "relative": {"case": ("", "n")},
            "pronoun": {"case": ("", "ni")},
        },
        ("tmrkbshy", "aiu"),
    ),
    "ostan": Specification(
        "SOV in the order of tamir; gender, number and case on determiner, agreeing verb",
        _VERB_FINAL,
        {
            "noun": {"number": ("", "ek")},
            "adjective": {"gender": ("", "os"), "number": ("", "ti")},
            "determiner": {"gender": ("", "os"), "number": ("", "ti"), "case": ("", "v")},
            "relative": {"gender": ("", "os"), "number": ("", "ti")},
            "verb": {"gender": ("a", "u"), "number": ("", "sta")},
            "pronoun": {"case": ("", "ev")},
        },
        ("stndgvkz", "aeo"),
    ),
    "korin": Specification(
        "VSO; adjectives and relative clauses after the noun; the definite article is a suffix",
        _VERB_INITIAL,
        {
            "noun": {"number": ("", "im"), "definite": ("", "ta")},
            "adjective": {"number": ("", "im")},
            "determiner": {"number": ("", "i")},
            "verb": {"number": ("", "ar")},
            "pronoun": {"case": ("", "da")},
        },
        ("krnflwgd", "eioy"),
        article=False,
    ),
    "mirel": Specification(
        "free word order: subject or object or verb first, adjectives on either side of the noun; "
        "gender and case on noun, determiner and adjective",
        _FREE,
        {
            "noun": {"number": ("", "i"), "case": ("", "m")},
            "adjective": {"gender": ("", "a"), "case": ("", "m")},
            "determiner": {"gender": ("", "a"), "case": ("", "m")},
            "relative": {"gender": ("", "a"), "case": ("", "m")},
            "verb": {"gender": ("", "a")},
            "pronoun": {"case": ("", "m")},
        },
        ("mlrnsdz", "eio"),
    ),
}

LANGUAGES: dict[str, str] = {name: spec.description for name, spec in SPECIFICATIONS.items()}


def _stems(name: str, syllables: tuple[str, str]) -> Iterator[str]:
    """Generates stems of two closed syllables without end, the same on every machine."""
    uniform = Random(f"latentheads.{name}").random
    consonants, vowels = syllables
    while True:
        shape = (consonants, vowels, consonants, vowels, consonants)
        yield "".join([letters[int(uniform() * len(letters))] for letters in shape])


def _endings(suffixes: dict[str, tuple[str, str]]) -> dict[Agreement, str]:
    """The ending of every agreement: the suffixes of the features inflected for, in turn."""
    endings = {}
    for values in product(*FEATURES.values()):
        agreement = Agreement(*values)
        endings[agreement] = "".join(
            pair[FEATURES[feature].index(getattr(agreement, feature))]
            for feature, pair in suffixes.items()
        )
    return endings


def _lemmas() -> list[tuple[str, str]]:
    """Categories and lemmas of all source words, in the order of the lexicon."""
    words = (word for choice in LEXICON.values() for word in choice.options)
    return list(dict.fromkeys((word.category, word.lemma) for word in words))


class Language:
    """A target language, made from its name and specification alone.

    Attributes:
        paradigms: The translations of every (category, lemma).
        genders: The gender of every noun and pronoun lemma.
    """

    def __init__(self, name: str, specification: Specification) -> None:
        self.specification = specification
        self._stems = _stems(name, specification.syllables)
        self._used_forms: set[str] = set()
        self.paradigms = {key: self._translations(*key) for key in _lemmas()}
        self.genders = {"she": "f"} | _genders(name)
        self._arrangements: dict[tuple[str, str], Choice[tuple[int, ...]]] = {}

    def _translations(self, category: str, lemma: str) -> Choice[Paradigm]:
        """The paradigms a lemma may take, with their probabilities."""
        rows = ALTERNATIVES.get(lemma, ((1.0,),) * len(DOMAINS))
        if lemma == "the" and not self.specification.article:
            return Choice.weighted([dict.fromkeys(_endings({}), "")], rows)
        return Choice.weighted((self._paradigm(category) for _ in rows[0]), rows)

    def _paradigm(self, category: str) -> Paradigm:
        """All forms of the next stem whose forms are new to the language."""
        endings = _endings(self.specification.suffixes.get(category, {}))
        for stem in self._stems:
            forms = {agreement: stem + ending for agreement, ending in endings.items()}
            if self._used_forms.isdisjoint(forms.values()):
                break
        self._used_forms.update(forms.values())
        return forms

    def arrangement(self, label: str, roles: str) -> Choice[tuple[int, ...]]:
        """The distribution over permutations of a node's children.

        Orders that agree on the roles present are merged into one.
        """
        key = label, roles
        if key not in self._arrangements:
            weights: dict[tuple[int, ...], float] = {}
            for order, weight in getattr(self.specification.order, label).items():
                permutation = tuple(sorted(range(len(roles)), key=lambda i: order.index(roles[i])))
                weights[permutation] = weights.get(permutation, 0.0) + weight
            rows = [list(weights.values())] * len(DOMAINS)
            self._arrangements[key] = Choice.weighted(weights, rows)
        return self._arrangements[key]

    def render(
        self, tree: Node, choose: Chooser
    ) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
        """Target words and sorted (source, target) alignment of a source tree."""
        words: list[str] = []
        alignment: list[tuple[int, int]] = []
        self._write(tree, _DEFAULT, choose, words, alignment)
        return tuple(words), tuple(sorted(alignment))

    def _write(
        self,
        tree: Tree,
        agreement: Agreement,
        choose: Chooser,
        words: list[str],
        alignment: list[tuple[int, int]],
    ) -> None:
        """Appends a tree's words; an empty form is aligned with the word that follows it."""
        if isinstance(tree, Leaf):
            form = choose(self.paradigms[tree.word.category, tree.word.lemma])[agreement]
            alignment.append((tree.position, len(words)))
            if form:
                words.append(form)
            return
        child_agreements = self._agreements(tree, agreement)
        for child in choose(self.arrangement(tree.label, tree.roles)):
            child_agreement = child_agreements.get(tree.roles[child], agreement)
            self._write(tree.children[child], child_agreement, choose, words, alignment)

    def _agreements(self, tree: Node, agreement: Agreement) -> dict[str, Agreement]:
        """The agreement of each child role where it differs from the node's own.

        Subjects are nominative, objects accusative, verbs agree with their subject. A relative
        pronoun takes number and gender of its noun and the case of its gap.
        """
        if tree.label == "noun":
            return dict.fromkeys("DJNP", self._agreement_of(tree, agreement.case))
        agreements = {"S": _DEFAULT, "O": _ACCUSATIVE}
        if "S" in tree.roles:
            agreements["V"] = self._agreement_of(tree.child("S"), "nominative")
        if tree.label == "relative":
            case = "accusative" if "S" in tree.roles else "nominative"
            agreements["T"] = agreement._replace(case=case)
            agreements.setdefault("V", agreement)
        return agreements

    def _agreement_of(self, phrase: Tree, case: str) -> Agreement:
        """The agreement that a noun phrase imposes on other words."""
        word: Word = head(phrase).word
        definite = (
            isinstance(phrase, Node)
            and "D" in phrase.roles
            and head(phrase.child("D")).word.lemma == "the"
        )
        gender = self.genders.get(word.lemma, "m")
        return Agreement(word.number, gender, case, "yes" if definite else "no")


def _genders(name: str) -> dict[str, str]:
    """A gender for every noun, sampled once for each language."""
    uniform = Random(f"latentheads.{name}.gender").random
    nouns = [lemma for category, lemma in _lemmas() if category == "noun"]
    return {lemma: FEATURES["gender"][uniform() < 0.5] for lemma in nouns}


@cache
def language(name: str) -> Language:
    """The language with a name of `LANGUAGES`."""
    return Language(name, SPECIFICATIONS[name])
