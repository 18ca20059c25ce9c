"""Gathers the content of runs, limits its size, and makes the report page."""

from __future__ import annotations

import html
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from latentheads.checks import check_choice, check_least, check_not_empty, check_seed
from latentheads.console import show_progress
from latentheads.contrib.page.calibration import gather_calibration
from latentheads.contrib.page.curves import gather_curves
from latentheads.contrib.page.facts import gather_facts, get_revision, list_scores
from latentheads.contrib.page.grid import gather_grid, gather_pairs, list_blocks, measure_distances
from latentheads.contrib.page.inclusion import gather_inclusion, has_gates
from latentheads.contrib.page.maps import (
    HeadMaps,
    MapTokens,
    gather_alignments,
    gather_map_tokens,
    gather_maps,
)
from latentheads.contrib.page.packing import pack_maps
from latentheads.contrib.page.sentences import choose_sentences, gather_texts, translate_shown
from latentheads.contrib.page.template import fill_page
from latentheads.corpora.batches import batches
from latentheads.corpora.part import Part
from latentheads.corpora.text import PARTS
from latentheads.errors import one_line_message
from latentheads.files import write_text
from latentheads.inference.sentences import sentence_bounds
from latentheads.runs.folder import distinct_names
from latentheads.runs.loading import open_run
from latentheads.runs.run import Run, share_corpora

MAX_BYTES = 2_500_000
"""Maximum size of a page, unless its smallest form is larger: it can be mailed."""

SHOWN_SAMPLES = 8
"""Maximum number of single samples in the page, if they fit."""

BATCH_TOKENS = 512
"""Tokens per batch: all samples of a batch are in memory."""

HEIGHT = 820
"""Height of the frame in a notebook, in pixels."""

T = TypeVar("T")


@dataclass(frozen=True)
class _Sentence:
    """A sentence of a run: its text with bounds and gates, and the maps of its heads."""

    text: dict[str, Any]
    tokens: dict[str, MapTokens]
    maps: list[HeadMaps]
    alignments: list[HeadMaps]

    def to_json(self, num_samples: int) -> dict[str, Any]:
        all_maps = [*self.maps, *self.alignments]
        return {
            **self.text,
            "sides": {name: tokens.to_json() for name, tokens in self.tokens.items()},
            "maps": [maps.to_json(num_samples) for maps in self.maps],
            "alignments": [maps.to_json(num_samples) for maps in self.alignments],
            "bytes": pack_maps(array for maps in all_maps for array in maps.arrays(num_samples)),
        }


@dataclass(frozen=True)
class _RunContent:
    """The content of the page for one run."""

    facts: dict[str, Any]
    sentences: list[_Sentence]

    def to_json(self, count: int, num_samples: int) -> dict[str, Any]:
        sentences = [sentence.to_json(num_samples) for sentence in self.sentences[:count]]
        return {**self.facts, "sentences": sentences}


@dataclass(frozen=True)
class _Contents:
    """Gathers what a page shows of a run, without what this run cannot have.

    Attributes:
        left_out: What is left out, and why.
    """

    left_out: dict[str, str] = field(default_factory=dict)

    def gather(self, what: str, make: Callable[[], T]) -> T | None:
        """What is made; None with a reason where it fails: a latent may be a user's."""
        try:
            return make()
        except Exception as reason:
            self.left_out[what] = one_line_message(reason)
            return None


@dataclass(frozen=True)
class ReportPage:
    """A self-contained HTML page; a notebook displays it in a frame.

    Attributes:
        html: The whole page.
        unread: Runs whose text could not be loaded, and why: for these the page shows only the
            content of their folders.
        left_out: What is missing of a run whose text was loaded, and why.
    """

    html: str
    unread: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def save(self, path: str | Path) -> None:
        """Writes the page atomically."""
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
    part: Literal["train", "valid", "test"] = "test",
    sentences: int = 100,
    shown: int = 6,
    num_samples: int = 32,
    seed: int = 0,
) -> ReportPage:
    """Makes one page of the settings, reports and heads of finished runs.

    A page has at most 2.5 million bytes if possible: a larger one first gets fewer samples, then
    fewer sentences, but at least one per run, and it states this.

    Args:
        runs: A finished run or several, or their folders.
        path: Where to save the page.
        part: Part of the corpus: train, valid or test.
        sentences: Number of sentences, or blocks of running text, for the measures of heads.
        shown: Number of sentences whose maps are shown.
        num_samples: Number of samples of the heads of each shown sentence; from 30 on the page has
            the Pareto k-hat of its importance weights.
        seed: Seed of the samples.

    Raises:
        ValueError: An option is out of range, or a folder has no run.
        OSError: The page cannot be written.
    """
    counts = {"sentences": sentences, "shown": shown, "num_samples": num_samples}
    check_least(counts, sentences=1, shown=1, num_samples=2)
    check_seed(seed)
    check_choice("part", part, PARTS)
    opened = [open_run(run) for run in ([runs] if isinstance(runs, Run | str | Path) else runs)]
    check_not_empty("runs", opened)
    share_corpora(opened)
    contents, names = [], distinct_names([run.path for run in opened])
    for name, run in zip(names, show_progress(opened, "reading runs", "run"), strict=True):
        contents.append(_gather_run(run, name, part, sentences, shown, num_samples, seed))
    facts = [content.facts for content in contents]
    unread = {fact["name"]: fact["unread"] for fact in facts if "unread" in fact}
    left_out = {fact["name"]: fact["left_out"] for fact in facts if fact.get("left_out")}
    page = ReportPage(_fit_page(contents, shown, num_samples), unread, left_out)
    if path is not None:
        page.save(path)
    return page


