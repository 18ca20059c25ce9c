"""The page of some runs: gathered, kept within its size, and shown or written."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from latentheads.checks import check_least, check_seed, check_word
from latentheads.corpora import Corpus, Part
from latentheads.corpora.batches import batches
from latentheads.corpora.data import Data
from latentheads.corpora.text import PARTS
from latentheads.errors import in_a_line
from latentheads.files import write_text
from latentheads.inference.sentences import sentence_bounds
from latentheads.page.calibration import gather_calibration
from latentheads.page.curves import gather_curves
from latentheads.page.facts import find_revision, gather_facts, list_scores
from latentheads.page.grid import gather_grid, gather_pairs, list_blocks, measure_distances
from latentheads.page.maps import (
    HeadMaps,
    MapTokens,
    gather_alignments,
    gather_map_tokens,
    gather_maps,
)
from latentheads.page.packing import pack_maps
from latentheads.page.sentences import choose_sentences, gather_texts
from latentheads.page.template import fill_page
from latentheads.runs.folder import unlike_names
from latentheads.runs.loading import open_run
from latentheads.runs.run import Run, check_own_corpus
from latentheads.values import shown

__all__ = ["ReportPage", "report"]

LARGEST = 2_500_000
"""Bytes of a page, where it can be so small: a message can carry it."""

KEPT = 8
"""Draws that are kept one by one, where the page has room for them."""

TOKENS = 512
"""Tokens of the sentences that are read together: their draws are all in memory."""

HEIGHT = 820
"""Height of the frame in a notebook, in pixels."""


@dataclass(frozen=True)
class _Sentence:
    """A sentence of a run: its text, and the maps of its heads."""

    text: dict[str, Any]
    sides: dict[str, MapTokens]
    maps: list[HeadMaps]
    alignments: list[HeadMaps]

    def to_json(self, draws: int) -> dict[str, Any]:
        every = [*self.maps, *self.alignments]
        return {
            **self.text,
            "sides": {chain: side.to_json() for chain, side in self.sides.items()},
            "maps": [each.to_json(draws) for each in self.maps],
            "alignments": [each.to_json(draws) for each in self.alignments],
            "bytes": pack_maps(array for each in every for array in each.arrays(draws)),
        }


@dataclass(frozen=True)
class _Gathered:
    """All that a page says of a run."""

    facts: dict[str, Any]
    sentences: list[_Sentence]

    def to_json(self, shown: int, draws: int) -> dict[str, Any]:
        sentences = [each.to_json(draws) for each in self.sentences[:shown]]
        return {**self.facts, "sentences": sentences}


@dataclass(frozen=True)
class ReportPage:
    """A page of HTML that needs nothing but a browser; a notebook shows it in a frame.

    Attributes:
        html: The whole page.
        unread: Runs whose text could not be read, and why: of these the page says what their
            folders do.
    """

    html: str
    unread: Mapping[str, str] = field(default_factory=dict)

    def save(self, path: str | Path) -> None:
        """Writes the page whole or not at all.

        Raises:
            OSError: It cannot be written.
        """
        write_text(Path(path), self.html)

    def __repr__(self) -> str:
        return f"ReportPage({len(self.html.encode()):,} bytes)"

    def _repr_html_(self) -> str:
        style = f"width: 100%; height: {HEIGHT}px; border: 0"
        return f'<iframe srcdoc="{html.escape(self.html)}" style="{style}"></iframe>'


Named = Run | str | Path


def report(
    runs: Named | Sequence[Named],
    path: str | Path | None = None,
    *,
    part: str = "test",
    sentences: int = 100,
    shown: int = 6,
    draws: int = 32,
    seed: int = 0,
) -> ReportPage:
    """Makes one page of what runs are, what they reported, and what their heads do.

    A page has at most 2.5 million bytes where it can: where it would be larger, fewer draws, and
    then fewer sentences, at least one of each run, stand in it, and it says so.

    Args:
        runs: A finished run or several, or their folders.
        path: Where to write the page too.
        part: Where the sentences are from: train, valid or test.
        sentences: Sentences that are read, or blocks of running text: what every head is measured
            on.
        shown: Sentences whose heads are shown one by one.
        draws: Draws of the heads of each that is shown; from 25 on it is known how heavy the tail
            of their weights is.
        seed: Of the draws.

    Raises:
        ValueError: An option is out of range, or a folder holds no run.
        OSError: The page cannot be written.
    """
    asked = {"sentences": sentences, "shown": shown, "draws": draws}
    check_least(asked, sentences=1, shown=1, draws=2)
    check_seed(seed)
    check_word("part", part, PARTS)
    opened = _open_runs([runs] if isinstance(runs, Run | str | Path) else runs)
    found = []
    for name, run in zip(unlike_names([run.path for run in opened]), opened, strict=True):
        found.append(_gather_run(run, name, part, sentences, shown, draws, seed))
    unread = {each.facts["name"]: each.facts["unread"] for each in found if "unread" in each.facts}
    page = ReportPage(_fit_page(found, shown, draws), unread)
    if path is not None:
        page.save(path)
    return page


def _open_runs(runs: Sequence[Named]) -> list[Run]:
    """The runs, each corpus made once."""
    if not isinstance(runs, Iterable):
        raise ValueError(f"runs must be a run, its folder, or a list of such, got {shown(runs)}")
    opened = [open_run(run) for run in runs]
    if not opened:
        raise ValueError("runs must be at least one")
    makers: dict[Data, Run] = {}
    for run in opened:
        first = makers.setdefault(run.settings.data, run)
        if first is not run and run.given is None and not run.settings.in_memory:
            run.given = _share_corpus(first, run)
    return opened


def _share_corpus(first: Run, run: Run) -> Corpus | None:
    """The corpus of another run of the same options; None where it cannot be made."""
    try:
        check_own_corpus(run, first.corpus)
    except (OSError, ValueError):
        return None
    return first.corpus


def _gather_run(
    run: Run, name: str, part: str, sentences: int, shown: int, draws: int, seed: int
) -> _Gathered:
    """All that is known of a run; without its text, what its folder says."""
    facts = gather_facts(run, name) | {"curves": gather_curves(run.metrics)}
    facts["selection"] = dict(run.results.selection) if run.results else {}
    try:
        text: Part = getattr(run.corpus, part)
    except (OSError, ValueError) as reason:
        return _Gathered({**facts, "unread": in_a_line(reason)}, [])
    some = text.first(sentences)
    facts["read"] = {"part": part, "unit": text.unit, "measured": len(some), "draws": draws}
    if list_blocks(run):
        apart = measure_distances(run, some)
        facts["grid"], facts["pairs"] = gather_grid(run, some, apart), gather_pairs(apart)
    facts["calibration"] = gather_calibration(run, some)
    chosen = choose_sentences(text, shown)
    return _Gathered(facts, _gather_sentences(run, chosen, draws, seed))


def _gather_sentences(run: Run, part: Part, draws: int, seed: int) -> list[_Sentence]:
    """The sentences of a part with their bounds and maps, in its order."""
    found: dict[int, _Sentence] = {}
    for batch in batches(part, TOKENS):
        places = batch.sentences.tolist()
        bounds = sentence_bounds(run.model, run.guide, batch, draws, seed)
        texts = gather_texts(run, part.take(places), bounds)
        links = [part.links[place] if part.links else frozenset() for place in places]
        sides = [gather_map_tokens(run, batch, row, each) for row, each in enumerate(links)]
        number = draws if bounds.varies else 2
        maps = gather_maps(run, batch, sides, number, KEPT, seed)
        laws = gather_alignments(run, batch, sides)
        for row, place in enumerate(places):
            found[place] = _Sentence(texts[row], sides[row], maps[row], laws[row])
    return [found[place] for place in sorted(found)]


def _fit_page(found: Sequence[_Gathered], asked: int, draws: int) -> str:
    """The page with as many draws, and then as many sentences, as it has room for."""
    kept, shown = min(KEPT, draws), asked
    while True:
        runs = [each.to_json(shown, kept) for each in found]
        said = {"made": find_revision(), "scores": list_scores(), "asked": asked}
        page = fill_page({**said, "kept": kept, "runs": runs})
        if len(page.encode()) <= LARGEST or (kept, shown) == (0, 1):
            return page
        kept, shown = (kept // 2, shown) if kept else (kept, shown - 1)
