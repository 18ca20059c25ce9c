"""What finished runs say of every sentence of their test part, beside each other."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from tqdm import tqdm

from latentheads.corpora import Corpus, Data, Part, batches
from latentheads.corpora.batches import TOKENS
from latentheads.experiments.cli.options import open_run
from latentheads.experiments.cli.tables import Row, aligned
from latentheads.inference.sentences import part_bounds
from latentheads.metrics.likelihood import Likelihood, compare_likelihoods
from latentheads.metrics.resampling import Estimate
from latentheads.runs.run import Run, check_own_corpus

__all__ = ["Said", "compare_said", "read_said", "record_said", "table_of_said"]


@dataclass(frozen=True)
class Said:
    """What a run says of a test part.

    Attributes:
        name: As given on the command line.
        nats: Log p(y | x) of every sentence, or its bound.
        tokens: Target tokens of every sentence.
        draws: Draws of the latents that the bound is a mean over; None: log p(y | x) is exact.
        pieces: What is called a sentence here: sentences, utterances, or blocks of running text.
    """

    name: str
    nats: Float[np.ndarray, " sentence"]
    tokens: Float[np.ndarray, " sentence"]
    draws: int | None
    pieces: str

    @property
    def kind(self) -> str:
        """Which of the two it is."""
        return "exact" if self.draws is None else "bound"


def read_said(options: argparse.Namespace) -> list[Said]:
    """Computes what each run of a command line says, with the draws of its report.

    Raises:
        ValueError: A run is not finished, or has lost its corpus, or is of another test part.
    """
    runs = [open_run(name, options, finished=True) for name in options.runs]
    _share_corpora(runs)
    parts = [_find_part(run, options.direction) for run in runs]
    for run, part in zip(runs, parts, strict=True):
        if not _is_same_text(part, parts[0]):
            raise ValueError(
                f"{run.path} and {runs[0].path} have different test parts: one is needed"
            )
    return [_read(run, part) for run, part in zip(runs, parts, strict=True)]


def _share_corpora(runs: Sequence[Run]) -> None:
    """Makes each corpus once."""
    made: dict[Data, Corpus] = {}
    for run in runs:
        if (known := made.get(run.settings.data)) is None or run.settings.in_memory:
            made[run.settings.data] = run.corpus
        else:
            check_own_corpus(run, known)
            run.given = known


def _find_part(run: Run, task: str | None) -> Part:
    """The test part, or that of one task."""
    part = run.corpus.test
    if task is None:
        return part
    if part.mixture is None or part.task is None:
        raise ValueError(f"{run.path} has one direction alone: drop --direction")
    places = part.indices_of_task(part.mixture.index_of(task, run.settings.data.begin))
    if not len(places):
        raise ValueError(f"{run.path} has no sentence of task {task!r} in its test part")
    return part.take(places)


def _is_same_text(part: Part, other: Part) -> bool:
    """Whether two parts are of the same sentences; a running text must be cut alike too."""
    if part.references or other.references:
        return list(part.references) == list(other.references)
    pairs = zip(part.targets, other.targets, strict=False)
    return len(part) == len(other) and all(np.array_equal(*pair) for pair in pairs)


def _read(run: Run, part: Part) -> Said:
    """What a run says of a part; a bar shows how far it is."""
    parts, name = list(batches(part, TOKENS)), str(run.path)
    watched = tqdm(
        parts, name, unit="batch", exit_with_error=False, dynamic_ncols=True, disable=None
    )
    samples, seed = run.settings.samples, run.settings.seed
    found = part_bounds(run.model, run.guide, watched, samples, seed)
    draws = samples if found.varies else None
    return Said(name, found.nats.numpy(), found.tokens.numpy(), draws, part.unit)


def compare_said(said: Sequence[Said], resamples: int, seed: int) -> list[Likelihood]:
    """Compares what runs say with the first of them, on the same resampled sentences."""
    nats, tokens = [each.nats for each in said], [each.tokens for each in said]
    return compare_likelihoods(nats, tokens, resamples, seed)


def table_of_said(said: Sequence[Said], found: Sequence[Likelihood]) -> str:
    """What every run says, and below it how it is to be read."""
    unit = found[0].unit
    lines: list[Row] = [("run", "log p", f"nats a {unit} [95 %]", "less the first [95 %]", "p")]
    for each, likelihood in zip(said, found, strict=True):
        apart = likelihood.difference
        cells = ("", "") if apart is None else (_cell(apart), _p(apart))
        lines.append((each.name, each.kind, _cell(likelihood.nats), *cells))
    notes = [f"{len(said[0].nats):,} {said[0].pieces} of test, {found[0].nats.signature}"]
    if unit == "sentence":
        notes.append("a sentence, not a token: the runs cut sentences into other tokens")
    if draws := sorted({each.draws for each in said if each.draws is not None}):
        numbers = " or ".join(map(str, draws))
        notes.append(f"bound: log p is at least that; a mean over {numbers} draws of the latents")
    return "\n".join([aligned(lines), "", *notes])


def _cell(estimate: Estimate) -> str:
    ends = "" if np.isnan(estimate.low) else f" [{estimate.low:.4f}, {estimate.high:.4f}]"
    return f"{estimate.score:.4f}{ends}"


def _p(estimate: Estimate) -> str:
    return "" if estimate.p is None else f"{estimate.p:.4f}"


def record_said(said: Sequence[Said], found: Sequence[Likelihood]) -> dict[str, Any]:
    """All figures, as written to a file."""
    return {
        "sentences": len(said[0].nats),
        "unit": found[0].unit,
        "systems": [
            {
                "run": each.name,
                "tokens": int(each.tokens.sum()),
                "log_p": each.kind,
                "draws": each.draws,
                "nats": asdict(likelihood.nats),
                "difference": likelihood.difference and asdict(likelihood.difference),
            }
            for each, likelihood in zip(said, found, strict=True)
        ],
    }
