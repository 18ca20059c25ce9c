"""A corpus of several tasks: directions of translation and domains, one vocabulary for all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from latentheads.corpora.corpus import Corpus
from latentheads.corpora.parallel import (
    DEFAULT_OPTIONS,
    PairOptions,
    check_held_out,
    clean_training_pairs,
    learn_vocabularies,
)
from latentheads.corpora.part import Log, Part, mask_unknown
from latentheads.corpora.processor import Processor
from latentheads.corpora.tasks import Mixture, Task
from latentheads.corpora.text import SentencePair
from latentheads.corpora.vocabulary import Tagged, Vocabulary, language_tag, tag_of
from latentheads.metrics.alignment import Links


@dataclass(frozen=True)
class TaskText:
    """The sentence pairs of a task in a part.

    Attributes:
        pairs: Sources and targets.
        true_log_probs: The exact log p(y | x) of every pair, where it is known.
        links: The gold word alignment of every pair, where it is known.
    """

    pairs: Sequence[SentencePair]
    true_log_probs: Sequence[float] = ()
    links: Sequence[Links] = ()


def parallel_tasks(
    name: str,
    mixture: Mixture,
    read: Callable[[str, Task], Iterable[SentencePair]],
    options: PairOptions = DEFAULT_OPTIONS,
    log: Log | None = None,
) -> Corpus:
    """Makes a corpus of several tasks from sentence pairs.

    Where there are several target languages, every source begins with a tag of its target language.
    Vocabularies are learned on the training text of all tasks.

    Args:
        name: Name of the corpus.
        mixture: The tasks.
        read: Returns the pairs of a part, ``train``, ``valid`` or ``test``, of a task.
        options: How pairs are cleaned and encoded; ``vocab_size`` does not count the tags.
        log: Called with one line for each task: how many training pairs are kept.

    Raises:
        ValueError: A part of a task has no pair, or ``vocab_size`` is too small.
    """
    train = [
        TaskText(clean_training_pairs(name, read("train", task), options.cleaning, log, task.name))
        for task in mixture.tasks
    ]
    held_out = [
        [TaskText(list(read(part, t))) for t in mixture.tasks] for part in ("valid", "test")
    ]
    for part, texts in zip(("valid", "test"), held_out, strict=True):
        for task, text in zip(mixture.tasks, texts, strict=True):
            check_held_out(name, f"{part} of {task.name}", [right for _, right in text.pairs])
    source, target = learn_vocabularies([pair for text in train for pair in text.pairs], options)
    return encode_task_texts(name, mixture, [train, *held_out], source, target)


def encode_task_texts(
    name: str,
    mixture: Mixture,
    texts: Sequence[Sequence[TaskText]],
    source: Vocabulary,
    target: Vocabulary,
) -> Corpus:
    """Encodes the texts of the three parts; training has no references.

    Args:
        name: Name of the corpus.
        mixture: The tasks.
        texts: The text of each task, for train, valid and test.
        source: Source vocabulary; the language tags are added to it.
        target: Target vocabulary; a joint vocabulary is the same object as ``source``.
    """
    if mixture.tags:
        tagged = Tagged(source, [language_tag(language) for language in mixture.tags])
        source, target = tagged, tagged if target is source else target
    train, valid, test = (_encode_part(mixture, part, source, target) for part in texts)
    train = replace(train, references=(), links=())
    return Corpus(name, train, valid, test, Processor(target, source, mixture=mixture))


def _encode_part(
    mixture: Mixture, texts: Sequence[TaskText], source: Vocabulary, target: Vocabulary
) -> Part:
    """Encodes one part: the concatenated sentences of all tasks."""
    pairs = [pair for text in texts for pair in text.pairs]
    sizes = [len(text.pairs) for text in texts]
    references = [right for _, right in pairs]
    targets = target.encode_all(references)
    source_rows = source.encode_all([left for left, _ in pairs])
    true_log_probs = [value for text in texts for value in text.true_log_probs]
    links = [pair_links for text in texts for pair_links in text.links]
    if mixture.tags:  # a tag is in front of every source
        tags = [tag_of(source, task.target) for task in mixture.tasks]
        source_rows = source_rows.prepended(np.repeat(tags, sizes))
        links = [frozenset((left + 1, right) for left, right in pair_links) for pair_links in links]
    return Part(
        targets=targets,
        sources=source_rows,
        references=references,
        true_log_probs=mask_unknown(true_log_probs, source_rows, targets)
        if true_log_probs
        else None,
        task=np.repeat(np.arange(len(texts), dtype=np.int32), sizes),
        mixture=mixture,
        links=links,
    )
