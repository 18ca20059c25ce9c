"""Corpora of the Hugging Face hub, and local files in the formats of `datasets`."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeGuard

from latentheads.corpora.text import SentencePair
from latentheads.errors import shown

CHUNK = 1_000
"""Number of rows fetched at a time."""

CONVERTED = "refs/convert/parquet"
"""Revision of the hub's parquet copy of a corpus whose repository is a loading script."""

REPORTED = 300
"""Maximum number of characters of another library's error in ours."""

SPLITS = {"train": "train", "valid": "validation", "test": "test"}


@dataclass(frozen=True)
class HubCorpus:
    """Location and column layout of a corpus.

    Attributes:
        path: Repository on the hub, or local folder.
        config: Configuration of the repository.
        column: The column that holds a sentence for each language; "" where every language is
            a column of its own. Of running text, the column of its lines.
        streaming: Whether rows are read over the network as they are needed, not downloaded first.
        revision: Branch or commit of the repository.
        files: Pattern of the data files if the repository does not define it; may contain
            ``{config}`` and ``{split}``.
        several: Whether the target is a list of references, and the source a list of sentences.
        cased: Whether published scores are case-sensitive.
    """

    path: str
    config: str | None = None
    column: str = "translation"
    streaming: bool = False
    revision: str | None = None
    files: str | None = None
    several: bool = False
    cased: bool = True


def _converted(path: str, config: str) -> HubCorpus:
    return HubCorpus(path, config, revision=CONVERTED, files="{config}/{split}/*.parquet")


HUB: dict[str, HubCorpus] = {
    "multi30k": HubCorpus("bentrevett/multi30k", column="", cased=False),
    "iwslt14": replace(_converted("bbaaaa/iwslt14-de-en", "de-en"), cased=False),
    "iwslt17": _converted("IWSLT/iwslt2017", "iwslt2017-de-en"),
    "wmt14": HubCorpus("wmt/wmt14", "de-en", streaming=True),
    "gigaword": replace(_converted("Harvard/gigaword", "default"), column=""),
    "cnn_dailymail": HubCorpus("abisee/cnn_dailymail", "3.0.0", column=""),
    "scitldr": replace(_converted("allenai/scitldr", "Abstract"), column="", several=True),
}
"""The named parallel corpora: German and English, and texts with their summaries."""

PROSE: dict[str, HubCorpus] = {
    "wikitext-2": HubCorpus("Salesforce/wikitext", "wikitext-2-v1", column="text"),
    "wikitext-103": HubCorpus("Salesforce/wikitext", "wikitext-103-v1", column="text"),
}
"""The named running texts."""


def load_pairs(
    name: str,
    part: str,
    source: str,
    target: str,
    path: str | Path | None = None,
    config: str | None = None,
) -> Iterator[SentencePair]:
    """Reads the pairs of a part with `datasets`.

    Args:
        name: One of `HUB`; any other name where `path` is given, its rows in either layout.
        part: One of ``train``, ``valid``, ``test``.
        source: Language translated from.
        target: Language translated into.
        path: Another path, see `HubCorpus`; config, revision and files of the table are then
            ignored.
        config: Another configuration.

    Raises:
        ValueError: The corpus cannot be reached, or has no such part or language.
    """
    corpus = _get_entry(HUB, name, path, config)
    first, rows = _open_part(corpus, part)
    if name not in HUB and corpus.column not in first:
        corpus = replace(corpus, column="")
    _check(first, corpus, source, target)
    return _pairs(chain([first], rows), corpus, source, target)


def load_lines(
    name: str, part: str, path: str | Path | None = None, config: str | None = None
) -> Iterator[str]:
    """Reads the lines of a part of a running text with `datasets`.

    Args:
        name: One of `PROSE`; any other name where `path` is given, its lines in a column ``text``.
        part: One of ``train``, ``valid``, ``test``.
        path: Another path, see `HubCorpus`; the config of the table is then ignored.
        config: Another configuration.

    Raises:
        ValueError: The corpus cannot be reached, or has no such part or column.
    """
    column = PROSE[name].column if name in PROSE else "text"
    corpus = replace(_get_entry(PROSE, name, path, config), column=column)
    first, rows = _open_part(corpus, part)
    for number, row in enumerate(chain([first], rows), 1):
        line = row.get(corpus.column)
        if not isinstance(line, str):
            raise ValueError(
                f"{corpus.path}, row {number}: no text in a column {corpus.column!r}; "
                f"it is {shown(row)}"
            )
        yield line.removesuffix("\n").removesuffix("\r")


