"""A corpus of several tasks: directions of translation and domains, one vocabulary for all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from latentheads.corpora.corpus import Corpus, Part, Tell, known_truth
from latentheads.corpora.data import ENGLISH
from latentheads.corpora.grammar import DOMAINS, LANGUAGES, Sentence, sample
from latentheads.corpora.parallel import USUAL, PairOptions, check_held_out, keep, learn
from latentheads.corpora.rows import Rows
from latentheads.corpora.tasks import Mixture, Task
from latentheads.corpora.text import Pair
from latentheads.corpora.vocabulary import Tagged, Vocabulary, Words
from latentheads.metrics.alignment import Links

__all__ = ["draw_tasks", "name_tag", "parallel_tasks", "tag_of"]


@dataclass(frozen=True)
class _Text:
    """The pairs of a task in a part, with their truth and links where these are known."""

    pairs: Sequence[Pair]
    truth: Sequence[float] = ()
    links: Sequence[Links] = ()


def parallel_tasks(
    name: str,
    mixture: Mixture,
    read: Callable[[str, Task], Iterable[Pair]],
    options: PairOptions = USUAL,
    tell: Tell | None = None,
) -> Corpus:
    """Makes a corpus of several tasks from pairs of sentences.

    Where there are several target languages the source begins with a tag that names the sentence's.
    Vocabularies are learned on the training text of all tasks.

    Args:
        name: What the corpus is called.
        mixture: The tasks.
        read: Gives the pairs of a part, ``train``, ``valid`` or ``test``, of a task.
        options: How pairs are cleaned and written; tags are not counted among ``types``.
        tell: Called with a line for each task that says how many training pairs were kept.

    Raises:
        ValueError: A part of a task has no pair, or ``types`` is too small.
    """
    train = [
        _Text(keep(name, read("train", task), options.cleaning, tell, task.name))
        for task in mixture.tasks
    ]
    held_out = [[_Text(list(read(part, t))) for t in mixture.tasks] for part in ("valid", "test")]
    for part, texts in zip(("valid", "test"), held_out, strict=True):
        for task, text in zip(mixture.tasks, texts, strict=True):
            check_held_out(name, f"{part} of {task.name}", [right for _, right in text.pairs])
    source, target = learn([pair for text in train for pair in text.pairs], options)
    return _corpus(name, mixture, [train, *held_out], source, target)


def _corpus(
    name: str,
    mixture: Mixture,
    texts: Sequence[Sequence[_Text]],
    source: Vocabulary,
    target: Vocabulary,
) -> Corpus:
    """Encodes the texts of the three parts."""
    source, target = _tagged(mixture, source, target)
    train, valid, test = (_part(mixture, part, source, target) for part in texts)
    train = Part(train.targets, train.sources, (), train.truth, task=train.task, mixture=mixture)
    return Corpus(name, train, valid, test, target, source)


def _tagged(
    mixture: Mixture, source: Vocabulary, target: Vocabulary
) -> tuple[Vocabulary, Vocabulary]:
    """Gives the source a tag for each language, ``<2de>``; a joint vocabulary stays one object."""
    if not mixture.tags:
        return source, target
    known = Tagged(source, [name_tag(language) for language in mixture.tags])
    return known, known if target is source else target


def name_tag(language: str) -> str:
    """The tag of a language that is written."""
    return f"<2{language}>"


def _part(mixture: Mixture, texts: Sequence[_Text], source: Vocabulary, target: Vocabulary) -> Part:
    """One part: the sentences of each task one behind the other."""
    pairs = [pair for text in texts for pair in text.pairs]
    sources = []
    for task, text in zip(mixture.tasks, texts, strict=True):
        rows = source.encode_all(left for left, _ in text.pairs)
        sources.append(rows.led(tag_of(source, task)) if mixture.tags else rows)
    targets, joined = target.encode_all(right for _, right in pairs), Rows.joined(sources)
    truth = [value for text in texts for value in text.truth]
    links = [each for text in texts for each in text.links]
    return Part(
        targets=targets,
        sources=joined,
        references=[right for _, right in pairs],
        truth=known_truth(truth, joined, targets) if truth else None,
        task=np.repeat(np.arange(len(texts), dtype=np.int32), [len(t.pairs) for t in texts]),
        mixture=mixture,
        links=[_behind_tag(each) for each in links] if mixture.tags else links,
    )


def _behind_tag(links: Links) -> Links:
    """Links whose source begins with one token more."""
    return frozenset((source + 1, target) for source, target in links)


def tag_of(vocabulary: Vocabulary, task: Task) -> int:
    """The token that tells a task's target language."""
    if not isinstance(vocabulary, Tagged):
        raise ValueError("the vocabulary of the source has no tags")
    return vocabulary.tag(name_tag(task.target))


