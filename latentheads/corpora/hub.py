"""Corpora of the Hugging Face hub, and local files in the formats of `datasets`."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import Any

from latentheads.corpora.text import PARTS, Pair

__all__ = ["HUB", "PROSE", "HubCorpus", "load_lines", "load_pairs"]

CHUNK = 1_000
"""Rows fetched at a time."""

CONVERTED = "refs/convert/parquet"
"""Where the hub keeps its own parquet copy of a corpus that is otherwise a program."""

REPORTED = 300
"""Characters of a foreign error that ours repeats at most."""

SPLITS = {"train": "train", "valid": "validation", "test": "test"}


@dataclass(frozen=True)
class HubCorpus:
    """Where a corpus is and what its rows look like.

    Attributes:
        path: Repository on the hub, local folder, or loader such as ``json`` or ``parquet``.
        config: Which of the repository's configurations.
        column: The column that holds a sentence for each language; "" where every language is
            a column of its own. Of running text, the column of its lines.
        splits: What it calls train, valid and test.
        streaming: Whether rows are read over the network as they are needed, not downloaded first.
        revision: Branch or commit of the repository.
        files: Pattern of the files where the repository does not say it itself; may hold
            ``{config}`` and ``{split}``.
        several: Whether the target is a list of references, and the source one of sentences.
        cased: Whether published scores mind case.
    """

    path: str
    config: str | None = None
    column: str = "translation"
    splits: Mapping[str, str] = field(default_factory=lambda: SPLITS)
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
"""The parallel corpora known by name: German and English, and texts with their summaries."""

PROSE: dict[str, HubCorpus] = {
    "wikitext-2": HubCorpus("Salesforce/wikitext", "wikitext-2-v1", column="text"),
    "wikitext-103": HubCorpus("Salesforce/wikitext", "wikitext-103-v1", column="text"),
}
"""The running texts known by name."""


def load_pairs(
    name: str,
    part: str,
    source: str,
    target: str,
    path: str | Path | None = None,
    config: str | None = None,
    streaming: bool | None = None,
    cache_dir: str | Path | None = None,
    limit: int | None = None,
    column: str | None = None,
    split: str | None = None,
    revision: str | None = None,
    files: str | None = None,
) -> Iterator[Pair]:
    """Reads the pairs of a part with `datasets`. Every option not given is that of `HUB`.

    Args:
        name: One of `HUB`; any other name where `path` is given.
        part: One of ``train``, ``valid``, ``test``.
        source: Language translated from.
        target: Language translated into.
        path: Another place, see `HubCorpus`; the known config, revision and files then no longer
            apply.
        config: Another configuration.
        streaming: Whether to stream.
        cache_dir: Where downloads are kept; None for the default of `datasets`.
        limit: Most pairs to read.
        column: As in `HubCorpus`.
        split: What the part is called there.
        revision: As in `HubCorpus`.
        files: As in `HubCorpus`; a path or pattern, within `path` where that is a folder.

    Raises:
        ValueError: The corpus cannot be reached, or lacks the part or a language.
    """
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}; got {part!r}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    given: dict[str, Any] = {"config": config, "column": column, "streaming": streaming}
    given |= {"revision": revision, "files": files}
    corpus = _known(HUB, name, None if path is None else str(path))
    corpus = replace(corpus, **{key: value for key, value in given.items() if value is not None})
    first, rows = _opened(corpus, split or corpus.splits.get(part, part), cache_dir)
    _check(first, corpus, source, target)
    return _pairs(first, islice(rows, None if limit is None else limit - 1), corpus, source, target)


def load_lines(
    name: str, part: str, path: str | Path | None = None, config: str | None = None
) -> Iterator[str]:
    """Reads the lines of a part of a running text with `datasets`.

    Args:
        name: One of `PROSE`; any other name where `path` is given, its lines in a column ``text``.
        part: One of ``train``, ``valid``, ``test``.
        path: Another place, see `HubCorpus`; the known config then no longer applies.
        config: Another configuration.

    Raises:
        ValueError: The corpus cannot be reached, or lacks the part or the column.
    """
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}; got {part!r}")
    corpus = _known(PROSE, name, None if path is None else str(path))
    column = PROSE[name].column if name in PROSE else "text"
    corpus = replace(corpus, config=config or corpus.config, column=column)
    first, rows = _opened(corpus, corpus.splits.get(part, part), None)
    for place, row in enumerate(chain([first], rows), 1):
        line = row.get(corpus.column)
        if not isinstance(line, str):
            raise ValueError(
                f"{corpus.path}, row {place}: no text in a column {corpus.column!r}; "
                f"it has {', '.join(row)}"
            )
        yield line.removesuffix("\n").removesuffix("\r")


def _known(table: Mapping[str, HubCorpus], name: str, path: str | None) -> HubCorpus:
    if path is None and name not in table:
        raise ValueError(f"corpus must be one of {', '.join(table)}, or a path given; got {name!r}")
    known = table.get(name, HubCorpus(""))
    if path is None:
        return known
    if path == "pandas":
        raise ValueError("pandas reads pickles, which are programs: use parquet, json or csv")
    return replace(known, path=path, config=None, revision=None, files=None)


def _opened(
    corpus: HubCorpus, split: str, cache_dir: str | Path | None
) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The first row of a split, and the others."""
    rows = _rows(corpus, split, None if cache_dir is None else str(cache_dir))
    first = next(rows, None)
    if first is None:
        raise ValueError(f"split {split!r} of {corpus.path} has no row")
    return first, rows


