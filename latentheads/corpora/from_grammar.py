"""Corpora drawn from the grammar, whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from statistics import fmean

from latentheads.checks import check_known
from latentheads.corpora.corpus import Corpus, Part, known_truth
from latentheads.corpora.grammar import DOMAINS, ENGLISH, LANGUAGES, Sentence, log_p_sources, sample
from latentheads.corpora.multi_task import TaskText, encode_tasks
from latentheads.corpora.tasks import Mixture, Task
from latentheads.corpora.vocabulary import Words
from latentheads.metrics.alignment import Links

__all__ = ["sample_pairs", "sample_tasks", "sample_text_corpus"]

Truth = Callable[[Sentence], float]
"""Reads the exact log p(y | x) of a sentence; NaN where it is not known."""


def sample_pairs(
    sentences: int = 20_000, held_out: int = 500, language: str = next(iter(LANGUAGES))
) -> Corpus:
    """Draws a parallel corpus from the synchronous grammar, the same one everywhere.

    No held-out source sentence occurs in training.

    Args:
        sentences: Training sentences.
        held_out: Sentences of valid, and of test.
        language: Target language.
    """
    _check_sizes(sentences, held_out)
    drawn = sample(sentences + 8 * held_out, language=language)
    train, seen = drawn[:sentences], {sentence.source for sentence in drawn[:sentences]}
    fresh = {s.source: s for s in reversed(drawn[sentences:]) if s.source not in seen}
    rest = list(reversed(fresh.values()))[: 2 * held_out]
    source = Words.count(" ".join(sentence.source) for sentence in train)
    target = Words.count(" ".join(sentence.target) for sentence in train)
    half = len(rest) // 2

    def part(chosen: Sequence[Sentence], linked: bool = True) -> Part:
        references = [" ".join(sentence.target) for sentence in chosen]
        targets = target.encode_all(references)
        sources = source.encode_all(" ".join(sentence.source) for sentence in chosen)
        return Part(
            targets=targets,
            sources=sources,
            references=references,
            truth=known_truth([sentence.log_p_mixture for sentence in chosen], targets, sources),
            links=[frozenset(sentence.alignment) for sentence in chosen] if linked else (),
        )

    parts = part(train, linked=False), part(rest[:half]), part(rest[half:])
    return Corpus(f"grammar-{language}", *parts, target, source)


def sample_text_corpus(sentences: int = 20_000, held_out: int = 500) -> Corpus:
    """Draws the grammar's English-like side alone, for a language model.

    The parts are independent draws, so that log p(x) is exact in expectation too; held-out
    sentences may occur in training.

    Args:
        sentences: Training sentences.
        held_out: Sentences of valid, and of test.
    """
    _check_sizes(sentences, held_out)
    drawn = sample(sentences + 2 * held_out)
    words = Words.count(" ".join(sentence.source) for sentence in drawn[:sentences])

    def part(chosen: Sequence[Sentence], known: bool = True) -> Part:
        references = [" ".join(sentence.source) for sentence in chosen]
        targets = words.encode_all(references)
        exact = [_log_p(sentence.source) for sentence in chosen] if known else None
        return Part(
            targets=targets,
            sources=None,
            references=references,
            truth=exact and known_truth(exact, targets),
        )

    valid, test = drawn[sentences : sentences + held_out], drawn[sentences + held_out :]
    parts = part(drawn[:sentences], known=False), part(valid), part(test)
    return Corpus("grammar-sources", *parts, words)


def sample_tasks(mixture: Mixture, sizes: Sequence[int], held_out: int = 500) -> Corpus:
    """Draws a corpus of several tasks from the synchronous grammar.

    All languages translate the same English-like sentences. No sentence that a task is tested on
    occurs in the training of any. The exact log p(y | x) is known of translations of the
    English-like side: that of the task's domain where the model may know it, because it tells
    domains apart or because the direction has one only, else of both domains mixed equally; NaN
    where the tasks of a direction do not mix them so.

    Args:
        mixture: The tasks, between ``en`` and `latentheads.corpora.grammar.LANGUAGES`, each of a
            domain of `latentheads.corpora.grammar.DOMAINS` or of both.
        sizes: Training sentences of each task.
        held_out: Sentences of valid, and of test, of each task.

    Raises:
        ValueError: A language or a domain is not the grammar's.
    """
    _check_sizes(*sizes, held_out)
    _check_tasks(mixture)
    languages = dict.fromkeys(chain(*((task.source, task.target) for task in mixture.tasks)))
    several = any(task.domain for task in mixture.tasks)
    spread = len(DOMAINS) if several else 1
    trained = spread * max(sizes) + (10 * math.isqrt(max(sizes)) + 20) * (spread - 1)
    drawn = {
        language: sample(trained + 8 * spread * held_out, language=language)
        for language in languages
        if language != ENGLISH
    }
    first = next(iter(drawn.values()))
    seen = {sentence.source for sentence in first[:trained]}
    fresh = {s.source: place for place, s in reversed([*enumerate(first)][trained:])}
    rest = sorted(place for source, place in fresh.items() if source not in seen)
    parts: list[list[TaskText]] = [[], [], []]
    for task, size in zip(mixture.tasks, sizes, strict=True):
        truth = _truth_of(mixture, task)
        learned = _of_domain(first, range(trained), task)[:size]
        others = _of_domain(first, rest, task)[: 2 * held_out]
        half = len(others) // 2
        for part, places in zip(parts, (learned, others[:half], others[half:]), strict=True):
            part.append(_task_text(drawn, task, places, truth, linked=part is not parts[0]))
    sides = ((pair[side] for text in parts[0] for pair in text.pairs) for side in (0, 1))
    source, target = (Words.count(lines) for lines in sides)
    return encode_tasks("grammar", mixture, parts, source, target)


def _check_sizes(*sizes: int) -> None:
    if min(sizes) < 1:
        raise ValueError("sentences and held_out must be positive")


def _log_p(source: Sequence[str]) -> float:
    """Log p(x), of both domains mixed equally."""
    return math.log(fmean(map(math.exp, log_p_sources(source).values())))


def _check_tasks(mixture: Mixture) -> None:
    for task in mixture.tasks:
        for language in (task.source, task.target):
            check_known("language", language, (ENGLISH, *LANGUAGES), f"task {task.name}")
        if task.domain:
            check_known("domain", task.domain, DOMAINS, f"task {task.name}")


def _truth_of(mixture: Mixture, task: Task) -> Truth:
    """Reads from a sentence of a task what its exact log p is, as far as the model may know it."""
    same = [other.domain for other in mixture.tasks if other.direction == task.direction]
    if task.source != ENGLISH:
        return _unknown
    if task.domain and (mixture.apart == "domain" or len(same) == 1):
        return attrgetter("log_p_target")
    even = len({same.count(domain) for domain in DOMAINS}) == 1
    return attrgetter("log_p_mixture") if even else _unknown


def _unknown(_: Sentence) -> float:
    return math.nan


def _of_domain(drawn: Sequence[Sentence], places: Iterable[int], task: Task) -> list[int]:
    """The places whose sentences are of a task's domain."""
    return [place for place in places if task.domain in ("", drawn[place].domain)]


def _task_text(
    drawn: Mapping[str, Sequence[Sentence]],
    task: Task,
    places: Sequence[int],
    truth: Truth,
    linked: bool,
) -> TaskText:
    """The sentences of a task at some places; training needs no links."""
    first = next(iter(drawn.values()))

    def lines(language: str) -> list[str]:
        if language != ENGLISH:
            return [" ".join(drawn[language][place].target) for place in places]
        return [" ".join(first[place].source) for place in places]

    pairs = list(zip(lines(task.source), lines(task.target), strict=True))
    links = [_links(drawn, task, place) for place in places] if linked else []
    translated = first if task.target == ENGLISH else drawn[task.target]
    return TaskText(pairs, [truth(translated[place]) for place in places], links)


def _links(drawn: Mapping[str, Sequence[Sentence]], task: Task, place: int) -> Links:
    """The word alignment of a pair: two languages meet at the English-like words."""

    def of_side(language: str) -> Sequence[tuple[int, int]]:
        if language == ENGLISH:
            return [(n, n) for n in range(len(next(iter(drawn.values()))[place].source))]
        return drawn[language][place].alignment

    return frozenset(
        (one, other)
        for word, one in of_side(task.source)
        for same, other in of_side(task.target)
        if word == same
    )
