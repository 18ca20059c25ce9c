"""Log-likelihoods of the test sentences under finished runs, compared."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from latentheads.console import show_progress
from latentheads.corpora.batches import TOKENS, batches
from latentheads.corpora.part import Part
from latentheads.experiments.cli.parser import open_run
from latentheads.experiments.cli.tables import Row, aligned
from latentheads.experiments.comparison.systems import describe_few, describe_steps, describe_tests
from latentheads.inference.sentences import part_bounds
from latentheads.metrics.likelihood import Likelihood, compare_likelihoods
from latentheads.metrics.resampling import Estimate
from latentheads.runs.run import Run, share_corpora

SIGNS = {">=": "\N{GREATER-THAN OR EQUAL TO}", "<=": "\N{LESS-THAN OR EQUAL TO}"}

RELATIONS = {
    ">=": (
        f"{SIGNS['>=']}: log p differs by at least this. A bound below an exact log p does not "
        "show that the model is worse, and has no p"
    ),
    "<=": (
        f"{SIGNS['<=']}: log p differs by at most this. An exact log p above a bound does not "
        "show that the model is better, and has no p"
    ),
    "": "of two bounds the difference may be one of tightness",
}
"""Notes on differences, by how those of log p stand to them."""

BLOCKS = (
    "blocks are resampled as if independent: of texts with several blocks each, intervals are too "
    "narrow, and p too small"
)
"""The note on blocks of running text."""


@dataclass(frozen=True)
class SentenceLikelihoods:
    """The log-likelihoods of a test part under a run.

    Attributes:
        name: The name as given on the command line.
        nats: Log p(y | x) of every sentence, or its lower bound.
        tokens: Number of target tokens of every sentence.
        kind: What ``nats`` are: ``exact``, or a bound, ``IWAE`` or ``ELBO``.
        num_samples: Samples of the latents by which the bound is estimated; None: it is exact.
        pieces: The unit of text: sentences, utterances, or blocks of running text.
        step: The training step of the weights.
    """

    name: str
    nats: Float[np.ndarray, " sentence"]
    tokens: Float[np.ndarray, " sentence"]
    kind: Literal["exact", "IWAE", "ELBO"]
    num_samples: int | None
    pieces: str
    step: int | None = None

    @property
    def label(self) -> str:
        """The kind, with the number of samples of IWAE."""
        return f"IWAE_{self.num_samples}" if self.kind == "IWAE" else self.kind

    @property
    def meaning(self) -> str:
        """What the bound is."""
        how = "mean over" if self.kind == "ELBO" else "importance-weighted by"
        return (
            f"{self.label}: a lower bound of log p, {how} {self.num_samples} samples of the latents"
        )


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
            blocks = [run.settings.data.block_size, runs[0].settings.data.block_size]
            differ = "" if len({*blocks}) == 1 else f"data.block_size {blocks[0]} and {blocks[1]}, "
            raise ValueError(
                f"{run.path} and {runs[0].path} have different test parts: {differ}one is needed"
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
    progress = show_progress(all_batches, name, "batch")
    samples, seed = run.settings.num_samples, run.settings.seed
    bounds = part_bounds(run.model, run.guide, progress, samples, seed)
    kind: Literal["IWAE", "ELBO"] = "ELBO" if bounds.iwae is None or samples == 1 else "IWAE"
    return SentenceLikelihoods(
        name,
        bounds.nats.numpy(),
        bounds.tokens.numpy(),
        kind if bounds.varies else "exact",
        samples if bounds.varies else None,
        part.unit,
        run.step,
    )


def compare_runs(
    likelihoods: Sequence[SentenceLikelihoods], resamples: int, seed: int
) -> list[Likelihood]:
    """Compares the log-likelihoods of runs with those of the first one by paired bootstrap.

    A bound below an exact log p does not show that its model is worse: such a difference has no p.
    """
    nats, tokens = [run.nats for run in likelihoods], [run.tokens for run in likelihoods]
    comparisons = compare_likelihoods(nats, tokens, resamples, seed)
    return [
        comparison if _shows_sign(relation(run, likelihoods[0]), comparison) else _no_p(comparison)
        for run, comparison in zip(likelihoods, comparisons, strict=True)
    ]


def relation(run: SentenceLikelihoods, first: SentenceLikelihoods) -> str:
    """How the difference of log p stands to that of what is computed: ``=``, ``>=`` or ``<=``.

    Empty for two bounds, of which either may be the looser.
    """
    exact = run.kind == "exact", first.kind == "exact"
    return {(True, True): "=", (False, True): ">=", (True, False): "<="}.get(exact, "")


def _shows_sign(relation: str, comparison: Likelihood) -> bool:
    """Whether a difference has the sign of that of log p, where one of two is exact."""
    score = 0.0 if comparison.difference is None else comparison.difference.score
    return {">=": score > 0, "<=": score < 0}.get(relation, True)


def _no_p(comparison: Likelihood) -> Likelihood:
    difference = comparison.difference and replace(comparison.difference, p=None)
    return replace(comparison, nats=replace(comparison.nats, p=None), difference=difference)


def format_table(
    likelihoods: Sequence[SentenceLikelihoods], comparisons: Sequence[Likelihood]
) -> str:
    """Formats the log-likelihoods of all runs, with notes."""
    unit = comparisons[0].unit
    title = f"nats per {unit} [95 %]"
    lines: list[Row] = [("run", "log p", title, "difference to the first [95 %]", "p")]
    relations = [relation(run, likelihoods[0]) for run in likelihoods]
    for run, comparison, stands in zip(likelihoods, comparisons, relations, strict=True):
        difference = comparison.difference
        p = "" if difference is None or difference.p is None else f"{difference.p:.4f}"
        sign = f"{SIGNS[stands]} " if stands in SIGNS else ""
        cells = "" if difference is None else f"{sign}{_cell(difference)}", p
        lines.append((run.name, run.label, _cell(comparison.nats), *cells))
    sentences = f"{len(likelihoods[0].nats):,} {likelihoods[0].pieces}"
    notes = [f"{sentences} of test, {comparisons[0].nats.signature}"]
    notes += describe_few(len(likelihoods[0].nats), likelihoods[0].pieces)
    notes += [BLOCKS] * (likelihoods[0].pieces == "blocks")
    notes += describe_steps([run.step for run in likelihoods])
    tests = sum(row.difference is not None and row.difference.p is not None for row in comparisons)
    notes += [describe_tests(tests)] * bool(tests)
    if unit == "sentence":
        notes.append("per sentence, not per token: the runs tokenise sentences differently")
    notes += dict.fromkeys(run.meaning for run in likelihoods if run.num_samples is not None)
    notes += [note for stands, note in RELATIONS.items() if stands in relations[1:]]
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
                "num_samples": run.num_samples,
                "log_p_differs_by": relation(run, likelihoods[0]) or None,
                "nats": asdict(comparison.nats),
                "difference": comparison.difference and asdict(comparison.difference),
            }
            for run, comparison in zip(likelihoods, comparisons, strict=True)
        ],
    }