def _rows(corpus: HubCorpus, split: str, cache_dir: str | None) -> Iterator[dict[str, Any]]:
    """The rows of a split; whatever goes wrong while reading is said in one line."""
    try:
        with _quiet():
            waiting = iter(_load(corpus, split, cache_dir))
        while True:
            with _quiet():
                chunk = list(islice(waiting, CHUNK))
            if not chunk:
                return
            yield from chunk
    except ImportError as reason:
        raise ValueError(
            f"corpora of the hub need datasets: pip install datasets ({reason})"
        ) from reason
    except ConnectionError as reason:
        raise ValueError(
            f"cannot reach {corpus.path} on the hub: {_said(reason)}; give the path of a local copy"
        ) from reason
    except Exception as reason:
        raise ValueError(
            f"cannot read split {split!r} of {corpus.path}: {_said(reason)}"
        ) from reason


def _load(corpus: HubCorpus, split: str, cache_dir: str | None) -> Iterable[dict[str, Any]]:
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
        cache_dir=cache_dir,
        trust_remote_code=False,  # a corpus is data, whatever this version of datasets would run
        **options,
    )
    return loaded


@contextmanager
def _quiet() -> Iterator[None]:
    """Without warnings, progress bars and log lines of `datasets` and what it stands on."""
    with ExitStack() as after, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for library in map(import_module, ("datasets", "huggingface_hub.utils")):
            if not library.are_progress_bars_disabled():
                library.disable_progress_bars()
                after.callback(library.enable_progress_bars)
        for name in ("datasets", "huggingface_hub"):
            logger = logging.getLogger(name)
            after.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        yield


def _said(reason: Exception) -> str:
    """The error and its cause in one line."""
    said = ": ".join(str(one) for one in (reason, reason.__cause__) if one)
    return " ".join(said.split())[:REPORTED] or type(reason).__name__


def _check(row: dict[str, Any], corpus: HubCorpus, *languages: str) -> None:
    if corpus.column and not isinstance(row.get(corpus.column), dict):
        raise ValueError(
            f"{corpus.path} has no column {corpus.column!r} with a sentence for each language; "
            f"it has {', '.join(row)}"
        )
    cells = row[corpus.column] if corpus.column else row
    for language in languages:
        if language not in cells:
            raise ValueError(f"{corpus.path} has no {language!r}; it has {', '.join(cells)}")


def _pairs(
    first: dict[str, Any],
    rest: Iterable[dict[str, Any]],
    corpus: HubCorpus,
    source: str,
    target: str,
) -> Iterator[Pair]:
    for place, row in enumerate(chain([first], rest), 1):
        cells = row[corpus.column] if corpus.column else row
        left, right = cells[source], cells[target]
        if corpus.several and isinstance(left, list) and isinstance(right, list):
            left, right = " ".join(left), "\t".join(" ".join(one.split()) for one in right)
        if not (isinstance(left, str) and isinstance(right, str)):
            raise ValueError(f"{corpus.path}, row {place}: {source} and {target} must be text")
        yield left, right
