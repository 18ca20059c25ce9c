"""The cache of encoded corpora on disk."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentheads.corpora.corpus import Corpus
from latentheads.corpora.frames import Frames
from latentheads.corpora.part import Part
from latentheads.corpora.processor import Processor
from latentheads.corpora.rows import Rows
from latentheads.corpora.text import PARTS
from latentheads.corpora.vocabulary import Tagged, Vocabulary, vocabulary_from_json
from latentheads.files import read_json

FORMAT = 5
"""Version of the cache's format; a cache of another version is rebuilt."""

MAX_BYTES = 2**32
"""Maximum size of ``corpus.json``, which holds vocabularies, held-out texts and references."""

CACHE_ENTRY_NAME = r"[0-9a-f]{16}(\..*)?"
"""Pattern of the folder name of a corpus in a cache, and of temporary folders beside it."""

STALE_SECONDS = 24 * 3600
"""A temporary folder is abandoned if nothing was written to it for this long."""


def cached(folder: str | Path, key: str, make: Callable[[], Corpus], write: bool = True) -> Corpus:
    """Loads a corpus from the cache, or makes it and stores it.

    Token ids and frames are memory-mapped. The mixture of a corpus of tasks is not stored. Writing
    is atomic, and a broken cache is rebuilt.

    Args:
        folder: The cache, which holds any number of corpora.
        key: Everything that the corpus depends on, the state of its files included.
        make: Makes the corpus.
        write: Whether to store it.
    """
    path = Path(folder) / hashlib.sha256(key.encode()).hexdigest()[:16]
    stored = _load(path, key)
    if stored is not None:
        return stored
    if not write:
        return make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(_write_error(folder, error)) from error
    corpus = make()
    try:
        if _load(path, key) is None:  # unless another process was first
            _write(path, key, corpus)
    except OSError as error:
        raise ValueError(_write_error(folder, error)) from error
    return _load(path, key) or corpus


def _write_error(folder: str | Path, error: OSError) -> str:
    """Why a cache cannot be written; numpy's error on a full disk has no `strerror`."""
    return f"cannot write the cache {folder}: {error.strerror or error}"


def is_cache_file(folder: str | Path, file: Path) -> bool:
    """Whether a file is part of a cache, or of a temporary folder in it."""
    cache_path, path = Path(folder).expanduser().resolve(), file.resolve()
    first_parts = path.relative_to(cache_path).parts[:1] if path.is_relative_to(cache_path) else ()
    return any(re.fullmatch(CACHE_ENTRY_NAME, name) for name in first_parts)


def _write(path: Path, key: str, corpus: Corpus) -> None:
    """Writes the corpus to a temporary folder and then renames it (atomic)."""
    _remove_stale(path)
    with tempfile.TemporaryDirectory(
        prefix=f"{path.name}.", dir=path.parent, ignore_cleanup_errors=True
    ) as temporary:
        complete = Path(temporary) / "whole"
        complete.mkdir()
        for name in PARTS:
            _save_part(complete, name, getattr(corpus, name))
        description = json.dumps(_description(key, corpus))
        (complete / "corpus.json").write_text(description, encoding="utf-8")
        _remove(path)
        try:
            os.replace(complete, path)
        except OSError:
            if not path.is_dir():
                raise


def _remove_stale(path: Path) -> None:
    """Removes temporary folders that killed processes have left."""
    for leftover in path.parent.glob(f"{path.name}.*"):
        if time.time() - leftover.stat().st_mtime > STALE_SECONDS:
            shutil.rmtree(leftover, ignore_errors=True)


