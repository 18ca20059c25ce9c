"""The cache that keeps an encoded corpus on disk."""

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

from latentheads.corpora.corpus import Corpus, Part
from latentheads.corpora.rows import Rows
from latentheads.corpora.speech.frames import Frames
from latentheads.corpora.speech.vocabulary import Positions
from latentheads.corpora.subwords import vocabulary_from_json
from latentheads.corpora.text import PARTS
from latentheads.corpora.vocabulary import Tagged, Vocabulary
from latentheads.files import read_json

__all__ = ["cached", "is_kept"]

FORMAT = 5
"""Number of the cache's format; a cache of another one is made again."""

MOST_BYTES = 2**32
"""Bytes of what is kept of a corpus beside its tokens: held-out texts, and their references."""

KEPT = r"[0-9a-f]{16}(\..*)?"
"""The name of a corpus in a cache, and of what is to be moved there."""

LEFT_SECONDS = 24 * 3600
"""A file that is not in its place yet is taken for abandoned after so long without a write."""


def cached(folder: str | Path, key: str, make: Callable[[], Corpus], keep: bool = True) -> Corpus:
    """Takes a corpus from the cache, or makes it and puts it there.

    Token ids and frames are mapped into memory, not read; a corpus of tasks comes back without
    saying how they are mixed. The cache is written whole or not at all, and one that is broken is
    made again.

    Args:
        folder: Holds any number of corpora.
        key: Everything that the corpus depends on, the state of its files included.
        make: Makes it.
        keep: Whether to put it there.

    Raises:
        ValueError: The folder cannot be written.
    """
    place = Path(folder) / hashlib.sha256(key.encode()).hexdigest()[:16]
    found = _load(place, key)
    if found is not None:
        return found
    if not keep:
        return make()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise ValueError(_refusal(folder, reason)) from reason
    corpus = make()
    try:
        if _load(place, key) is None:  # unless another process was first
            _store(place, key, corpus)
    except OSError as reason:
        raise ValueError(_refusal(folder, reason)) from reason
    return _load(place, key) or corpus


def _refusal(folder: str | Path, reason: OSError) -> str:
    """Why a cache cannot be written; an array on a full disk has no word of the system's."""
    return f"cannot write the cache {folder}: {reason.strerror or reason}"


def is_kept(folder: str | Path, file: Path) -> bool:
    """Whether a file is one of those that a cache keeps, or is about to."""
    whole, place = Path(folder).expanduser().resolve(), file.resolve()
    inside = place.relative_to(whole).parts[:1] if place.is_relative_to(whole) else ()
    return any(re.fullmatch(KEPT, name) for name in inside)


def _store(place: Path, key: str, corpus: Corpus) -> None:
    """Writes the corpus beside its place and then moves it there."""
    _clear_left(place)
    with tempfile.TemporaryDirectory(
        prefix=f"{place.name}.", dir=place.parent, ignore_cleanup_errors=True
    ) as temporary:
        whole = Path(temporary) / "whole"
        whole.mkdir()
        for name in PARTS:
            _save_part(whole, name, getattr(corpus, name))
        text = json.dumps(_description(key, corpus))
        (whole / "corpus.json").write_text(text, encoding="utf-8")
        _clear(place)
        try:
            os.replace(whole, place)
        except OSError:
            if not place.is_dir():
                raise


def _clear_left(place: Path) -> None:
    """Removes what processes that were killed have left beside a place."""
    for left in place.parent.glob(f"{place.name}.*"):
        if time.time() - left.stat().st_mtime > LEFT_SECONDS:
            shutil.rmtree(left, ignore_errors=True)


def _clear(place: Path) -> None:
    """Removes what stands at a place, if anything."""
    if place.is_dir():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)


