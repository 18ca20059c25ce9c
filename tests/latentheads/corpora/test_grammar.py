"""The grammar: unique trees, exact probabilities, agreement, order, reproducibility."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any, TypeVar

import pytest

from latentheads.corpora.grammar import DOMAINS, LANGUAGES, Sentence, log_p_sources, sample
from latentheads.corpora.grammar.choice import Choice, Chooser
from latentheads.corpora.grammar.languages import language as make
from latentheads.corpora.grammar.lexicon import LEXICON, Word
from latentheads.corpora.grammar.rules import MAX_WORDS, RULES, lengths
from latentheads.corpora.grammar.syntax import Arc, arcs, parse, parses, sample_tree, spell_articles

T = TypeVar("T")
Words = tuple[str, ...]

every_language = pytest.mark.parametrize("language", LANGUAGES)
unlike_languages = pytest.mark.parametrize("language", ["korin", "mirel"])
"""One that joins words, and one with many translations."""


@cache
def corpus(language: str = "velu", size: int = 500) -> tuple[Sentence, ...]:
    return tuple(sample(size, language=language, seed=3))


@cache
def words() -> dict[str, list[Word]]:
    actual: dict[str, list[Word]] = {}
    for choice in LEXICON.values():
        for word in choice.options:
            actual.setdefault(word.form, []).append(word)
    return actual


def numbers(form: str) -> set[str]:
    return {word.number for word in words()[form]}


def split(source: str) -> Words:
    return tuple(source.split())


def plain(source: tuple[str, ...]) -> list[str]:
    return ["a" if form == "an" else form for form in source]


class Replay(Chooser):
    """Repeats given option numbers, then takes first options, and notes the choices it had."""

    def __init__(self, prefix: tuple[int, ...] = ()) -> None:
        self.prefix = prefix
        self.made: list[tuple[Choice[Any], int]] = []

    def __call__(self, choice: Choice[T], /) -> T:
        if len(choice.options) == 1:
            return choice.options[0]
        size = len(self.made)
        index = self.prefix[size] if size < len(self.prefix) else 0
        self.made.append((choice, index))
        return choice.options[index]

    def probability(self, domain: str) -> float:
        row = DOMAINS.index(domain)
        return math.prod(choice.probabilities[row][index] for choice, index in self.made)

    def deviations(self) -> Iterator[tuple[int, ...]]:
        """Prefixes that leave this run after its own prefix; together they reach every run."""
        taken = tuple(index for _, index in self.made)
        for position in range(len(self.prefix), len(taken)):
            for index in range(1, len(self.made[position][0].options)):
                yield (*taken[:position], index)


def outcomes(source: Words, language: str) -> Iterator[tuple[Words, Replay]]:
    """Every translation of a source, with the choices that make it."""
    tree, pending = parse(source)[0], [()]
    while pending:
        replay = Replay(pending.pop())
        yield make(language).render(tree, replay)[0], replay
        pending.extend(replay.deviations())


def law_of(source: Words, language: str, domain: str) -> dict[Words, float]:
    """p(y | x, d) of every translation that has any, by going through all choices."""
    distribution: dict[Words, float] = {}
    for target, replay in outcomes(source, language):
        if (p := replay.probability(domain)) > 0:
            distribution[target] = distribution.get(target, 0.0) + p
    return distribution


def of_domain(domain: str, size: int, language: str = "velu", seed: int = 0) -> list[Sentence]:
    return [s for s in sample(size, language=language, seed=seed) if s.domain == domain]


def rendered(source: str, language: str) -> tuple[Words, tuple[tuple[int, int], ...]]:
    """Target and alignment where every choice takes its first option."""
    return make(language).render(parse(split(source))[0], Replay())


def order(source: str, language: str) -> str:
    """The source words in the order of their usual translation."""
    _, alignment = rendered(source, language)
    places = sorted(alignment, key=lambda pair: pair[1])
    return " ".join(split(source)[index] for index, _ in places)


# The distribution of the sources


@pytest.mark.parametrize("choice", [*RULES.values(), *LEXICON.values()])
def test_the_probabilities_of_every_choice_sum_to_one(choice: Choice[Any]) -> None:
    for row in choice.probabilities:
        assert math.fsum(row) == pytest.approx(1, abs=1e-12)


def test_every_source_has_exactly_one_tree() -> None:
    assert all(len(parses(sentence.source)) == 1 for sentence in corpus()[:100])


def test_the_tree_of_a_source_gives_back_its_probability() -> None:
    for seed in range(100):
        tree, source, log_probs = sample_tree(seed % len(DOMAINS), Random(seed))
        again, expected = parse(source)
        assert again == tree
        assert expected == pytest.approx(log_probs, abs=1e-9)


def test_p_of_a_short_source_is_its_product_by_hand() -> None:
    clause, verb = RULES["clause.0"], LEXICON["intransitive.pl"]
    pronoun = LEXICON["pronoun.subject.pl"]
    for row, domain in enumerate(DOMAINS):
        expected = sum(
            p
            for rule, p in zip(clause.options, clause.probabilities[row], strict=True)
            if rule.parts[0] == "subject.pl.0" and rule.parts[2] == "intransitive.pl"
        )
        expected *= RULES["subject.pl.0"].probabilities[row][0] * pronoun.probabilities[row][0]
        expected *= verb.probabilities[row][[word.form for word in verb.options].index("sing")]
        expected *= RULES["adverb?"].probabilities[row][0] * RULES["manner?"].probabilities[row][0]
        expected /= sum(lengths("clause.0", row))
        assert log_p_sources(("they", "sing"))[domain] == pytest.approx(math.log(expected))


@pytest.mark.parametrize("domain", DOMAINS)
def test_sampled_lengths_follow_their_generating_function(domain: str) -> None:
    distribution = lengths("clause.0", DOMAINS.index(domain))
    drawn = of_domain(domain, 1200, seed=5)
    kept, size = sum(distribution), len(drawn)
    counts = Counter(len(s.source) for s in drawn)
    assert max(counts) <= MAX_WORDS
    for length, mass in enumerate(distribution):
        p = mass / kept
        assert abs(counts[length] / size - p) <= 4 * math.sqrt(p * (1 - p) / size) + 1 / size


def test_a_sampled_source_may_have_as_many_words_as_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("latentheads.corpora.grammar.syntax.MAX_WORDS", 7)
    rng = Random(0)
    assert max(len(sample_tree(0, rng)[1]) for _ in range(200)) == 7


def test_an_article_is_spelt_by_the_word_after_it() -> None:
    source = ("a", "child", "a", "old", "a")
    assert spell_articles(source) == ("a", "child", "an", "old", "a")


@pytest.mark.parametrize(
    "source", ["", "the child see", "an child sees him", "he says that", "they sing " * 15, "qu x"]
)
def test_what_the_grammar_does_not_generate_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="source must be a sentence of the grammar"):
        parse(split(source))


# Lexicon


@every_language
def test_forms_of_different_stems_differ(language: str) -> None:
    owners: dict[str, set[int]] = {}
    for choice in make(language).paradigms.values():
        for paradigm in choice.options:
            for form in set(paradigm.values()) - {""}:
                owners.setdefault(form, set()).add(id(paradigm))
    assert all(len(owner) == 1 for owner in owners.values())


# The distribution of the translations


@unlike_languages
def test_targets_of_a_source_sum_to_one_and_have_their_enumerated_probability(
    language: str,
) -> None:
    for sentence in corpus(language)[:20]:
        distributions = {domain: law_of(sentence.source, language, domain) for domain in DOMAINS}
        for distribution in distributions.values():
            assert math.fsum(distribution.values()) == pytest.approx(1, abs=1e-12)
        expected = distributions[sentence.domain][sentence.target]
        assert math.exp(sentence.log_p_target) == pytest.approx(expected)
        targets = [target for target, _ in outcomes(sentence.source, language)]
        assert len(set(targets)) == len(targets), "different choices give different targets"


@unlike_languages
def test_mixture_equals_bayes_by_hand(language: str) -> None:
    for sentence in sample(20, language=language, seed=9):
        joint = {d: math.exp(log) for d, log in log_p_sources(sentence.source).items()}
        given = {d: law_of(sentence.source, language, d) for d in DOMAINS}
        p = sum(joint[d] * given[d].get(sentence.target, 0.0) for d in DOMAINS)
        p /= sum(joint.values())
        assert math.exp(sentence.log_p_mixture) == pytest.approx(p)


def test_domain_words_are_translated_by_their_domain() -> None:
    source = split("the fair party covers a star")
    news, talk = (law_of(source, "velu", domain) for domain in DOMAINS)
    assert len(news) == len(talk) == 1
    pairs = list(zip(*news, *talk, strict=True))
    assert [left == right for left, right in pairs] == [True, False, False, False, True, False]


# Agreement, order, alignment, arcs


def test_subject_and_verb_agree_in_the_source() -> None:
    distances = []
    for sentence in corpus():
        for relation, verb, subject in sentence.arcs:
            if relation == "nsubj":
                assert numbers(sentence.source[verb]) == numbers(sentence.source[subject])
                distances.append(abs(verb - subject))
    assert max(distances) > 8


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "the very old dog often sees him",
            "amod 3 2, advmod 2 1, nsubj 5 3, advmod 5 4, dobj 5 6",
        ),
        ("dogs that she sees sleep together", "nsubj 3 2, dobj 3 0, nsubj 4 0, advmod 4 5"),
        ("a man that always waits laughs", "nsubj 4 1, advmod 4 3, nsubj 5 1"),
        ("she loves old songs near the shy man", "nsubj 1 0, dobj 1 3, amod 3 2, amod 7 6"),
    ],
)
def test_arcs_of_a_source_are_those_by_hand(source: str, expected: str) -> None:
    by_hand = [arc.split() for arc in expected.split(", ")]
    wanted = sorted(Arc(name, int(head), int(tail)) for name, head, tail in by_hand)
    assert arcs(parse(split(source))[0]) == tuple(wanted)


@every_language
def test_alignment_covers_every_word_of_both_sides(language: str) -> None:
    for sentence in corpus(language):
        left, right = zip(*sentence.alignment, strict=True)
        assert set(left) == set(range(len(sentence.source)))
        assert set(right) == set(range(len(sentence.target)))
        assert list(sentence.alignment) == sorted(sentence.alignment)


@pytest.mark.parametrize("language", [name for name in LANGUAGES if name != "korin"])
def test_alignment_is_one_to_one_where_the_article_is_a_word(language: str) -> None:
    for sentence in corpus(language):
        assert len(sentence.alignment) == len(sentence.source) == len(sentence.target)


def test_korin_writes_the_definite_article_into_its_noun() -> None:
    definite, alignment = rendered("the road leaves", "korin")
    indefinite, _ = rendered("a road leaves", "korin")
    assert definite == (indefinite[0], indefinite[2] + "ta")
    assert alignment == ((0, 1), (1, 1), (2, 0))


@pytest.mark.parametrize(
    ("language", "main", "relative"),
    [
        ("velu", "a man shy sees always this dog", "a man that sees this dog waits"),
        ("tamir", "a shy man this dog always sees", "this dog sees that a man waits"),
        ("ostan", "a shy man this dog always sees", "this dog sees that a man waits"),
        ("korin", "sees a man shy this dog always", "waits a man that sees this dog"),
    ],
)
def test_clauses_have_their_word_order(language: str, main: str, relative: str) -> None:
    assert order("a shy man always sees this dog", language) == main
    assert order("a man that sees this dog waits", language) == relative


@pytest.mark.parametrize("noun", ["dog", "mother", "man", "movie", "city", "kitchen"])
def test_velu_determiners_and_adjectives_agree_with_their_noun(noun: str) -> None:
    target, alignment = rendered(f"this shy {noun} leaves", "velu")
    ending = {"m": "o", "f": "a"}[make("velu").genders[noun]]
    places = dict(alignment)
    assert target[places[0]][-1] == target[places[1]][-1] == ending


def test_tamir_marks_objects_by_case() -> None:
    target, _ = rendered("dogs love dogs", "tamir")
    assert target[1] == target[0] + "ni"


@pytest.mark.parametrize(("pronoun", "ending"), [("he", "a"), ("she", "u")])
def test_ostan_verbs_agree_with_their_subject_across_a_clause(pronoun: str, ending: str) -> None:
    target, _ = rendered(f"{pronoun} sees dogs that laugh", "ostan")
    assert target[0] == rendered(f"{pronoun} sings", "ostan")[0][0]
    assert target[-1].endswith(ending)


# Sampling


def test_same_seed_gives_the_same_corpus_and_another_seed_another() -> None:
    assert sample(50, seed=1) == sample(50, seed=1) != sample(50, seed=2)


def test_a_shorter_sample_is_a_prefix_of_a_longer_one() -> None:
    assert sample(20, language="korin", seed=4) == sample(60, language="korin", seed=4)[:20]


def test_sources_are_shared_across_languages() -> None:
    first, *others = ([(s.source, s.domain) for s in corpus(name)] for name in LANGUAGES)
    assert all(other == first for other in others)


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("velu", "rimir morile vamopo pidot lepumo tipolo viteme"),
        ("tamir", "huruh hirut husum sarutn tasab batakni kusar"),
        ("ostan", "tevet todova seven kozanv gavas totev dasova"),
        ("korin", "dokok kekid likof riwiw lowen difol rikeg"),
        ("mirel", "ridezam lisism norozam risida zelena dinem mises"),
    ],
)
def test_the_second_sentence_of_seed_zero_never_changes(language: str, expected: str) -> None:
    sentence = sample(2, language=language)[1]
    assert sentence.source == split("he knows a nice teacher that sleeps")
    assert sentence.target == split(expected)
    assert log_p_sources(sentence.source)[sentence.domain] == pytest.approx(-20.976518, abs=1e-6)


@pytest.mark.parametrize(
    ("size", "language", "message"),
    [
        (3, "latin", "^language must be one of velu, tamir, ostan, korin, mirel; got 'latin'$"),
        (0, "velu", "^size must be at least 1, got 0$"),
    ],
)
def test_an_unknown_argument_is_refused_in_one_line(size: int, language: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sample(size, language=language)
