"""Corpora sampled from the grammar, with the true log-probability of every translation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from statistics import fmean

from latentheads.checks import check_choice
from latentheads.corpora.corpus import Corpus
from latentheads.corpora.grammar import ENGLISH
from latentheads.corpora.grammar.choice import DOMAINS
from latentheads.corpora.grammar.languages import LANGUAGES
from latentheads.corpora.grammar.sentences import Sentence, sample
from latentheads.corpora.grammar.syntax import log_p_sources
from latentheads.corpora.multi_task import TaskText, encode_task_texts
from latentheads.corpora.part import Part, mask_unknown
from latentheads.corpora.processor import Processor
from latentheads.corpora.tasks import Mixture, Task
from latentheads.corpora.vocabulary import Words
from latentheads.metrics.alignment import Links

TrueLogProb = Callable[[Sentence], float]
"""Returns the exact log p(y | x) of a sentence; NaN where it is not known."""


def sample_pairs(
    sentences: int = 20_000, held_out: int = 500, language: str = next(iter(LANGUAGES))
) -> Corpus:
    """Samples a parallel corpus from the synchronous grammar, the same one on every machine.

    No held-out source sentence occurs in training.

    Args:
        sentences: Number of training sentences.
        held_out: Number of sentences of valid, and of test.
        language: Target language.
    """
    # More than 2 * held_out, since held-out sources that occur in training are dropped.
    samples = sample(sentences + 8 * held_out, language=language)
    train = samples[:sentences]
    train_sources = {sentence.source for sentence in train}
    unseen = {s.source: s for s in reversed(samples[sentences:]) if s.source not in train_sources}
    held_out_samples = list(reversed(unseen.values()))[: 2 * held_out]
    source = Words.count(" ".join(sentence.source) for sentence in train)
    target = Words.count(" ".join(sentence.target) for sentence in train)
    half = len(held_out_samples) // 2

    def part(subset: Sequence[Sentence], with_links: bool = True) -> Part:
        references = [" ".join(sentence.target) for sentence in subset]
        targets = target.encode_all(references)
        sources = source.encode_all(" ".join(sentence.source) for sentence in subset)
        return Part(
            targets=targets,
            sources=sources,
            references=references,
            true_log_probs=mask_unknown(
                [sentence.log_p_mixture for sentence in subset], targets, sources
            ),
            links=[frozenset(sentence.alignment) for sentence in subset] if with_links else (),
        )

    parts = (
        part(train, with_links=False),
        part(held_out_samples[:half]),
        part(held_out_samples[half:]),
    )
    return Corpus(f"grammar-{language}", *parts, Processor(target, source))


def sample_text_corpus(sentences: int = 20_000, held_out: int = 500) -> Corpus:
    """Samples the grammar's English-like side alone, for a language model.

    The parts are independent samples, so that log p(x) is exact in expectation too. Held-out
    sentences may occur in training.
    """
    samples = sample(sentences + 2 * held_out)
    words = Words.count(" ".join(sentence.source) for sentence in samples[:sentences])

    def part(subset: Sequence[Sentence], with_log_probs: bool = True) -> Part:
        references = [" ".join(sentence.source) for sentence in subset]
        targets = words.encode_all(references)
        log_probs = [_log_p(sentence.source) for sentence in subset] if with_log_probs else None
        return Part(
            targets=targets,
            sources=None,
            references=references,
            true_log_probs=log_probs and mask_unknown(log_probs, targets),
        )

    valid, test = samples[sentences : sentences + held_out], samples[sentences + held_out :]
    parts = part(samples[:sentences], with_log_probs=False), part(valid), part(test)
    return Corpus("grammar-sources", *parts, Processor(words))


def sample_tasks(mixture: Mixture, sizes: Sequence[int], held_out: int = 500) -> Corpus:
    """Samples a corpus of several tasks from the synchronous grammar.

    All languages translate the same English-like sentences. No test sentence of a task occurs in
    the training data of any task. The exact log p(y | x) is known for translations from the
    English-like side:

    * log p(y | x, d) of the task's domain d where the model can know it, because tasks are
      distinguished by domain or because the direction has only one;
    * else log p(y | x) of the equal mixture of both domains;
    * NaN where the tasks of a direction do not mix the domains equally.

    Args:
        mixture: The tasks, between ``en`` and `latentheads.corpora.grammar.LANGUAGES`, each of a
            domain of `latentheads.corpora.grammar.DOMAINS` or of both.
        sizes: Number of training sentences of each task.
        held_out: Number of sentences of valid, and of test, of each task.
    """
    _check_tasks(mixture)
    languages = dict.fromkeys(chain(*((task.source, task.target) for task in mixture.tasks)))
    has_domains = any(task.domain for task in mixture.tasks)
    num_domains = len(DOMAINS) if has_domains else 1
    # A domain's share of the samples varies: ten standard deviations more leave enough of each.
    train_size = num_domains * max(sizes) + (10 * math.isqrt(max(sizes)) + 20) * (num_domains - 1)
    samples = {
        language: sample(train_size + 8 * num_domains * held_out, language=language)
        for language in languages
        if language != ENGLISH
    }
    first_samples = next(iter(samples.values()))
    train_sources = {sentence.source for sentence in first_samples[:train_size]}
    unseen = {s.source: index for index, s in reversed([*enumerate(first_samples)][train_size:])}
    held_out_indices = sorted(
        index for source, index in unseen.items() if source not in train_sources
    )
    parts: list[list[TaskText]] = [[], [], []]
    for task, size in zip(mixture.tasks, sizes, strict=True):
        true_log_prob = _select_true_log_prob(mixture, task)
        train_indices = _of_domain(first_samples, range(train_size), task)[:size]
        task_held_out = _of_domain(first_samples, held_out_indices, task)[: 2 * held_out]
        half = len(task_held_out) // 2
        for part, indices in zip(
            parts, (train_indices, task_held_out[:half], task_held_out[half:]), strict=True
        ):
            part.append(
                _task_text(samples, task, indices, true_log_prob, with_links=part is not parts[0])
            )
    sides = ((pair[side] for text in parts[0] for pair in text.pairs) for side in (0, 1))
    source, target = (Words.count(lines) for lines in sides)
    return encode_task_texts("grammar", mixture, parts, source, target)


def _log_p(source: Sequence[str]) -> float:
    """Log p(x) under the equal mixture of both domains."""
    return math.log(fmean(map(math.exp, log_p_sources(source).values())))


def _check_tasks(mixture: Mixture) -> None:
    for task in mixture.tasks:
        for language in (task.source, task.target):
            check_choice(f"language of task {task.name}", language, (ENGLISH, *LANGUAGES))
        if task.domain:
            check_choice(f"domain of task {task.name}", task.domain, DOMAINS)


def _select_true_log_prob(mixture: Mixture, task: Task) -> TrueLogProb:
    """Selects which exact log-probability of a sentence a model of this task is compared with."""
    domains = [other.domain for other in mixture.tasks if other.direction == task.direction]
    if task.source != ENGLISH:
        return _unknown_log_prob
    if task.domain and (mixture.task_key == "domain" or len(domains) == 1):
        return attrgetter("log_p_target")
    balanced = len({domains.count(domain) for domain in DOMAINS}) == 1
    return attrgetter("log_p_mixture") if balanced else _unknown_log_prob


def _unknown_log_prob(_: Sentence) -> float:
    return math.nan


def _of_domain(samples: Sequence[Sentence], indices: Iterable[int], task: Task) -> list[int]:
    """The indices of the sentences that are of the task's domain."""
    return [index for index in indices if task.domain in ("", samples[index].domain)]


