"""Source sentences: sampling, parsing, exact log-probabilities and dependencies.

Every sentence has exactly one tree. So p(x | d) is the product of the probabilities of the tree's
choices, divided by the probability that a sentence has at most `MAX_WORDS` words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import add
from random import Random
from typing import NamedTuple

from latentheads.corpora.grammar.choice import DOMAINS, Chooser, Sampler
from latentheads.corpora.grammar.lexicon import LEXICON, Word
from latentheads.corpora.grammar.rules import MAX_WORDS, RULES, Rule, log_prob_within_limit
from latentheads.errors import shown


class Leaf(NamedTuple):
    """A word and its position in the source sentence."""

    position: int
    word: Word


class Node(NamedTuple):
    """A phrase: `roles[i]` is the one-letter role of `children[i]`, in source order.

    Roles: S subject, V verb, O object, A adverb, M manner adverb, T "that", C clause,
    D determiner, J adjectives, N noun, P what follows the noun, E preposition, G degree,
    X and Y the two adjectives of a pair.
    """

    label: str
    roles: str
    children: tuple[Tree, ...]

    def child(self, role: str) -> Tree:
        """The child with a role that is present."""
        return self.children[self.roles.index(role)]


Tree = Leaf | Node


class Arc(NamedTuple):
    """A dependency between two source positions."""

    relation: str
    head: int
    dependent: int


def _node(rule: Rule, children: Sequence[Tree | None]) -> Tree | None:
    """The tree of a rule without its empty parts; a rule without a label returns its only child."""
    if not rule.label:
        return children[0] if children else None
    present = [pair for pair in zip(rule.roles, children, strict=True) if pair[1] is not None]
    roles = "".join([role for role, _ in present])
    return Node(rule.label, roles, tuple([child for _, child in present if child is not None]))


def _expand_symbol(symbol: str, choose: Chooser, words: list[str]) -> Tree | None:
    """Expands a symbol and appends its words in source order."""
    lexical = LEXICON.get(symbol)
    if lexical is not None:
        word = choose(lexical)
        words.append(word.form)
        return Leaf(len(words) - 1, word)
    rule = choose(RULES[symbol])
    return _node(rule, [_expand_symbol(part, choose, words) for part in rule.parts])


def spell_articles(words: Sequence[str]) -> tuple[str, ...]:
    """Replaces "a" by "an" before a vowel."""
    return tuple(
        [
            "an" if word == "a" and following[:1] in "aeiou" else word
            for word, following in zip(words, [*words[1:], "."])
        ]
    )


def sample_tree(domain: int, rng: Random) -> tuple[Node, tuple[str, ...], list[float]]:
    """Samples a sentence of at most `MAX_WORDS` words by rejection.

    Returns:
        Its tree, its words, and log p(x | d) for every domain d.
    """
    while True:
        words: list[str] = []
        sampler = Sampler(domain, rng)
        tree = _expand_symbol("clause.0", sampler, words)
        if len(words) <= MAX_WORDS and isinstance(tree, Node):
            return tree, spell_articles(words), _renormalise(sampler.log_probs)


def _renormalise(log_probs: Sequence[float]) -> list[float]:
    """Log p(x | d, length <= `MAX_WORDS`) for every domain d."""
    return [log_prob - log_prob_within_limit(domain) for domain, log_prob in enumerate(log_probs)]


_Parse = tuple[Tree | None, int, tuple[float, ...]]


def _add(left: tuple[float, ...], right: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(map(add, left, right))


class _Chart:
    """A memoised chart of all parses of every symbol from every position of one sentence."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        self.parsed: dict[tuple[str, int], list[_Parse]] = {}

    def parses(self, symbol: str, start: int) -> list[_Parse]:
        """The trees of a symbol from a start position, with their ends and log-probabilities."""
        key = symbol, start
        if key not in self.parsed:
            search = self._word if symbol in LEXICON else self._expand
            self.parsed[key] = list(search(symbol, start))
        return self.parsed[key]

    def _word(self, symbol: str, start: int) -> Iterator[_Parse]:
        choice = LEXICON[symbol]
        for word, log_probs in zip(choice.options, choice.log_probs, strict=True):
            if self.words[start : start + 1] == [word.form]:
                yield Leaf(start, word), start + 1, log_probs

    def _expand(self, symbol: str, start: int) -> Iterator[_Parse]:
        choice = RULES[symbol]
        for rule, log_probs in zip(choice.options, choice.log_probs, strict=True):
            for children, end, inner in self._sequence(rule.parts, start):
                yield _node(rule, children), end, _add(log_probs, inner)

    def _sequence(
        self, parts: tuple[str, ...], start: int
    ) -> Iterator[tuple[list[Tree | None], int, tuple[float, ...]]]:
        if not parts:
            yield [], start, (0.0,) * len(DOMAINS)
            return
        for tree, middle, log_probs in self.parses(parts[0], start):
            for rest, end, inner in self._sequence(parts[1:], middle):
                yield [tree, *rest], end, _add(log_probs, inner)