def _description(key: str, corpus: Corpus) -> dict[str, Any]:
    """Everything about a corpus but its arrays; the source of a joint vocabulary is "target"."""
    shared = corpus.source is corpus.target
    alone = corpus.source and corpus.source.to_json()
    parts = {name: getattr(corpus, name) for name in PARTS}
    return {
        "format": FORMAT,
        "key": key,
        "name": corpus.name,
        "target": corpus.target.to_json(),
        "source": "target" if shared else alone,
        "references": {name: list(part.references) for name, part in parts.items()},
        "alternatives": {name: [*map(list, part.alternatives)] for name, part in parts.items()},
        "truth": {name: part.truth for name, part in parts.items()},
        "block": {name: part.block for name, part in parts.items()},
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


def _load(place: Path, key: str) -> Corpus | None:
    """The corpus kept at a place; None where there is none that is whole."""
    try:
        said = read_json(place / "corpus.json", most=MOST_BYTES)
        if (said["format"], said["key"]) != (FORMAT, key):
            return None
        target = vocabulary_from_json(said["target"])
        source = said["source"] and (
            target if said["source"] == "target" else vocabulary_from_json(said["source"])
        )
        train, valid, test = (_load_part(place, part, said, target, source) for part in PARTS)
        return Corpus(said["name"], train, valid, test, target, source)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError):
        return None


def _load_part(
    place: Path, name: str, said: dict[str, Any], target: Vocabulary, source: Vocabulary | None
) -> Part:
    targets = _load_rows(place, f"{name}.target", len(target))
    sources = None if source is None else _load_rows(place, f"{name}.source", len(source))
    references, truth = said["references"][name], said["truth"][name]
    task = _load_tasks(place, name, len(said["tasks"])) if said.get("tasks") else None
    others = said["alternatives"][name]
    frames = _load_frames(place, name, source) if isinstance(source, Positions) else None
    tags = None
    if frames is not None and isinstance(target, Tagged):
        tags = _load_tags(place, name, target)
    known = [sources, truth, references or None, others or None, task, frames, tags]
    if any(other is not None and len(other) != len(targets) for other in known):
        raise ValueError(f"{place}: the sides of {name} differ in length")
    return Part(
        targets,
        sources,
        references or (),
        truth,
        said["block"][name],
        said["words"][name],
        task,
        alternatives=others or (),
        frames=frames,
        tags=tags,
    )


def _load_frames(place: Path, name: str, source: Positions) -> Frames:
    """Frames whose ends fit, mapped into memory."""
    values = _map_array(place / f"{name}.frames.npy")
    ends = _map(place / f"{name}.frame_ends.npy", np.int64)
    number = ends[-1] if len(ends) else 0
    if values.dtype != np.float16 or values.shape != (number, source.filterbank.bins):
        raise ValueError(f"{place}: the frames of {name} are broken")
    if not (np.diff(ends, prepend=0) > 0).all():
        raise ValueError(f"{place}: the frames of {name} are broken")
    return Frames(values, ends)


def _load_tags(place: Path, name: str, target: Tagged) -> NDArray[np.int32]:
    """The tag of each target."""
    found = _map(place / f"{name}.tags.npy", np.int32)
    if not len(found) or not len(target.plain) <= found.min() <= found.max() < len(target):
        raise ValueError(f"{place}: the tags of {name} are broken")
    return found


def _load_tasks(place: Path, name: str, tasks: int) -> NDArray[np.int32]:
    """The task of each sentence, counted from 0 and below ``tasks``."""
    found = _map(place / f"{name}.task.npy", np.int32)
    if not len(found) or not 0 <= found.min() <= found.max() < tasks:
        raise ValueError(f"{place}: the tasks of {name} are broken")
    return found


def _load_rows(place: Path, name: str, types: int) -> Rows:
    """Rows whose ends fit their tokens and whose tokens fit the vocabulary."""
    tokens = _map(place / f"{name}.tokens.npy", np.int32)
    ends = _map(place / f"{name}.ends.npy", np.int64)
    fit = len(tokens) == (ends[-1] if len(ends) else 0)
    known = not len(tokens) or 0 <= tokens.min() <= tokens.max() < types
    if not (fit and known and (np.diff(ends, prepend=0) >= 0).all()):
        raise ValueError(f"{place}: {name} is broken")
    return Rows(tokens, ends)


def _map_array(path: Path) -> NDArray[Any]:
    """A stored array, mapped into memory."""
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except TokenError as reason:  # numpy reads a spoilt header as if it were Python
        raise ValueError(f"{path} is broken: {reason}") from reason


def _map(path: Path, kind: type[np.generic]) -> NDArray[Any]:
    """A stored list of numbers, mapped into memory."""
    array = _map_array(path)
    if array.ndim != 1 or array.dtype != kind:
        raise ValueError(f"{path} must have one dimension of {kind.__name__}")
    return array
