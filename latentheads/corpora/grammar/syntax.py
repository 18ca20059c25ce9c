"""Source sentences: drawn from the grammar, parsed back, scored exactly, read as dependencies.

Every sentence has exactly one tree, so p(x | d) is the product of the tree's choices divided by
the probability that the grammar yields at most `LONGEST` words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from latentheads.corpora.grammar.choice import DOMAINS, Chooser, Draw
from latentheads.corpora.grammar.lexicon import LEXICON, Word
from latentheads.corpora.grammar.rules import LONGEST, RULES, Rule, log_kept

__all__ = [
    "Arc",
    "Leaf",
    "Node",
    "Tree",
    "arcs",
    "draw",
    "head",
    "log_p_sources",
    "parse",
    "parses",
    "spelled",
]


class Leaf(NamedTuple):
    """A word and its position in the source sentence."""

    place: int
    word: Word


class Node(NamedTuple):
    """A construction: `roles[i]` is the one-letter role of `children[i]`, in source order.

    Roles: S subject, V verb, O object, A adverb, M manner adverb, T "that", C clause,
    D determiner, J adjectives, N noun, P what follows the noun, E preposition, G degree,
    X and Y the two adjectives of a pair.
    """

    label: str
    roles: str
    children: tuple[Tree, ...]

    def child(self, role: str) -> Tree:
        """The child in a role that is present."""
        return self.children[self.roles.index(role)]


Tree = Leaf | Node


class Arc(NamedTuple):
    """A dependency between two source positions."""

    relation: str
    head: int
    dependent: int


def _node(rule: Rule, children: Sequence[Tree | None]) -> Tree | None:
    """The tree of a rule without its empty parts; an unlabelled rule is its only child."""
    if not rule.label:
        return children[0] if children else None
    present = [pair for pair in zip(rule.roles, children, strict=True) if pair[1] is not None]
    roles = "".join([role for role, _ in present])
    return Node(rule.label, roles, tuple([child for _, child in present if child is not None]))


def _grow(symbol: str, choose: Chooser, words: list[str]) -> Tree | None:
    """Expand a symbol, appending its words in source order."""
    lexical = LEXICON.get(symbol)
    if lexical is not None:
        word = choose(lexical)
        words.append(word.form)
        return Leaf(len(words) - 1, word)
    rule = choose(RULES[symbol])
    return _node(rule, [_grow(part, choose, words) for part in rule.parts])


def spelled(words: Sequence[str]) -> tuple[str, ...]:
    """Words with "a" written "an" before a vowel."""
    return tuple(
        [
            "an" if word == "a" and following[:1] in "aeiou" else word
            for word, following in zip(words, [*words[1:], "."])
        ]
    )


def draw(domain: int, generator: Random) -> tuple[Node, tuple[str, ...], list[float]]:
    """Draw a sentence of at most `LONGEST` words.

    Returns:
        Its tree, its words, and log p(x | d) for every domain d.
    """
    while True:
        words: list[str] = []
        chooser = Draw(domain, generator)
        tree = _grow("clause.0", chooser, words)
        if len(words) <= LONGEST and isinstance(tree, Node):
            return tree, spelled(words), _truncated(chooser.logs)


def _truncated(logs: Sequence[float]) -> list[float]:
    """Log p(x | d, length <= LONGEST) for every domain d."""
    return [value - log_kept(domain) for domain, value in enumerate(logs)]


_Parse = tuple[Tree | None, int, tuple[float, ...]]


def _plus(left: tuple[float, ...], right: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(one + other for one, other in zip(left, right, strict=True))


class _Chart:
    """All parses of every symbol from every position of one sentence."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        self.found: dict[tuple[str, int], list[_Parse]] = {}

    def parses(self, symbol: str, start: int) -> list[_Parse]:
        """Trees of a symbol that begin at a position, with their ends and log-probabilities."""
        key = symbol, start
        if key not in self.found:
            search = self._word if symbol in LEXICON else self._expand
            self.found[key] = list(search(symbol, start))
        return self.found[key]

    def _word(self, symbol: str, start: int) -> Iterator[_Parse]:
        choice = LEXICON[symbol]
        for word, logs in zip(choice.options, choice.logs, strict=True):
            if self.words[start : start + 1] == [word.form]:
                yield Leaf(start, word), start + 1, logs

    def _expand(self, symbol: str, start: int) -> Iterator[_Parse]:
        choice = RULES[symbol]
        for rule, logs in zip(choice.options, choice.logs, strict=True):
            for children, end, inner in self._sequence(rule.parts, start):
                yield _node(rule, children), end, _plus(logs, inner)

    def _sequence(
        self, parts: tuple[str, ...], start: int
    ) -> Iterator[tuple[list[Tree | None], int, tuple[float, ...]]]:
        if not parts:
            yield [], start, (0.0,) * len(DOMAINS)
            return
        for tree, middle, logs in self.parses(parts[0], start):
            for rest, end, inner in self._sequence(parts[1:], middle):
                yield [tree, *rest], end, _plus(logs, inner)


