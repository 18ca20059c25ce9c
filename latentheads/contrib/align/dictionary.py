"""Counts of links as text: a dictionary that training begins with, or what an aligner learned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from latentheads.contrib.align.aligner import Direction, WordAligner
from latentheads.contrib.align.bitext import END
from latentheads.contrib.align.jumps import initial_jumps
from latentheads.contrib.align.lexicon import ALIKE
from latentheads.contrib.align.training import AlignerOptions
from latentheads.contrib.align.vocabulary import Vocabulary
from latentheads.corpora.text import iterate_lines
from latentheads.files import atomic_write

MAX_COUNT = 1e9
"""Largest count of a word pair, which single precision still adds to."""


def read_dictionary(path: str | Path) -> WordAligner:
    """Reads word pairs with counts, as an aligner that has seen no line, to be trained on.

    Args:
        path: A file of lines ``source target count``; the count is 1 where it is left out. With two
            tabs in a line its words may have spaces.

    Raises:
        ValueError: The file cannot be read, or a line has another form.
    """
    counts: dict[tuple[str, str], float] = {}
    for number, line in enumerate(iterate_lines(path), 1):
        if line.strip():
            source, target, count = _parse(line, f"{path}, line {number}")
            counts[source, target] = counts.get((source, target), 0) + count
    return make_dictionary((source, target, count) for (source, target), count in counts.items())


def _parse(line: str, where: str) -> tuple[str, str, float]:
    lowered = line.lower()
    words = [word.strip() for word in lowered.split("\t")]
    if len(words) != 3 or "" in words:  # three with tabs may have spaces
        words = lowered.split()
    try:
        source, target, count = words if len(words) == 3 else (*words, "1")
        value = float(count)
    except ValueError as error:
        raise ValueError(f"{where}: 'source target count' is expected, got {line!r}") from error
    if not 0 < value <= MAX_COUNT:
        raise ValueError(f"{where}: a count must be above 0, at most {MAX_COUNT:g}, got {count}")
    return source, target, value


def make_dictionary(pairs: Iterable[tuple[str, str, float]]) -> WordAligner:
    """An aligner that has seen no line, with the counts of distinct word pairs."""
    source: dict[str, int] = {}
    target: dict[str, int] = {}
    entries = sorted(
        (source.setdefault(left, len(source)), target.setdefault(right, len(target)), count)
        for left, right, count in pairs
    )
    dtype = torch.promote_types(torch.get_default_dtype(), torch.float32)
    counts = torch.tensor([count for *_, count in entries], dtype=dtype)
    options = AlignerOptions()
    settings = options.null_probability, options.jump_smoothing, dtype
    forward, backward = (
        Direction(
            counts.clone(),  # tensors of a file share no memory
            counts.new_zeros(len(generated)),
            counts.new_zeros(len(generated)),
            initial_jumps(len(generating), *settings),
            ALIKE,
        )
        for generating, generated in ((source, target), (target, source))
    )
    ids = torch.tensor([pair for *pair, _ in entries], dtype=torch.int32).reshape(-1, 2).mT
    vocabularies = Vocabulary(tuple(source)), Vocabulary(tuple(target))
    most = float(counts.max()) if len(counts) else 0.0
    return WordAligner(*vocabularies, ids, forward, backward, options, pseudocount=most)


def write_dictionary(aligner: WordAligner, path: str | Path) -> None:
    """Writes a line ``source target count`` for each word pair that was linked.

    :func:`read_dictionary` reads the file. An older file stays until the new one is complete.
    """
    with atomic_write(Path(path)) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(format_dictionary(aligner))


def format_dictionary(aligner: WordAligner) -> Iterator[str]:
    """Yields a line ``source target count`` for each word pair that was linked."""
    means = (aligner.forward.counts + aligner.backward.counts) / 2
    sides = aligner.source.words, aligner.target.words
    for source, target, count in zip(*aligner.entries.tolist(), means.tolist(), strict=True):
        if END not in (sides[0][source], sides[1][target]):
            yield f"{sides[0][source]}\t{sides[1][target]}\t{count:.4g}\n"
