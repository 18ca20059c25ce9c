"""One function a corpus: each with its own arguments, through the same code as `make_corpus`.

The defaults are those of `Data`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Literal, Unpack

from latentheads.corpora.corpus import Corpus, Log
from latentheads.corpora.data import MADE, Data
from latentheads.corpora.from_options import make_corpus
from latentheads.corpora.hub import HUB, PROSE
from latentheads.corpora.option_groups import (
    FolderPairs,
    FolderSpeech,
    FolderTasks,
    FolderText,
    HubPairs,
    HubTasks,
    HubText,
    Mixing,
    RunningText,
    SpeechTasks,
    spell_options,
)

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
    "speech_tasks",
]


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
    data = Data(data="grammar", language=language, sentences=sentences, held_out=held_out)
    return make_corpus(data)


def grammar_text(sentences: int = Data.sentences, held_out: int = Data.held_out) -> Corpus:
    """Draws the grammar's English-like side alone, for a language model; log p(x) is known.

    Args:
        sentences: Training sentences.
        held_out: Sentences of valid, and of test.
    """
    task: Literal["language-model"] = "language-model"
    return make_corpus(Data(data="grammar", task=task, sentences=sentences, held_out=held_out))


@spell_options
def grammar_tasks(
    tasks: str | Sequence[str],
    sentences: int = Data.sentences,
    held_out: int = Data.held_out,
    task_sizes: Sequence[int] = Data.task_sizes,
    **options: Unpack[Mixing],
) -> Corpus:
    """Draws several directions of translation, or domains, from the grammar, in one corpus.

    Its languages are ``en`` and those of `grammar`, its domains ``news`` and ``talk``.

    Args:
        tasks: Directions of translation: ``velu`` (from the English-like side into it),
            ``tamir-en``, or of a domain, ``news:velu``.
        sentences: Training sentences of each task, where no sizes are given.
        held_out: Sentences of valid, and of test.
        task_sizes: Training pairs of each task in turn; none: the same for all.
        **options: How they are mixed.

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
        **options,
    )
    return make_corpus(data)


@spell_options
def folder_pairs(
    folder: str | os.PathLike[str],
    source: str,
    target: str,
    *,
    tell: Log | None = None,
    **options: Unpack[FolderPairs],
) -> Corpus:
    """Reads pairs from a folder with train.SOURCE and train.TARGET, valid.* and test.*.

    Plain UTF-8, one sentence a line, .gz accepted.

    Args:
        folder: Where the files are.
        source: Language translated from, as files or columns are called.
        target: Language translated into.
        **options: How they are read.
        tell: Called with each line about what was read and left out, as ``print``.
    """
    data = Data(data=_name_folder(folder), source=source, target=target, **options)
    return make_corpus(data, tell)


@spell_options
def folder_tasks(
    folder: str | os.PathLike[str],
    tasks: str | Sequence[str],
    source: str = Data.source,
    task_sizes: Sequence[int] = Data.task_sizes,
    *,
    tell: Log | None = None,
    **options: Unpack[FolderTasks],
) -> Corpus:
    """Reads several directions of translation, or domains, from a folder, in one corpus.

    A domain is a folder in it, and a direction may have one of its own, such as ``en-de``.

    Args:
        folder: Where the files are.
        tasks: Directions of translation: ``de`` (from the source language into it), ``en-de``, or
            of a domain, ``bible:de`` or ``bible:en-de``.
        source: Language translated from where a task names none.
        task_sizes: Training pairs of each task in turn; none: the same for all.
        **options: How they are mixed and read.
        tell: Called with each line about what was read and left out, as ``print``.
    """
    name, sizes = _name_folder(folder), tuple(task_sizes)
    data = Data(data=name, tasks=_join_tasks(tasks), source=source, task_sizes=sizes, **options)
    return make_corpus(data, tell)


@spell_options
def folder_text(
    folder: str | os.PathLike[str],
    *,
    tell: Log | None = None,
    **options: Unpack[FolderText],
) -> Corpus:
    """Reads text for a language model from a folder with train.txt, valid.txt and test.txt.

    Args:
        folder: Where the files are.
        **options: How they are read.
        tell: Called with each line about what was read and left out, as ``print``.
    """
    data = Data(task="language-model", data=_name_folder(folder), **options)
    return make_corpus(data, tell)