def parses(source: Sequence[str]) -> list[tuple[Node, list[float]]]:
    """Every tree of a source sentence with log p(tree | d) for every domain d."""
    words = ["a" if word == "an" else word for word in source]
    if len(words) > MAX_WORDS or spell_articles(words) != tuple(source):
        return []
    return [
        (tree, _renormalise(log_probs))
        for tree, end, log_probs in _Chart(words).parses("clause.0", 0)
        if end == len(words) and isinstance(tree, Node)
    ]


def parse(source: Sequence[str]) -> tuple[Node, list[float]]:
    """The tree of a source sentence and log p(x | d) for every domain d."""
    trees = parses(source)
    if len(trees) != 1:
        text = " ".join(source)
        raise ValueError(f"source must be a sentence of the grammar, got {shown(text)}")
    return trees[0]


def log_p_sources(source: Sequence[str]) -> dict[str, float]:
    """Log p(x | d) of a source sentence for every domain d."""
    return dict(zip(DOMAINS, parse(source)[1], strict=True))


def head(tree: Tree) -> Leaf:
    """The head word: the noun or pronoun of a noun phrase, the adjective of a graded adjective."""
    while isinstance(tree, Node):
        tree = tree.child("J" if tree.label == "quality" else "N")
    return tree


def arcs(tree: Node) -> tuple[Arc, ...]:
    """The dependencies of a sentence, sorted; a relative clause's gap is filled by its noun.

    Relations are nsubj and dobj (verb, noun), amod (noun, adjective) and advmod (verb or
    adjective, adverb).
    """
    collected: list[Arc] = []
    _collect(tree, -1, collected)
    return tuple(sorted(collected))


def _collect(tree: Tree, noun: int, collected: list[Arc]) -> None:
    """Appends the arcs of a tree that modifies, or fills the gap of, the noun at a position."""
    if isinstance(tree, Leaf):
        return
    if "V" in tree.roles:
        collected.extend(_verbal(tree, noun))
    elif tree.label == "noun":
        noun = head(tree).position
        if "J" in tree.roles:
            collected.extend(_nominal(tree.child("J"), noun))
    for child in tree.children:
        _collect(child, noun, collected)


def _verbal(tree: Node, noun: int) -> Iterator[Arc]:
    """Arcs of the verb of a clause or of a relative clause on a noun."""
    verb = head(tree.child("V")).position
    gap = {"relative": "O" if "S" in tree.roles else "S"}.get(tree.label)
    for relation, role in (("nsubj", "S"), ("dobj", "O")):
        if role in tree.roles:
            yield Arc(relation, verb, head(tree.child(role)).position)
        elif role == gap:
            yield Arc(relation, verb, noun)
    for role in "AM":
        if role in tree.roles:
            yield Arc("advmod", verb, head(tree.child(role)).position)


def _nominal(tree: Tree, noun: int) -> Iterator[Arc]:
    """Arcs of the adjectives of a noun."""
    if isinstance(tree, Node) and tree.label == "adjectives":
        for child in tree.children:
            yield from _nominal(child, noun)
        return
    yield Arc("amod", noun, head(tree).position)
    if isinstance(tree, Node):
        yield Arc("advmod", head(tree).position, head(tree.child("G")).position)
