"""One function a corpus: each with its own arguments, through the same code as `make_corpus`.

The defaults are those of `Data`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import Literal

from latentheads.corpora.corpus import Corpus
from latentheads.corpora.data import MADE, Data
from latentheads.corpora.hub import HUB, PROSE
from latentheads.corpora.options import make_corpus
from latentheads.corpora.tasks import Apart
from latentheads.corpora.vocabulary import Unit

__all__ = [
    "folder_pairs",
    "folder_speech",
    "folder_tasks",
    "folder_text",
    "grammar",
    "grammar_tasks",
    "grammar_text",
    "hub_pairs",
    "hub_tasks",
    "hub_text",
    "python_docs",
]

Tell = Callable[[str], object]


def grammar(
    language: str = Data.language,
    sentences: int = Data.sentences,
    held_out: int = Data.held_out,
) -> Corpus:
    """Draws pairs from a synchronous grammar whose exact log p(y | x) is known.

    No held-out source sentence stands in training.

    Args:
        language: Target language.
        sentences: Training sentences.
        held_out: Sentences of valid, and of test.

    Example:
        >>> lh.grammar(language="tamir", sentences=50, held_out=5).test
        Part(5 sentences, 32 target tokens)
    """
    data = Data(
        data="grammar",
        language=language,
        sentences=sentences,
        held_out=held_out,
    )
    return make_corpus(data)


def grammar_text(
    sentences: int = Data.sentences,
    held_out: int = Data.held_out,
) -> Corpus:
    """Draws the grammar's English-like side alone, for a language model; log p(x) is known.

    Args:
        sentences: Training sentences.
        held_out: Sentences of valid, and of test.
    """
    data = Data(
        data="grammar",
        task="language-model",
        sentences=sentences,
        held_out=held_out,
    )
    return make_corpus(data)


def grammar_tasks(
    tasks: str | Sequence[str],
    sentences: int = Data.sentences,
    held_out: int = Data.held_out,
    task_sizes: Sequence[int] = Data.task_sizes,
    task_temperature: float = Data.task_temperature,
    one_task: bool = Data.one_task,
    tell_apart: Apart = Data.tell_apart,
) -> Corpus:
    """Draws several directions of translation, or domains, from the grammar, in one corpus.

    Its languages are ``en`` and those of `grammar`, its domains ``news`` and ``talk``.

    Args:
        tasks: Directions of translation: ``velu`` (from the English-like side into it),
            ``tamir-en``, or of a domain, ``news:velu``.
        sentences: Training sentences of each task, where no sizes are given.
        held_out: Sentences of valid, and of test.
        task_sizes: Training pairs of each task in turn; none: the same for all.
        task_temperature: T of the share n^(1/T) that a task of n training pairs has in an epoch: 1
            takes every pair once, 5 is usual and gives small tasks more.
        one_task: Make each batch of one task, not of all.
        tell_apart: What model and guide may tell tasks apart by: language or domain.

    Example:
        >>> corpus = lh.grammar_tasks(["velu", "tamir-en"], sentences=50, held_out=5)
        >>> corpus.train.mixture.names
        ('en-velu', 'tamir-en')
    """
    data = Data(
        data="grammar",
        tasks=_join_tasks(tasks),
        sentences=sentences,
        held_out=held_out,
        task_sizes=tuple(task_sizes),
        task_temperature=task_temperature,
        one_task=one_task,
        tell_apart=tell_apart,
    )
    return make_corpus(data)


def folder_pairs(
    folder: str | os.PathLike[str],
    source: str,
    target: str,
    types: int = Data.types,
    joint: bool = Data.joint,
    lowercase: bool = Data.lowercase,
    tokenised: bool = Data.tokenised,
    max_source: int = Data.max_source,
    references: str = Data.references,
    max_line: int = Data.max_line,
    max_length: int = Data.max_length,
    max_ratio: float = Data.max_ratio,
    first: int = Data.first,
    cache: str = Data.cache,
    train_name: str = Data.train_name,
    valid_name: str = Data.valid_name,
    test_name: str = Data.test_name,
    tell: Tell | None = None,
) -> Corpus:
    """Reads pairs from a folder with train.SOURCE and train.TARGET, valid.* and test.*.

    Plain UTF-8, one sentence a line, .gz accepted.

    Args:
        folder: Where the files are.
        source: Language translated from, as files or columns are called.
        target: Language translated into.
        types: Subwords of a vocabulary, at most, learned from training by BPE.
        joint: One vocabulary for both sides.
        lowercase: Lower-case everything that the model sees and writes.
        tokenised: The text is tokenised: keep its words, and score it as it is.
        max_source: Most subwords of a source, its end counted; the rest is cut off. 0: any.
        references: How held-out files of references are called behind the dot, several on a line
            with tabs between; empty: the target's own files.
        max_line: Most tokens of a line on either side, its end counted; 0: any. In training a
            longer one is left out, in valid and test it is refused.
        max_length: Longest training sentence in words; 0: any.
        max_ratio: Training pairs whose lengths differ by more than this factor are left out; 0:
            any.
        first: Use the first so many training pairs only; 0: all.
        cache: Folder that keeps the encoded corpus for the next start; empty: none.
        train_name: How training files are called before the dot.
        valid_name: The same for validation; empty: valid, val or dev.
        test_name: The same for test.
        tell: Called with each line about what was read and left out, as ``print``.
    """
    data = Data(
        data=_name_folder(folder),
        source=source,
        target=target,
        types=types,
        joint=joint,
        lowercase=lowercase,
        tokenised=tokenised,
        max_source=max_source,
        references=references,
        max_line=max_line,
        max_length=max_length,
        max_ratio=max_ratio,
        first=first,
        cache=cache,
        train_name=train_name,
        valid_name=valid_name,
        test_name=test_name,
    )
    return make_corpus(data, tell)


def folder_tasks(
    folder: str | os.PathLike[str],
    tasks: str | Sequence[str],
    source: str = Data.source,
    task_sizes: Sequence[int] = Data.task_sizes,
    task_temperature: float = Data.task_temperature,
    one_task: bool = Data.one_task,
    tell_apart: Apart = Data.tell_apart,
    types: int = Data.types,
    joint: bool = Data.joint,
    lowercase: bool = Data.lowercase,
    tokenised: bool = Data.tokenised,
    max_line: int = Data.max_line,
    max_length: int = Data.max_length,
    max_ratio: float = Data.max_ratio,
    first: int = Data.first,
    cache: str = Data.cache,
    train_name: str = Data.train_name,
    valid_name: str = Data.valid_name,
    test_name: str = Data.test_name,
    tell: Tell | None = None,
) -> Corpus:
    """Reads several directions of translation, or domains, from a folder, in one corpus.

    A domain is a folder in it, and a direction may have one of its own, such as ``en-de``.

    Args:
        folder: Where the files are.
        tasks: Directions of translation: ``de`` (from the source language into it), ``en-de``, or
            of a domain, ``bible:de`` or ``bible:en-de``.
        source: Language translated from where a task names none.
        task_sizes: Training pairs of each task in turn; none: the same for all.
        task_temperature: T of the share n^(1/T) that a task of n training pairs has in an epoch: 1
            takes every pair once, 5 is usual and gives small tasks more.
        one_task: Make each batch of one task, not of all.
        tell_apart: What model and guide may tell tasks apart by: language or domain.
        types: Subwords of a vocabulary, at most, learned from training by BPE.
        joint: One vocabulary for both sides.
        lowercase: Lower-case everything that the model sees and writes.
        tokenised: The text is tokenised: keep its words, and score it as it is.
        max_line: Most tokens of a line on either side, its end counted; 0: any. In training a
            longer one is left out, in valid and test it is refused.
        max_length: Longest training sentence in words; 0: any.
        max_ratio: Training pairs whose lengths differ by more than this factor are left out; 0:
            any.
        first: Use the first so many training pairs only; 0: all.
        cache: Folder that keeps the encoded corpus for the next start; empty: none.
        train_name: How training files are called before the dot.
        valid_name: The same for validation; empty: valid, val or dev.
        test_name: The same for test.
        tell: Called with each line about what was read and left out, as ``print``.
    """
    data = Data(
        data=_name_folder(folder),
        tasks=_join_tasks(tasks),
        source=source,
        task_sizes=tuple(task_sizes),
        task_temperature=task_temperature,
        one_task=one_task,
        tell_apart=tell_apart,
        types=types,
        joint=joint,
        lowercase=lowercase,
        tokenised=tokenised,
        max_line=max_line,
        max_length=max_length,
        max_ratio=max_ratio,
        first=first,
        cache=cache,
        train_name=train_name,
        valid_name=valid_name,
        test_name=test_name,
    )
    return make_corpus(data, tell)


def folder_text(
    folder: str | os.PathLike[str],
    block: int = Data.block,
    context: int = Data.context,
    unit: Unit = Data.unit,
    types: int = Data.types,
    minimum: int = Data.minimum,
    lowercase: bool = Data.lowercase,
    max_line: int = Data.max_line,
    first: int = Data.first,
    cache: str = Data.cache,
    train_name: str = Data.train_name,
    valid_name: str = Data.valid_name,
    test_name: str = Data.test_name,
    tell: Tell | None = None,
) -> Corpus:
    """Reads text for a language model from a folder with train.txt, valid.txt and test.txt.

    Args:
        folder: Where the files are.
        block: Tokens of the blocks that the text is cut into; 0 takes every line for a sentence
            alone.
        context: Report perplexity by windows too, each token with so many before it; 0: by blocks
            alone.
        unit: What the text is made of: its words, or subwords learned by BPE.
        types: Subwords, at most, learned from training by BPE, where the unit is subword.
        minimum: A word seen less often in training is unknown, where the unit is word.
        lowercase: Lower-case everything that the model sees and writes.
        max_line: Most tokens of a line, its end counted; 0: any. Running text in blocks has any.
        first: Use the first so many training lines only; 0: all.
        cache: Folder that keeps the encoded corpus for the next start; empty: none.
        train_name: How training files are called before the dot.
        valid_name: The same for validation; empty: valid, val or dev.
        test_name: The same for test.
        tell: Called with each line about what was read and left out, as ``print``.
    """
    data = Data(
        task="language-model",
        data=_name_folder(folder),
        block=block,
        context=context,
        unit=unit,
        types=types,
        minimum=minimum,
        lowercase=lowercase,
        max_line=max_line,
        first=first,
        cache=cache,
        train_name=train_name,
        valid_name=valid_name,
        test_name=test_name,
    )
    return make_corpus(data, tell)


def folder_speech(
    folder: str | os.PathLike[str],
    task: Literal["recognition", "speech-translation"] = "recognition",
    types: int = Data.types,
    lowercase: bool = Data.lowercase,
    bins: int = Data.bins,
    top_frequency: int = Data.top_frequency,
    max_seconds: float = Data.max_seconds,
    max_line: int = Data.max_line,
    first: int = Data.first,
    cache: str = Data.cache,
    train_name: str = Data.train_name,
    valid_name: str = Data.valid_name,
    test_name: str = Data.test_name,
    tell: Tell | None = None,
) -> Corpus:
    """Reads speech from a folder with train.tsv, valid.tsv and test.tsv, or folders so called.

    A table names in its first line the columns id, audio and tgt_text, tabs between; sound is
    whatever libsndfile reads. A folder has a file of text beside each of sound. Needs the extra
    ``speech``.

    Args:
        folder: Where the tables, or the folders of the parts, are.
        task: recognition writes what is said, speech-translation its translation: they differ in
            how they are scored.
        types: Subwords of the text, at most, learned from training by BPE; 0 writes character by
            character.
        lowercase: Lower-case everything that the model writes.
        bins: Coefficients of a frame of sound, of which there are a hundred a second.
        top_frequency: Hertz where they end: at most half the lowest sampling rate of all files.
        max_seconds: Longest utterance: a longer one is left out of training, and refused in valid
            and test; 0: any.
        max_line: Most tokens of a text, and most positions of 40 ms of an utterance; 0: any.
        first: Use the first so many training utterances only; 0: all.
        cache: Folder that keeps frames and text for the next start; empty: none.
        train_name: How the table or folder of training is called, before the dot.
        valid_name: The same for validation; empty: valid, val or dev.
        test_name: The same for test.
        tell: Called with each line about what was read and left out, as ``print``.
    """
    data = Data(
        data=_name_folder(folder),
        task=task,
        types=types,
        lowercase=lowercase,
        bins=bins,
        top_frequency=top_frequency,
        max_seconds=max_seconds,
        max_line=max_line,
        first=first,
        cache=cache,
        train_name=train_name,
        valid_name=valid_name,
        test_name=test_name,
    )
    return make_corpus(data, tell)


def hub_pairs(
    name: str,
    source: str,
    target: str,
    types: int = Data.types,
    joint: bool = Data.joint,
    lowercase: bool = Data.lowercase,
    tokenised: bool = Data.tokenised,
    max_source: int = Data.max_source,
    max_line: int = Data.max_line,
    max_length: int = Data.max_length,
    max_ratio: float = Data.max_ratio,
    first: int = Data.first,
    cache: str = Data.cache,
    hub_path: str = Data.hub_path,
    hub_config: str = Data.hub_config,
    tell: Tell | None = None,
) -> Corpus:
    """Reads pairs from the Hugging Face hub.

    Args:
        name: multi30k, iwslt14, iwslt17, wmt14, or, with summaries, gigaword, cnn_dailymail and
            scitldr; or a name of your own with a ``hub_path``.
        source: Language translated from, as files or columns are called.
        target: Language translated into.
        types: Subwords of a vocabulary, at most, learned from training by BPE.
        joint: One vocabulary for both sides.
        lowercase: Lower-case everything that the model sees and writes.
        tokenised: The text is tokenised: keep its words, and score it as it is.
        max_source: Most subwords of a source, its end counted; the rest is cut off. 0: any.
        max_line: Most tokens of a line on either side, its end counted; 0: any. In training a
            longer one is left out, in valid and test it is refused.
        max_length: Longest training sentence in words; 0: any.
        max_ratio: Training pairs whose lengths differ by more than this factor are left out; 0:
            any.
        first: Use the first so many training pairs only; 0: all.
        cache: Folder that keeps the encoded corpus for the next start; empty: none.
        hub_path: Another repository of the hub than the known one, or local files.
        hub_config: Its configuration.
        tell: Called with each line about what was read and left out, as ``print``.
    """
    data = Data(
        data=_check_name(name, HUB, hub_path),
        source=source,
        target=target,
        types=types,
        joint=joint,
        lowercase=lowercase,
        tokenised=tokenised,
        max_source=max_source,
        max_line=max_line,
        max_length=max_length,
        max_ratio=max_ratio,
        first=first,
        cache=cache,
        hub_path=hub_path,
        hub_config=hub_config,
    )
    return make_corpus(data, tell)


def hub_tasks(
    name: str,
    tasks: str | Sequence[str],
    source: str = Data.source,
    task_sizes: Sequence[int] = Data.task_sizes,
    task_temperature: float = Data.task_temperature,
    one_task: bool = Data.one_task,
    tell_apart: Apart = Data.tell_apart,
    types: int = Data.types,
    joint: bool = Data.joint,
    lowercase: bool = Data.lowercase,
    tokenised: bool = Data.tokenised,
    max_line: int = Data.max_line,
    max_length: int = Data.max_length,
    max_ratio: float = Data.max_ratio,
    first: int = Data.first,
    cache: str = Data.cache,
    hub_path: str = Data.hub_path,
    hub_config: str = Data.hub_config,
    tell: Tell | None = None,
) -> Corpus:
    """Reads several directions of translation from the Hugging Face hub, in one corpus.

    Args:
        name: multi30k, iwslt14, iwslt17 or wmt14; or a name of your own with a ``hub_path``.
        tasks: Directions of translation: ``de`` (from the source language into it), or ``en-de``.
        source: Language translated from where a task names none.
        task_sizes: Training pairs of each task in turn; none: the same for all.
        task_temperature: T of the share n^(1/T) that a task of n training pairs has in an epoch: 1
            takes every pair once, 5 is usual and gives small tasks more.
        one_task: Make each batch of one task, not of all.
        tell_apart: What model and guide may tell tasks apart by: language or domain.
        types: Subwords of a vocabulary, at most, learned from training by BPE.
        joint: One vocabulary for both sides.
        lowercase: Lower-case everything that the model sees and writes.
        tokenised: The text is tokenised: keep its words, and score it as it is.
        max_line: Most tokens of a line on either side, its end counted; 0: any. In training a
            longer one is left out, in valid and test it is refused.
        max_length: Longest training sentence in words; 0: any.
        max_ratio: Training pairs whose lengths differ by more than this factor are left out; 0:
            any.
        first: Use the first so many training pairs only; 0: all.
        cache: Folder that keeps the encoded corpus for the next start; empty: none.
        hub_path: Another repository of the hub than the known one, or local files.
        hub_config: Its configuration.
        tell: Called with each line about what was read and left out, as ``print``.
    """
    data = Data(
        data=_check_name(name, HUB, hub_path),
        tasks=_join_tasks(tasks),
        source=source,
        task_sizes=tuple(task_sizes),
        task_temperature=task_temperature,
        one_task=one_task,
        tell_apart=tell_apart,
        types=types,
        joint=joint,
        lowercase=lowercase,
        tokenised=tokenised,
        max_line=max_line,
        max_length=max_length,
        max_ratio=max_ratio,
        first=first,
        cache=cache,
        hub_path=hub_path,
        hub_config=hub_config,
    )
    return make_corpus(data, tell)


def hub_text(
    name: str,
    block: int = Data.block,
    context: int = Data.context,
    unit: Unit = Data.unit,
    types: int = Data.types,
    minimum: int = Data.minimum,
    lowercase: bool = Data.lowercase,
    max_line: int = Data.max_line,
    first: int = Data.first,
    cache: str = Data.cache,
    hub_path: str = Data.hub_path,
    hub_config: str = Data.hub_config,
    tell: Tell | None = None,
) -> Corpus:
    """Reads text for a language model from the Hugging Face hub.

    Args:
        name: wikitext-2 or wikitext-103; or a name of your own with a ``hub_path``.
        block: Tokens of the blocks that the text is cut into; 0 takes every line for a sentence
            alone.
        context: Report perplexity by windows too, each token with so many before it; 0: by blocks
            alone.
        unit: What the text is made of: its words, or subwords learned by BPE.
        types: Subwords, at most, learned from training by BPE, where the unit is subword.
        minimum: A word seen less often in training is unknown, where the unit is word.
        lowercase: Lower-case everything that the model sees and writes.
        max_line: Most tokens of a line, its end counted; 0: any. Running text in blocks has any.
        first: Use the first so many training lines only; 0: all.
        cache: Folder that keeps the encoded corpus for the next start; empty: none.
        hub_path: Another repository of the hub than the known one, or local files.
        hub_config: Its configuration.
        tell: Called with each line about what was read and left out, as ``print``.
    """
    data = Data(
        task="language-model",
        data=_check_name(name, PROSE, hub_path),
        block=block,
        context=context,
        unit=unit,
        types=types,
        minimum=minimum,
        lowercase=lowercase,
        max_line=max_line,
        first=first,
        cache=cache,
        hub_path=hub_path,
        hub_config=hub_config,
    )
    return make_corpus(data, tell)


def python_docs(
    block: int = Data.block,
    context: int = Data.context,
    unit: Unit = Data.unit,
    types: int = Data.types,
    minimum: int = Data.minimum,
    lowercase: bool = Data.lowercase,
    max_line: int = Data.max_line,
    first: int = Data.first,
    cache: str = Data.cache,
    tell: Tell | None = None,
) -> Corpus:
    """Reads the prose of Python's own reference, for a language model; it needs no file.

    Args:
        block: Tokens of the blocks that the text is cut into; 0 takes every line for a sentence
            alone.
        context: Report perplexity by windows too, each token with so many before it; 0: by blocks
            alone.
        unit: What the text is made of: its words, or subwords learned by BPE.
        types: Subwords, at most, learned from training by BPE, where the unit is subword.
        minimum: A word seen less often in training is unknown, where the unit is word.
        lowercase: Lower-case everything that the model sees and writes.
        max_line: Most tokens of a line, its end counted; 0: any. Running text in blocks has any.
        first: Use the first so many training lines only; 0: all.
        cache: Folder that keeps the encoded corpus for the next start; empty: none.
        tell: Called with each line about what was read and left out, as ``print``.
    """
    data = Data(
        data="pydoc",
        block=block,
        context=context,
        unit=unit,
        types=types,
        minimum=minimum,
        lowercase=lowercase,
        max_line=max_line,
        first=first,
        cache=cache,
    )
    return make_corpus(data, tell)


def _name_folder(folder: str | os.PathLike[str]) -> str:
    """The path of a folder, also of one that is called as a corpus that has a name."""
    path = os.fspath(folder)
    return os.path.join(os.curdir, path) if path in (*MADE, *HUB, *PROSE) else path


def _check_name(name: str, known: Collection[str], hub_path: str) -> str:
    """The name of a corpus of the hub; any other needs to say where it is."""
    if name in known or (hub_path and name not in (*MADE, *HUB, *PROSE)):
        return name
    raise ValueError(
        f"name must be one of {', '.join(known)}, or another one with a hub_path; got {name!r}"
    )


def _join_tasks(tasks: str | Sequence[str]) -> str:
    """The tasks as an option says them, comma between."""
    return tasks if isinstance(tasks, str) else ",".join(tasks)