def parses(source: Sequence[str]) -> list[tuple[Node, list[float]]]:
    """Every tree of a source sentence with log p(tree | d) for every domain d."""
    words = ["a" if word == "an" else word for word in source]
    if len(words) > LONGEST or spelled(words) != tuple(source):
        return []
    return [
        (tree, _truncated(logs))
        for tree, end, logs in _Chart(words).parses("clause.0", 0)
        if end == len(words) and isinstance(tree, Node)
    ]


def parse(source: Sequence[str]) -> tuple[Node, list[float]]:
    """The tree of a source sentence and log p(x | d) for every domain d.

    Raises:
        ValueError: The grammar does not generate the sentence.
    """
    found = parses(source)
    if len(found) != 1:
        text = " ".join(source)
        raise ValueError(f"source must be a sentence of the grammar, got {text!r}")
    return found[0]


def log_p_sources(source: Sequence[str]) -> dict[str, float]:
    """Log p(x | d) of a source sentence for every domain d."""
    return dict(zip(DOMAINS, parse(source)[1], strict=True))


def head(tree: Tree) -> Leaf:
    """The noun or pronoun of a noun phrase, the adjective of a graded adjective."""
    while isinstance(tree, Node):
        tree = tree.child("J" if tree.label == "quality" else "N")
    return tree


def arcs(tree: Node) -> tuple[Arc, ...]:
    """Dependencies of a sentence, sorted; a relative clause's gap is filled by its noun.

    Relations are nsubj and dobj (verb, noun), amod (noun, adjective) and advmod (verb or
    adjective, adverb).
    """
    found: list[Arc] = []
    _collect(tree, -1, found)
    return tuple(sorted(found))


def _collect(tree: Tree, noun: int, found: list[Arc]) -> None:
    """Append the arcs of a tree that modifies or fills the noun at a position."""
    if isinstance(tree, Leaf):
        return
    if "V" in tree.roles:
        found.extend(_verbal(tree, noun))
    elif tree.label == "noun":
        noun = head(tree).place
        if "J" in tree.roles:
            found.extend(_nominal(tree.child("J"), noun))
    for child in tree.children:
        _collect(child, noun, found)


def _verbal(tree: Node, noun: int) -> Iterator[Arc]:
    """Arcs of the verb of a clause or of a relative clause on a noun."""
    verb = head(tree.child("V")).place
    gap = {"relative": "O" if "S" in tree.roles else "S"}.get(tree.label)
    for relation, role in (("nsubj", "S"), ("dobj", "O")):
        if role in tree.roles:
            yield Arc(relation, verb, head(tree.child(role)).place)
        elif role == gap:
            yield Arc(relation, verb, noun)
    for role in "AM":
        if role in tree.roles:
            yield Arc("advmod", verb, head(tree.child(role)).place)


def _nominal(tree: Tree, noun: int) -> Iterator[Arc]:
    """Arcs of the adjectives of a noun."""
    if isinstance(tree, Node) and tree.label == "adjectives":
        for child in tree.children:
            yield from _nominal(child, noun)
        return
    yield Arc("amod", noun, head(tree).place)
    if isinstance(tree, Node):
        yield Arc("advmod", head(tree).place, head(tree.child("G")).place)