@spell_options
def folder_speech(
    folder: str | os.PathLike[str],
    task: Literal["recognition", "speech-translation"] = "recognition",
    *,
    tell: Log | None = None,
    **options: Unpack[FolderSpeech],
) -> Corpus:
    """Reads speech from a folder with train.tsv, valid.tsv and test.tsv, or folders so called.

    A table names in its first line the columns id, audio and tgt_text, tabs between; sound is
    whatever libsndfile reads. A folder has a file of text beside each of sound. Needs the extra
    ``speech``.

    Args:
        folder: Where the tables, or the folders of the parts, are.
        task: recognition writes what is said, speech-translation its translation: they differ in
            how they are scored.
        **options: How it is read.
        tell: Called with each line about what was read and left out, as ``print``.
    """
    return make_corpus(Data(data=_name_folder(folder), task=task, **options), tell)


@spell_options
def speech_tasks(
    folder: str | os.PathLike[str],
    tasks: str | Sequence[str],
    task: Literal["recognition", "speech-translation"] = "recognition",
    task_sizes: Sequence[int] = Data.task_sizes,
    *,
    tell: Log | None = None,
    **options: Unpack[SpeechTasks],
) -> Corpus:
    """Reads speech of several languages, domains or speakers from a folder, in one corpus.

    The tables are those of :func:`folder_speech`, whose columns src_lang, tgt_lang, speaker and
    domain say of which task an utterance is.

    Args:
        folder: Where the tables, or the folders of the parts, are.
        tasks: Languages that are recognised, ``de``, or directions of translation, ``de-en``; of a
            domain or a speaker, ``ann:de`` or ``ann:de-en``.
        task: As for :func:`folder_speech`.
        task_sizes: Training utterances of each task in turn; none: the same for all.
        **options: How they are mixed and read.
        tell: Called with each line about what was read and left out, as ``print``.
    """
    name, sizes = _name_folder(folder), tuple(task_sizes)
    data = Data(data=name, task=task, tasks=_join_tasks(tasks), task_sizes=sizes, **options)
    return make_corpus(data, tell)


@spell_options
def hub_pairs(
    name: str,
    source: str,
    target: str,
    *,
    tell: Log | None = None,
    **options: Unpack[HubPairs],
) -> Corpus:
    """Reads pairs from the Hugging Face hub.

    Args:
        name: multi30k, iwslt14, iwslt17, wmt14, or, with summaries, gigaword, cnn_dailymail and
            scitldr; or a name of your own with a ``hub_path``.
        source: Language translated from, as files or columns are called.
        target: Language translated into.
        **options: How they are read.
        tell: Called with each line about what was read and left out, as ``print``.
    """
    known = _check_name(name, HUB, options.get("hub_path", ""))
    return make_corpus(Data(data=known, source=source, target=target, **options), tell)


@spell_options
def hub_tasks(
    name: str,
    tasks: str | Sequence[str],
    source: str = Data.source,
    task_sizes: Sequence[int] = Data.task_sizes,
    *,
    tell: Log | None = None,
    **options: Unpack[HubTasks],
) -> Corpus:
    """Reads several directions of translation from the Hugging Face hub, in one corpus.

    Args:
        name: multi30k, iwslt14, iwslt17 or wmt14; or a name of your own with a ``hub_path``.
        tasks: Directions of translation: ``de`` (from the source language into it), or ``en-de``.
        source: Language translated from where a task names none.
        task_sizes: Training pairs of each task in turn; none: the same for all.
        **options: How they are mixed and read.
        tell: Called with each line about what was read and left out, as ``print``.
    """
    known, sizes = _check_name(name, HUB, options.get("hub_path", "")), tuple(task_sizes)
    data = Data(data=known, tasks=_join_tasks(tasks), source=source, task_sizes=sizes, **options)
    return make_corpus(data, tell)


@spell_options
def hub_text(name: str, *, tell: Log | None = None, **options: Unpack[HubText]) -> Corpus:
    """Reads text for a language model from the Hugging Face hub.

    Args:
        name: wikitext-2 or wikitext-103; or a name of your own with a ``hub_path``.
        **options: How it is read.
        tell: Called with each line about what was read and left out, as ``print``.
    """
    known = _check_name(name, PROSE, options.get("hub_path", ""))
    return make_corpus(Data(task="language-model", data=known, **options), tell)


@spell_options
def python_docs(*, tell: Log | None = None, **options: Unpack[RunningText]) -> Corpus:
    """Reads the prose of Python's own reference, for a language model; it needs no file.

    Args:
        **options: How it is read.
        tell: Called with each line about what was read and left out, as ``print``.
    """
    return make_corpus(Data(data="pydoc", **options), tell)


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
    joined = tasks if isinstance(tasks, str) else ",".join(tasks)
    if not joined:
        raise ValueError(f"tasks must name at least one direction, as de or en-de; got {tasks!r}")
    return joined
