"""A corpus of several tasks: directions of translation and domains, one vocabulary for all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from latentheads.corpora.corpus import Corpus, Part, Tell, known_truth
from latentheads.corpora.parallel import USUAL, PairOptions, check_held_out, keep, learn
from latentheads.corpora.rows import Rows
from latentheads.corpora.tasks import Mixture, Task
from latentheads.corpora.text import Pair
from latentheads.corpora.vocabulary import Tagged, Vocabulary
from latentheads.metrics.alignment import Links

__all__ = ["TaskText", "encode_tasks", "name_tag", "parallel_tasks", "tag_of"]


@dataclass(frozen=True)
class TaskText:
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
        TaskText(keep(name, read("train", task), options.cleaning, tell, task.name))
        for task in mixture.tasks
    ]
    held_out = [
        [TaskText(list(read(part, t))) for t in mixture.tasks] for part in ("valid", "test")
    ]
    for part, texts in zip(("valid", "test"), held_out, strict=True):
        for task, text in zip(mixture.tasks, texts, strict=True):
            check_held_out(name, f"{part} of {task.name}", [right for _, right in text.pairs])
    source, target = learn([pair for text in train for pair in text.pairs], options)
    return encode_tasks(name, mixture, [train, *held_out], source, target)


def encode_tasks(
    name: str,
    mixture: Mixture,
    texts: Sequence[Sequence[TaskText]],
    source: Vocabulary,
    target: Vocabulary,
) -> Corpus:
    """Encodes the texts of the three parts, of which training has no references.

    Args:
        name: What the corpus is called.
        mixture: The tasks.
        texts: The text of each task, for train, valid and test.
        source: Vocabulary of the source; it is given the tags.
        target: Vocabulary of the target; where it is that of the source it stays so.
    """
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


def _part(
    mixture: Mixture, texts: Sequence[TaskText], source: Vocabulary, target: Vocabulary
) -> Part:
    """One part: the sentences of each task one behind the other."""
    pairs = [pair for text in texts for pair in text.pairs]
    sources = []
    for task, text in zip(mixture.tasks, texts, strict=True):
        rows = source.encode_all(left for left, _ in text.pairs)
        sources.append(rows.prepended(tag_of(source, task)) if mixture.tags else rows)
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
