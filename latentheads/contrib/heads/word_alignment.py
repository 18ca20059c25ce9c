"""Word alignment by the posterior of latent heads: with a translation, or with earlier words."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from latentheads.batch import Batch
from latentheads.contrib.heads.alignments import alignment_distributions, likeliest_links
from latentheads.corpora.text import is_punctuation, list_texts, split_word
from latentheads.corpora.vocabulary import Tagged, Vocabulary, before_end
from latentheads.decoding.translate import OnSkip
from latentheads.metrics.alignment import Link, Links
from latentheads.runs.generation import encode_pairs, encode_sources, raise_on_skip, select_task
from latentheads.runs.loading import open_run
from latentheads.runs.run import Run
from latentheads.runs.trained_model import TrainedModel


def check_alignments(trained: TrainedModel) -> None:
    """Checks that a model has latent alignments."""
    if trained.source is None:
        raise ValueError(f"{trained.name} is a language model: it has no source to align with")
    _check_posterior(trained)


def _check_posterior(trained: TrainedModel) -> None:
    """Checks that a model has latent heads that point at words."""
    if not trained.model.samples_alignments:
        missing = "latent alignments" if trained.model.aligns_with_text else "alignments"
        raise ValueError(f"{trained.name} has no {missing}: there is no posterior of them")


def align_lines(
    trained: TrainedModel,
    sentences: Iterable[str],
    translations: Iterable[str],
    task: int | None = None,
    on_skip: OnSkip | None = None,
    split_punctuation: bool = False,
) -> list[Links]:
    """Aligns the words of lines with those of their translations.

    In each head, a target token is aligned with the likeliest source token under the exact
    posterior; EOS is not aligned. Two words, as split by ``str.split``, are linked if any of their
    tokens are aligned in any head. With copy heads, which align only tokens that are generated with
    probability below one half, a word is linked if all of its tokens are, to tokens of one word. A
    source token that is a space belongs to the word after it. Punctuation glued to a word is part
    of it, unless it is split off.

    Args:
        trained: A model with latent alignments.
        sentences: Lines in the source language.
        translations: A translation of each.
        task: Index of the lines' task, if the model has tasks.
        on_skip: Called for a line that is too long for the model or memory; None raises an error.
        split_punctuation: Words are those of :func:`latentheads.corpora.text.split_punctuation`:
            punctuation before or after a word is a word of its own.

    Returns:
        The links of each line, as pairs of word indices; empty for an empty line.

    Raises:
        ValueError: The model has no alignments, or the numbers of lines and translations differ.
        UnfinishedError: A line cannot be aligned.
    """
    check_alignments(trained)
    on_skip = on_skip or raise_on_skip
    sources = list_texts("sentences", sentences)
    targets = list_texts("translations", translations)
    encoded = encode_pairs(trained, sources, targets, task, on_skip)
    pairs = [(sources[index], targets[index]) for index in encoded.indices]
    work = partial(_link_batch, trained, pairs if split_punctuation else None)
    return encoded.map_batches(work, frozenset(), on_skip)


def link_past(
    trained: TrainedModel, texts: Iterable[str], split_punctuation: bool = False
) -> list[Links]:
    """Links the words of texts with earlier words, by a language model; see :func:`align_lines`.

    Returns:
        The links of each text, as pairs of the index of an earlier word and of a word.

    Raises:
        ValueError: The model translates, or has no such heads.
        UnfinishedError: A text is too long for the model or for memory.
    """
    if trained.source is not None:
        raise ValueError(f"{trained.name} translates: give a translation of each sentence")
    _check_posterior(trained)
    lines = list_texts("sentences", texts)
    encoded = encode_sources(trained, lines, None, raise_on_skip)
    pairs = [(lines[index], lines[index]) for index in encoded.indices]
    work = partial(_link_batch, trained, pairs if split_punctuation else None)
    links: list[Links] = encoded.map_batches(work, frozenset(), raise_on_skip)
    return [frozenset((past, word) for past, word in line if past < word) for line in links]


def align(
    run: Run | str | Path,
    sentences: Iterable[str],
    translations: Iterable[str] | None = None,
    *,
    direction: str | None = None,
    split_punctuation: bool = False,
) -> list[list[Link]]:
    """Aligns the words of sentences with those of their translations; see :func:`align_lines`.

    Without translations, a language model links words with earlier words; see :func:`link_past`.

    Args:
        run: A run with latent alignments, or its folder.
        sentences: Texts.
        translations: A translation of each: the model's own, or any other. A language model has
            none.
        direction: The task of a model with several tasks, as en-de, de or bible:en-de.
        split_punctuation: Punctuation before or after a word is a word of its own.

    Returns:
        The sorted links of each sentence, as pairs of word indices.
        :func:`latentheads.metrics.alignment.write_pharaoh` formats them.

    Raises:
        ValueError: The model has no alignments, or the numbers of texts differ.
        UnfinishedError: A sentence is too long for the model or for memory.
    """
    run = open_run(run)
    if translations is None:
        if direction is not None:
            raise ValueError("direction is of translations: give translations, or drop direction")
        links = link_past(run, sentences, split_punctuation)
    else:
        check_alignments(run)
        task = select_task(run, direction)
        links = align_lines(run, sentences, translations, task, split_punctuation=split_punctuation)
    return [sorted(links_of_line) for links_of_line in links]


def _link_batch(
    trained: TrainedModel, pairs: Sequence[tuple[str, str]] | None, batch: Batch
) -> list[Links]:
    """The word links of every sentence of a batch."""
    output_heads = trained.model.output_heads
    assert output_heads is not None
    has_tags = isinstance(trained.source, Tagged)
    distributions = alignment_distributions(trained.model, trained.guide, batch)
    if batch.source is None:
        batch = replace(batch, source=output_heads.position_tokens(batch)[:, :-1])
    assert batch.source is not None
    join = _join_copies if output_heads.copies else _join_words
    links: list[Links] = []
    weights, first_position = distributions.posterior, distributions.first_position
    tokens = likeliest_links(weights, batch, tagged=has_tags, first_position=first_position)
    for index, heads in enumerate(tokens):
        lines = (None, None) if pairs is None else pairs[int(batch.sentences[index])]
        target = _word_ids(trained.target, batch.target[index].tolist(), lines[1])
        if trained.source is not None:
            source = _word_ids(trained.source, batch.source[index].tolist(), lines[0])
        else:  # the earlier states of a language model; those of alignments begin with BOS
            source = target if output_heads.copies else [None, *target]
        links.append(join(frozenset().union(*heads), name_spaces(source), target))
    return links


def _word_ids(vocabulary: Vocabulary, ids: list[int], line: str | None) -> list[int | None]:
    """The word of each token; with its line, punctuation is split off the words."""
    return vocabulary.word_ids(ids) if line is None else split_word_ids(vocabulary, ids, line)


def name_spaces(word_ids: Sequence[int | None]) -> list[int | None]:
    """The word of every token; a space belongs to the word after it."""
    words: list[int | None] = []
    for word in reversed(word_ids):
        words.append(words[-1] if word is None and words else word)
    return words[::-1]


def _join_words(
    links: Links, source: Sequence[int | None], target: Sequence[int | None]
) -> frozenset[Link]:
    """Maps links between tokens to links between words; tokens outside words have none."""
    pairs = ((source[source_token], target[target_token]) for source_token, target_token in links)
    return frozenset(
        (source_word, target_word)
        for source_word, target_word in pairs
        if source_word is not None and target_word is not None
    )


def _join_copies(
    links: Links, source: Sequence[int | None], target: Sequence[int | None]
) -> frozenset[Link]:
    """Links the words all of whose tokens are linked to tokens of one source word."""
    sources = {target_token: source[source_token] for source_token, target_token in links}
    sources_of: dict[int, set[int | None]] = defaultdict(set)
    for token, word in enumerate(target):
        if word is not None:
            sources_of[word].add(sources.get(token))
    copied = {word: next(iter(words)) for word, words in sources_of.items() if len(words) == 1}
    return frozenset((source, word) for word, source in copied.items() if source is not None)


def split_word_ids(vocabulary: Vocabulary, ids: Iterable[int], line: str) -> list[int | None]:
    """The index of the word of each token among those of ``split_punctuation``, up to EOS.

    A token across several belongs to the first that is not punctuation; a token of no word, such as
    a space or a tag, has None.

    Args:
        vocabulary: The vocabulary that encoded the line.
        ids: The token ids.
        line: The line itself: its unknown words have punctuation that cannot be decoded.
    """
    tokens = list(before_end(ids))
    texts = [vocabulary.decode(tokens[:number]) for number in range(len(tokens) + 1)]
    words = list(_words_of_characters(texts[-1], map(split_word, line.split())))
    return [
        _choose_word(words[max(0, min(start, end - 1)) : end])  # a part of a character adds no text
        for start, end in pairwise(map(len, texts))
    ]


def _words_of_characters(
    text: str, words: Iterable[Sequence[str]]
) -> Iterator[tuple[int, bool] | None]:
    """The word of each character of a decoded line, and whether this is punctuation."""
    first, rest = 0, iter(words)
    for piece in re.findall(r"\s+|\S+", text):
        if piece.isspace():
            yield from [None] * len(piece)
            continue
        parts = next(rest)
        marks = [is_punctuation(part[0]) for part in parts]
        owners = [index for index, part in enumerate(parts) for _ in part]
        if len(owners) != len(piece):  # an unknown word, which is decoded as another text
            owners = [marks.index(min(marks))] * len(piece)
        yield from ((first + index, marks[index]) for index in owners)
        first += len(parts)


def _choose_word(words: Sequence[tuple[int, bool] | None]) -> int | None:
    """The first word of a token's characters that is not punctuation, otherwise the first."""
    candidates = [word for word in words if word is not None]
    chosen = min(candidates, key=lambda word: word[1], default=None)
    return None if chosen is None else chosen[0]