def _remove(path: Path) -> None:
    """Removes a folder or file if it exists."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _description(key: str, corpus: Corpus) -> dict[str, Any]:
    """Everything of a corpus except its arrays; a joint vocabulary has "target" as its source."""
    shared = corpus.source is corpus.target
    own_source = corpus.source and corpus.source.to_json()
    parts = {name: getattr(corpus, name) for name in PARTS}
    return {
        "format": FORMAT,
        "key": key,
        "name": corpus.name,
        "target": corpus.target.to_json(),
        "source": "target" if shared else own_source,
        "references": {name: list(part.references) for name, part in parts.items()},
        "alternatives": {name: [*map(list, part.alternatives)] for name, part in parts.items()},
        "truth": {name: part.true_log_probs for name, part in parts.items()},
        "block_size": {name: part.block_size for name, part in parts.items()},
        "words": {name: part.words for name, part in parts.items()},
        "tasks": [task.name for task in corpus.tasks],
    }


def _save_part(folder: Path, name: str, part: Part) -> None:
    for side, rows in (("target", part.targets), ("source", part.sources)):
        if rows is not None:
            np.save(folder / f"{name}.{side}.tokens.npy", rows.tokens, allow_pickle=False)
            np.save(folder / f"{name}.{side}.ends.npy", rows.ends, allow_pickle=False)
    if part.task is not None:
        np.save(folder / f"{name}.task.npy", part.task, allow_pickle=False)
    if part.tags is not None:
        np.save(folder / f"{name}.tags.npy", part.tags, allow_pickle=False)
    if part.frames is not None:
        ends = np.cumsum(part.frames.lengths, dtype=np.int64)
        part.frames.save(folder / f"{name}.frames.npy")
        np.save(folder / f"{name}.frame_ends.npy", ends, allow_pickle=False)


def _load(path: Path, key: str) -> Corpus | None:
    """Loads the corpus at a path; None if there is none, or it is incomplete or broken."""
    try:
        description = read_json(path / "corpus.json", max_bytes=MAX_BYTES)
        if (description["format"], description["key"]) != (FORMAT, key):
            return None
        target = vocabulary_from_json(description["target"])
        source = description["source"] and (
            target
            if description["source"] == "target"
            else vocabulary_from_json(description["source"])
        )
        train, valid, test = (_load_part(path, name, description, target, source) for name in PARTS)
        return Corpus(description["name"], train, valid, test, Processor(target, source))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, TokenError):
        return None  # numpy parses a broken header as Python


def _load_part(
    path: Path,
    name: str,
    description: dict[str, Any],
    target: Vocabulary,
    source: Vocabulary | None,
) -> Part:
    targets = _load_rows(path, f"{name}.target", len(target))
    sources = None if source is None else _load_rows(path, f"{name}.source", len(source))
    references, truth = description["references"][name], description["truth"][name]
    num_tasks = len(description.get("tasks", ()))
    task = _map_array(path / f"{name}.task.npy") if num_tasks else None
    alternatives = description["alternatives"][name]
    frames = None if source is None or source.is_text else _load_frames(path, name, source.bins)
    tags = None
    if frames is not None and isinstance(target, Tagged):
        tags = _map_array(path / f"{name}.tags.npy")
    sides = [sources, truth, references or None, alternatives or None, task, frames, tags]
    if any(side is not None and len(side) != len(targets) for side in sides):
        raise ValueError(f"{path}: the sides of {name} differ in length")
    return Part(
        targets,
        sources,
        references or (),
        truth,
        description["block_size"][name],
        description["words"][name],
        task,
        alternatives=alternatives or (),
        frames=frames,
        tags=tags,
    )


def _load_frames(path: Path, name: str, bins: int) -> Frames:
    """Memory-maps and validates the frames of a part."""
    values = _map_array(path / f"{name}.frames.npy")
    ends = _map_array(path / f"{name}.frame_ends.npy")
    total = ends[-1] if len(ends) else 0
    if values.shape != (total, bins) or not (np.diff(ends, prepend=0) > 0).all():
        raise ValueError(f"{path}: the frames of {name} are broken")
    return Frames(values, ends)


def _load_rows(path: Path, name: str, vocab_size: int) -> Rows:
    """Memory-maps the rows of a side and validates their ends and token ids."""
    tokens = _map_array(path / f"{name}.tokens.npy")
    ends = _map_array(path / f"{name}.ends.npy")
    lengths_match = len(tokens) == (ends[-1] if len(ends) else 0)
    ids_valid = not len(tokens) or 0 <= tokens.min() <= tokens.max() < vocab_size
    if not (lengths_match and ids_valid and (np.diff(ends, prepend=0) >= 0).all()):
        raise ValueError(f"{path}: {name} is broken")
    return Rows(tokens, ends)


def _map_array(path: Path) -> NDArray[Any]:
    """Memory-maps an array."""
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