def _gather_run(
    run: Run, name: str, part: str, sentences: int, shown: int, num_samples: int, seed: int
) -> _RunContent:
    """Gathers the content of a run; without its text, only that of its folder."""
    facts = gather_facts(run, name) | {"curves": gather_curves(run.metrics)}
    facts["selection"] = dict(run.results.selection) if run.results else {}
    try:
        text: Part = getattr(run.corpus, part)
    except (OSError, ValueError) as reason:
        return _RunContent({**facts, "unread": one_line_message(reason)}, [])
    analysed = text.first(sentences)
    facts["read"] = {
        "part": part,
        "unit": text.unit,
        "measured": len(analysed),
        "draws": num_samples,
    }
    contents = _Contents()
    facts["left_out"] = contents.left_out
    gather, shown_part = contents.gather, choose_sentences(text, shown)
    facts |= gather("measures of heads", lambda: _gather_heads(run, analysed)) or {}
    facts["calibration"] = gather("calibration", lambda: gather_calibration(run, analysed)) or {}
    shown_sentences = gather(
        "sentences", lambda: _gather_sentences(run, shown_part, num_samples, seed, contents)
    )
    return _RunContent(facts, shown_sentences or [])


def _gather_heads(run: Run, part: Part) -> dict[str, Any]:
    """Gathers the measures of all heads, and of every pair."""
    if not list_blocks(run):
        return {}
    divergences = measure_distances(run, part)
    return {"grid": gather_grid(run, part, divergences), "pairs": gather_pairs(divergences)}


def _gather_sentences(
    run: Run, part: Part, num_samples: int, seed: int, contents: _Contents
) -> list[_Sentence]:
    """Gathers the sentences of a part with their bounds and maps, in order."""
    by_index: dict[int, _Sentence] = {}
    for batch in batches(part, BATCH_TOKENS, shuffle=False):
        indices = batch.sentences.tolist()
        bounds = sentence_bounds(run.model, run.guide, batch, num_samples, seed)
        sentences = part.take(indices)
        translations = contents.gather("translations", partial(translate_shown, run, sentences))
        texts = gather_texts(run, sentences, bounds, translations or [None] * len(sentences))
        links = [part.links[index] if part.links else frozenset() for index in indices]
        tokens = [gather_map_tokens(run, batch, row, gold) for row, gold in enumerate(links)]
        inclusion = gather_inclusion(run, batch)
        samples = (
            num_samples if bounds.varies or has_gates(run) else 2
        )  # gates are not in the bounds
        maps = gather_maps(run, batch, tokens, samples, SHOWN_SAMPLES, seed)
        alignments = gather_alignments(run, batch, tokens)
        for row, index in enumerate(indices):
            text = {**texts[row], "inclusion": inclusion[row]}
            by_index[index] = _Sentence(text, tokens[row], maps[row], alignments[row])
    return [by_index[index] for index in sorted(by_index)]


def _fit_page(contents: Sequence[_RunContent], requested: int, num_samples: int) -> str:
    """Makes the page with as many samples, and then as many sentences, as fit."""
    most = min(SHOWN_SAMPLES, num_samples)
    forms = [(most >> halvings, requested) for halvings in range(most.bit_length() + 1)]
    forms += [(0, count) for count in range(requested - 1, 0, -1)]

    @cache
    def make(index: int) -> str:
        samples, count = forms[index]
        runs = [content.to_json(count, samples) for content in contents]
        header = {"made": get_revision(), "scores": list_scores(), "asked": requested}
        return fill_page({**header, "kept": samples, "runs": runs})

    def fits(index: int) -> bool:
        return index == len(forms) - 1 or len(make(index).encode()) <= MAX_BYTES

    # of many forms, each smaller than the one before, few are made; mostly the first one fits
    return make(0 if fits(0) else bisect_left(range(len(forms)), True, key=fits))