def _task_text(
    samples: Mapping[str, Sequence[Sentence]],
    task: Task,
    indices: Sequence[int],
    true_log_prob: TrueLogProb,
    with_links: bool,
) -> TaskText:
    """The sentence pairs of a task at the given indices, with their alignment links if wanted."""
    english_samples = next(iter(samples.values()))

    def lines(language: str) -> list[str]:
        if language != ENGLISH:
            return [" ".join(samples[language][index].target) for index in indices]
        return [" ".join(english_samples[index].source) for index in indices]

    pairs = list(zip(lines(task.source), lines(task.target), strict=True))
    links = [_links(samples, task, index) for index in indices] if with_links else []
    target_samples = english_samples if task.target == ENGLISH else samples[task.target]
    return TaskText(pairs, [true_log_prob(target_samples[index]) for index in indices], links)


def _links(samples: Mapping[str, Sequence[Sentence]], task: Task, index: int) -> Links:
    """The word alignment of a sentence pair, composed through the English-like words."""

    def of_side(language: str) -> Sequence[tuple[int, int]]:
        if language == ENGLISH:
            return [(n, n) for n in range(len(next(iter(samples.values()))[index].source))]
        return samples[language][index].alignment

    return frozenset(
        (source_index, target_index)
        for pivot, source_index in of_side(task.source)
        for other_pivot, target_index in of_side(task.target)
        if pivot == other_pivot
    )