def draw_tasks(mixture: Mixture, sizes: Sequence[int], held_out: int = 500) -> Corpus:
    """Draws a corpus of several tasks from the synchronous grammar.

    All languages translate the same English-like sentences. No sentence that a task is tested on
    occurs in the training of any. The exact log p(y | x) is known of translations of the
    English-like side: that of the task's domain where the model may know it, because it tells
    domains apart or because the direction has one only, else of both domains mixed equally.

    Args:
        mixture: The tasks, between ``en`` and `latentheads.corpora.grammar.LANGUAGES`, each of a
            domain of `latentheads.corpora.grammar.DOMAINS` or of both.
        sizes: Training sentences of each task.
        held_out: Sentences of valid, and of test, of each task.

    Raises:
        ValueError: A language or a domain is not the grammar's.
    """
    _check(mixture, sizes, held_out)
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
    parts: list[list[_Text]] = [[], [], []]
    for task, size in zip(mixture.tasks, sizes, strict=True):
        told = _told(mixture, task)
        learned = _of_domain(first, range(trained), task)[:size]
        others = _of_domain(first, rest, task)[: 2 * held_out]
        half = len(others) // 2
        for part, places in zip(parts, (learned, others[:half], others[half:]), strict=True):
            part.append(_text(drawn, task, places, told, linked=part is not parts[0]))
    sides = ((pair[side] for text in parts[0] for pair in text.pairs) for side in (0, 1))
    source, target = (Words.count(lines) for lines in sides)
    return _corpus("grammar", mixture, parts, source, target)


def _check(mixture: Mixture, sizes: Sequence[int], held_out: int) -> None:
    if min(*sizes, held_out) < 1:
        raise ValueError("sentences and held_out must be positive")
    accepted = (ENGLISH, *LANGUAGES)
    for task in mixture.tasks:
        for language in (task.source, task.target):
            if language not in accepted:
                raise ValueError(
                    f"unknown language {language!r} of task {task.name}: choose from "
                    f"{', '.join(accepted)}"
                )
        if task.domain and task.domain not in DOMAINS:
            raise ValueError(
                f"unknown domain {task.domain!r} of task {task.name}: choose from "
                f"{', '.join(DOMAINS)}"
            )


def _told(mixture: Mixture, task: Task) -> bool:
    """Whether a model may know the domain of a task's sentences."""
    same = [other for other in mixture.tasks if other.direction == task.direction]
    return bool(task.domain) and (mixture.apart == "domain" or len(same) == 1)


def _of_domain(drawn: Sequence[Sentence], places: Iterable[int], task: Task) -> list[int]:
    """The places whose sentences are of a task's domain."""
    return [place for place in places if task.domain in ("", drawn[place].domain)]


def _text(
    drawn: Mapping[str, Sequence[Sentence]],
    task: Task,
    places: Sequence[int],
    told: bool,
    linked: bool,
) -> _Text:
    """The sentences of a task at some places; training needs no links."""
    first = next(iter(drawn.values()))

    def lines(language: str) -> list[str]:
        if language != ENGLISH:
            return [" ".join(drawn[language][place].target) for place in places]
        return [" ".join(first[place].source) for place in places]

    pairs = list(zip(lines(task.source), lines(task.target), strict=True))
    links = [_links(drawn, task, place) for place in places] if linked else []
    if task.source != ENGLISH:
        return _Text(pairs, [math.nan] * len(pairs), links)
    known = [drawn[task.target][place] for place in places]
    return _Text(pairs, [s.log_p_target if told else s.log_p_mixture for s in known], links)


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
