"""Log-likelihoods of the test sentences under finished runs, compared."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from tqdm import tqdm

from latentheads.corpora.batches import TOKENS, batches
from latentheads.corpora.part import Part
from latentheads.experiments.cli.parser import open_run
from latentheads.experiments.cli.tables import Row, aligned
from latentheads.inference.sentences import part_bounds
from latentheads.metrics.likelihood import Likelihood, compare_likelihoods
from latentheads.metrics.resampling import Estimate
from latentheads.runs.run import Run, share_corpora


@dataclass(frozen=True)
class SentenceLikelihoods:
    """The log-likelihoods of a test part under a run.

    Attributes:
        name: The name as given on the command line.
        nats: Log p(y | x) of every sentence, or its lower bound.
        tokens: Number of target tokens of every sentence.
        draws: Samples of the latents over which the bound is averaged; None: it is exact.
        pieces: The unit of text: sentences, utterances, or blocks of running text.
    """

    name: str
    nats: Float[np.ndarray, " sentence"]
    tokens: Float[np.ndarray, " sentence"]
    draws: int | None
    pieces: str

    @property
    def kind(self) -> str:
        """Whether the likelihoods are exact or a bound."""
        return "exact" if self.draws is None else "bound"


def compute_likelihoods(options: argparse.Namespace) -> list[SentenceLikelihoods]:
    """Computes the log-likelihoods of each run, with as many samples as in its report.

    Raises:
        ValueError: A run is not finished, its corpus is not available, or test parts differ.
    """
    runs = [open_run(name, options, finished=True) for name in options.runs]
    share_corpora(runs)
    parts = [_select_part(run, options.direction) for run in runs]
    for run, part in zip(runs, parts, strict=True):
        if not _is_same_text(part, parts[0]):
            raise ValueError(
                f"{run.path} and {runs[0].path} have different test parts: one is needed"
            )
    return [_compute_bounds(run, part) for run, part in zip(runs, parts, strict=True)]


def _select_part(run: Run, task: str | None) -> Part:
    """The test part, or its sentences of one task."""
    part = run.corpus.test
    if task is None:
        return part
    if part.mixture is None or part.task is None:
        raise ValueError(f"{run.path} has a single direction: drop --direction")
    task_index = part.mixture.index_of(task, run.processor.default_source)
    return part.take(part.indices_of_task(task_index))


def _is_same_text(part: Part, other: Part) -> bool:
    """Whether two parts have the same sentences; running text must be split in the same blocks."""
    if part.references or other.references:
        return list(part.references) == list(other.references)
    pairs = zip(part.targets, other.targets, strict=False)
    return len(part) == len(other) and all(np.array_equal(*pair) for pair in pairs)


def _compute_bounds(run: Run, part: Part) -> SentenceLikelihoods:
    """Computes the log-likelihoods of a part with a progress bar."""
    all_batches, name = list(batches(part, TOKENS, shuffle=False)), str(run.path)
    progress = tqdm(all_batches, name, unit="batch", leave=False, dynamic_ncols=True, disable=None)
    samples, seed = run.settings.num_samples, run.settings.seed
    bounds = part_bounds(run.model, run.guide, progress, samples, seed)
    draws = samples if bounds.varies else None
    return SentenceLikelihoods(name, bounds.nats.numpy(), bounds.tokens.numpy(), draws, part.unit)


def compare_runs(
    likelihoods: Sequence[SentenceLikelihoods], resamples: int, seed: int
) -> list[Likelihood]:
    """Compares the log-likelihoods of runs with those of the first one by paired bootstrap."""
    nats, tokens = [run.nats for run in likelihoods], [run.tokens for run in likelihoods]
    return compare_likelihoods(nats, tokens, resamples, seed)


def format_table(
    likelihoods: Sequence[SentenceLikelihoods], comparisons: Sequence[Likelihood]
) -> str:
    """Formats the log-likelihoods of all runs, with notes."""
    unit = comparisons[0].unit
    title = f"nats per {unit} [95 %]"
    lines: list[Row] = [("run", "log p", title, "difference to the first [95 %]", "p")]
    for run, comparison in zip(likelihoods, comparisons, strict=True):
        difference = comparison.difference
        p = "" if difference is None or difference.p is None else f"{difference.p:.4f}"
        cells = "" if difference is None else _cell(difference), p
        lines.append((run.name, run.kind, _cell(comparison.nats), *cells))
    sentences = f"{len(likelihoods[0].nats):,} {likelihoods[0].pieces}"
    notes = [f"{sentences} of test, {comparisons[0].nats.signature}"]
    if unit == "sentence":
        notes.append("per sentence, not per token: the runs tokenise sentences differently")
    if draws := sorted({run.draws for run in likelihoods if run.draws is not None}):
        numbers = " or ".join(map(str, draws))
        notes.append(f"bound: a lower bound of log p, mean over {numbers} samples of the latents")
    return "\n".join([aligned(lines), "", *notes])


def _cell(estimate: Estimate) -> str:
    ends = "" if np.isnan(estimate.low) else f" [{estimate.low:.4f}, {estimate.high:.4f}]"
    return f"{estimate.score:.4f}{ends}"


def to_record(
    likelihoods: Sequence[SentenceLikelihoods], comparisons: Sequence[Likelihood]
) -> dict[str, Any]:
    """All results, as written to a file."""
    return {
        "sentences": len(likelihoods[0].nats),
        "unit": comparisons[0].unit,
        "systems": [
            {
                "run": run.name,
                "tokens": int(run.tokens.sum()),
                "log_p": run.kind,
                "draws": run.draws,
                "nats": asdict(comparison.nats),
                "difference": comparison.difference and asdict(comparison.difference),
            }
            for run, comparison in zip(likelihoods, comparisons, strict=True)
        ],
    }
