"""Systems whose lines are scored, and tested against the first of them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from latentheads.metrics.compared import METRICS
from latentheads.metrics.resampling import RESAMPLES, SEED, References
from latentheads.metrics.scores import Scores, compare_systems, score_lines


def score(
    written: Sequence[str],
    references: Sequence[str],
    tokenised: bool = False,
    protocol: Any = None,
    **how: bool,
) -> Scores:
    return score_lines(written, References(references, tokenised, protocol=protocol, **how))


def recognise(
    written: Sequence[str], references: Sequence[str], lowercase: bool = False, paper: bool = False
) -> Scores:
    how = References(references, lowercase=lowercase, is_speech=True, paper_wer=paper)
    return score_lines(written, how)


def signature(scores: Scores, name: str) -> str:
    row = scores.row(name)
    assert row is not None
    return row.signature


def paired_bootstrap(
    baseline: Sequence[str],
    others: Sequence[Sequence[str]],
    references: Sequence[str],
    tokenised: bool = False,
    protocol: Any = None,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    **how: bool,
) -> list[SimpleNamespace]:
    """The baseline, then the others; None under the name of a metric that is not asked for."""
    right = References(references, tokenised, protocol=protocol, **how)
    rows = compare_systems([baseline, *others], right, resamples, seed)
    return [SimpleNamespace(**{name: row.get(name) for name in METRICS}) for row in rows]
