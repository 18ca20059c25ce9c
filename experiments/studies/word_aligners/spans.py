"""Spans carried to the other language: how many are right, and right ones by their probability."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from latentheads.contrib.align.api import start_alignment
from latentheads.contrib.align.projection import ProjectedSpan, Span
from latentheads.contrib.align.symmetrization import LinkPosterior, grow_diag_final_and
from latentheads.experiments.studies.word_aligners.measures import Gold
from latentheads.experiments.studies.word_aligners.rivals import run_rival
from latentheads.metrics.alignment import Links
from latentheads.metrics.resampling import RESAMPLES, SEED, Resamples

SPANS = 5
"""Spans drawn of each line, at most."""

WORDS = 3
"""Most words of a span."""

SHARES = (0.5, 0.7, 0.9, 1.0)
"""Shares of the spans that are kept, the likeliest ones."""

RIVAL = "eflomal"

Text = tuple[Sequence[str], Sequence[str]]


def measure_spans(
    text: Text, gold: Gold, python: Path, report: Callable[[str], None]
) -> dict[str, Any]:
    """Carries spans of the lines that a text begins with.

    A span is right if its words, from the first to the last, are those that sure manual links lead
    to. It is drawn at random from those that such links lead from.

    Args:
        text: The lines to train on.
        gold: The manual links of the first ones.
        python: The Python of an environment with eflomal.
        report: Called with a line for each system.
    """
    number = len(gold.sure)
    spans = _draw_spans(text[0][:number], gold.sure)
    alignment = start_alignment(*text, spans=[*spans, *([[]] * (len(text[0]) - number))])
    posteriors = list(alignment.posteriors)[:number]
    projected = [alignment.projected.get(index, []) for index in range(number)]
    directions, _ = run_rival(RIVAL, python, *text)
    joined = [grow_diag_final_and(*pair) for pair in zip(*directions, strict=True)][:number]
    lines = [[_carry(s, links) for s in line] for line, links in zip(spans, joined, strict=True)]
    truth = [[_carry(s, sure) for s in line] for line, sure in zip(spans, gold.sure, strict=True)]
    systems = {
        "by probability": _score(projected, truth, _probabilities(projected)),
        "by the least link": _score(projected, truth, _least_links(spans, projected, posteriors)),
        RIVAL: _score(lines, truth, [[float(span is not None) for span in x] for x in lines]),
    }
    indices = Resamples(number, RESAMPLES, SEED)
    rows = {name: _measure(score, indices) for name, score in systems.items()}
    first, *others = systems.values()
    for name, other in zip([*systems][1:], others, strict=True):
        rows[name]["difference"] = _difference(first, other, indices)
    for name, row in rows.items():
        report(f"{name}: {row}")
    return {"spans": sum(map(len, spans)), "lines": number, "pairs": len(text[0]), **rows}


def _draw_spans(lines: Sequence[str], links: Sequence[Links]) -> list[list[Span]]:
    """Some spans of each line that links lead from."""
    generator = np.random.default_rng(SEED)
    drawn = []
    for line, sure in zip(lines, links, strict=True):
        words = len(line.split())
        linked = {source for source, _ in sure}
        spans = [
            Span(start, start + length)
            for length in range(1, WORDS + 1)
            for start in range(words - length + 1)
            if linked & {*range(start, start + length)}
        ]
        chosen = generator.permutation(len(spans))[:SPANS]
        drawn.append([spans[index] for index in sorted(chosen)])
    return drawn


def _carry(span: Span, links: Links) -> Span | None:
    """The span from the first to the last word that is linked to a span."""
    words = [target for source, target in links if span.start <= source < span.end]
    return Span(min(words), max(words) + 1) if words else None


Spans = Sequence[Sequence[Span | None]]
Scores = list[list[float]]


def _probabilities(spans: Sequence[Sequence[ProjectedSpan | None]]) -> Scores:
    return [[0.0 if span is None else span.probability for span in line] for line in spans]


def _least_links(
    spans: Sequence[Sequence[Span]], projected: Spans, posteriors: Sequence[LinkPosterior]
) -> Scores:
    """The least of the likeliest links of the words of each span, which needs no chain."""
    scores = []
    for line, carried, posterior in zip(spans, projected, posteriors, strict=True):
        product = posterior.product
        scores.append(
            [
                0.0
                if other is None
                else float(product[span.start : span.end, other.start : other.end].max(1).min())
                for span, other in zip(line, carried, strict=True)
            ]
        )
    return scores


Scored = Sequence[Float[ndarray, "span 2"]]
"""The score of each span of each line, and whether it is right."""


def _score(spans: Spans, truth: Spans, scores: Scores) -> Scored:
    lines = zip(spans, truth, scores, strict=True)
    return [
        np.array(
            [
                (score, span is not None and (span.start, span.end) == (right.start, right.end))
                for span, right, score in zip(*line, strict=True)
                if right is not None
            ],
            float,
        ).reshape(-1, 2)
        for line in lines
    ]


def _measure(scored: Scored, indices: Resamples) -> dict[str, Any]:
    """The share of right spans among the likeliest, with intervals; and the calibration error."""
    resampled = [_right([scored[index] for index in row]) for row in indices]
    right = _right(scored)
    return {
        "right": {
            str(share): [round(100 * x, 2) for x in (right[share], *_interval(resampled, share))]
            for share in SHARES
        },
        "ece": round(_calibration_error(np.concatenate(scored)), 4),
    }


def _difference(first: Scored, other: Scored, indices: Resamples) -> dict[str, list[float]]:
    """What the first has more right spans than another, in points, with intervals."""
    sides = [[_right([side[index] for index in row]) for row in indices] for side in (first, other)]
    resampled = [{s: a[s] - b[s] for s in SHARES} for a, b in zip(*sides, strict=True)]
    whole = _right(first), _right(other)
    return {
        str(share): [
            round(100 * x, 2)
            for x in (whole[0][share] - whole[1][share], *_interval(resampled, share))
        ]
        for share in SHARES
    }


def _interval(resampled: Sequence[Mapping[float, float]], share: float) -> list[float]:
    return np.quantile([right[share] for right in resampled], (0.025, 0.975)).tolist()


def _right(scored: Scored) -> dict[float, float]:
    """The share of right spans among each share of the likeliest ones; ties count as their mean."""
    spans = np.concatenate(scored)
    scores, which = np.unique(-spans[:, 0], return_inverse=True)
    numbers = np.bincount(which, minlength=len(scores))
    is_right = (np.bincount(which, spans[:, 1]) / numbers)[which]
    ordered = is_right[np.argsort(which, kind="stable")]
    return {share: float(ordered[: round(share * len(ordered))].mean()) for share in SHARES}


def _calibration_error(spans: Float[ndarray, "span 2"]) -> float:
    bins = np.minimum((10 * spans[:, 0]).astype(int), 9)
    return float(np.abs(np.bincount(bins, spans[:, 0] - spans[:, 1], minlength=10)).sum()) / len(
        spans
    )