def _get_entry(
    table: Mapping[str, HubCorpus], name: str, path: str | Path | None, config: str | None
) -> HubCorpus:
    """The entry of a corpus in the table, or one with another path."""
    default = table.get(name, HubCorpus(""))
    if path is None:
        return replace(default, config=config or default.config)
    local = os.path.expanduser(path)
    if os.path.exists(local):
        local = os.path.abspath(local)  # a folder may be called as a loader is
    elif local.isidentifier() and find_spec(f"datasets.packaged_modules.{local}"):
        raise ValueError(
            "path must be a folder or a repository of the hub, got a loader of datasets, "
            f"{shown(local)}, which would read the current folder"
        )
    return replace(default, path=local, config=config, revision=None, files=None)


def _open_part(corpus: HubCorpus, part: str) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The first row of a part, and an iterator over the others."""
    split = SPLITS[part]
    rows = _rows(corpus, split)
    first = next(rows, None)
    if first is None:
        raise ValueError(f"split {split!r} of {corpus.path} has no row")
    return first, rows


def _rows(corpus: HubCorpus, split: str) -> Iterator[dict[str, Any]]:
    """The rows of a split; any error while reading becomes a ValueError of one line."""
    try:
        with _silenced():
            iterator = iter(_load(corpus, split))
        while True:
            with _silenced():
                chunk = list(islice(iterator, CHUNK))
            if not chunk:
                return
            yield from chunk
    except ConnectionError as error:
        raise ValueError(
            f"cannot reach {corpus.path} on the hub: {_format_error(error)}; "
            "give the path of a local copy"
        ) from error
    except Exception as error:
        raise ValueError(
            f"cannot read split {split!r} of {corpus.path}: {_format_error(error)}"
        ) from error


def _load(corpus: HubCorpus, split: str) -> Iterable[dict[str, Any]]:
    datasets: Any = import_module("datasets")
    options: dict[str, Any] = {"name": corpus.config}
    if corpus.files is not None:
        pattern = corpus.files.replace("{config}", corpus.config or "").replace("{split}", split)
        options = {"data_files": {split: pattern}}
    loaded: Iterable[dict[str, Any]] = datasets.load_dataset(
        corpus.path,
        split=split,
        streaming=corpus.streaming,
        revision=corpus.revision,
        trust_remote_code=False,  # a corpus is data, whatever this version of datasets would run
        **options,
    )
    return loaded


@contextmanager
def _silenced() -> Iterator[None]:
    """Silences warnings, progress bars and log lines of `datasets` and `huggingface_hub`."""
    with ExitStack() as after, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for library in map(import_module, ("datasets", "huggingface_hub.utils")):
            if not library.are_progress_bars_disabled():
                library.disable_progress_bars()
                after.callback(library.enable_progress_bars)
        for name in ("datasets", "huggingface_hub"):
            logger = logging.getLogger(name)
            after.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL)
        yield


def _format_error(error: Exception) -> str:
    """Formats an error and its cause in one line."""
    message = ": ".join(str(exception) for exception in (error, error.__cause__) if exception)
    return " ".join(message.split())[:REPORTED] or type(error).__name__


def _cells(row: dict[str, Any], corpus: HubCorpus) -> dict[str, Any]:
    """The sentences of a row by language; later rows may lack keys that the first one has."""
    cells = row.get(corpus.column) if corpus.column else row
    return cells if isinstance(cells, dict) else {}


def _are_texts(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _check(row: dict[str, Any], corpus: HubCorpus, *languages: str) -> None:
    if corpus.column and not isinstance(row.get(corpus.column), dict):
        raise ValueError(
            f"{corpus.path} has no column {corpus.column!r} with a sentence for each language; "
            f"it has {', '.join(row)}"
        )
    cells = _cells(row, corpus)
    for language in languages:
        if language not in cells:
            raise ValueError(f"{corpus.path} has no {language!r}; it has {', '.join(cells)}")


def _pairs(
    rows: Iterable[dict[str, Any]], corpus: HubCorpus, source: str, target: str
) -> Iterator[SentencePair]:
    for number, row in enumerate(rows, 1):
        cells = _cells(row, corpus)
        source_text, target_text = cells.get(source), cells.get(target)
        if corpus.several and _are_texts(source_text) and _are_texts(target_text):
            source_text, target_text = (
                " ".join(source_text),
                "\t".join(" ".join(reference.split()) for reference in target_text),
            )
        if not (isinstance(source_text, str) and isinstance(target_text, str)):
            raise ValueError(f"{corpus.path}, row {number}: {source} and {target} must be text")
        yield source_text, target_text
