"""Scores: the rows of a report, what each of them means, and the metrics of a system's output.

A new metric is a function that makes a :class:`~latentheads.metrics.resampling.Metric` for given
references, and its line in ``SCORES``: reports, tables, comparisons over seeds, paired tests and
the report page loop over these rows.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Literal, TypeVar

from latentheads.errors import one_line_message
from latentheads.metrics.accuracy import accuracy, edit_distance
from latentheads.metrics.recognition import cer, paper_wer, wer
from latentheads.metrics.resampling import (
    RESAMPLES,
    SEED,
    Estimate,
    Metric,
    References,
    Resamples,
    check_lines,
    estimate_systems,
    resample_counts,
)
from latentheads.metrics.translation import bleu, chrf, paper_bleu
from latentheads.options import from_dict

Kind = Literal["bound", "term", "exact", "plug-in", "metric", "count"]
"""What a score is: a bound (ELBO, IWAE), a term of one, exact, of the plug-in network,
a metric of output, or a count."""

NATS = "nats per token"

T = TypeVar("T")


@dataclass(frozen=True)
class Score:
    """A row of a report.

    Attributes:
        name: As in ``SCORES``.
        value: None if it is not a finite number.
        interval: Its 95 % bootstrap interval; None if there is none.
        unit: The unit of the value.
        kind: What it is.
        signature: How it was computed, if there is more than one way.
    """

    name: str
    value: int | float | None
    interval: tuple[float, float] | None = None
    unit: str = ""
    kind: Kind = "metric"
    signature: str = ""

    @classmethod
    def of(cls, name: str, value: float | None, **more: Any) -> Score:
        """Makes a score with the unit and the kind that its name has in ``SCORES``."""
        info = describe(name)
        return cls(name, value, unit=info.unit, kind=info.kind, **more)

    def to_json(self) -> dict[str, Any]:
        """Returns the row of ``results.json``, without missing fields."""
        row = asdict(self)
        return {
            key: field for key, field in row.items() if key == "value" or field not in (None, "")
        }


class Scores(Mapping[str, float | None]):
    """The scores of a part of a corpus: rows, and a mapping from their names to their values.

    A score of ``SCORES`` is an attribute, too: None if the part has no such row.
    """

    def __init__(self, rows: Iterable[Score] = ()) -> None:
        self._rows = {row.name: row for row in rows}

    @classmethod
    def of(cls, values: Mapping[str, float | None]) -> Scores:
        """Makes rows of values by their names, without those that are None."""
        return cls(Score.of(name, value) for name, value in values.items() if value is not None)

    @classmethod
    def read(cls, rows: Any) -> Scores:
        """Reads what :meth:`to_json` returns."""
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError("scores must be a list of rows")
        return cls(from_dict(Score, row, path="a score") for row in rows)

    def to_json(self) -> list[dict[str, Any]]:
        """Returns the rows of ``results.json``."""
        return [row.to_json() for row in self.rows]

    @property
    def rows(self) -> tuple[Score, ...]:
        """All rows in order."""
        return tuple(self._rows.values())

    def row(self, name: str) -> Score | None:
        """The row with a name; None if there is none."""
        return self._rows.get(name)

    def __getitem__(self, name: str) -> float | None:
        return self._rows[name].value

    def __getattr__(self, name: str) -> float | None:
        if name not in SCORES:
            raise AttributeError(f"there is no score {name!r}")
        return self.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __or__(self, other: Scores) -> Scores:
        return Scores([*self.rows, *other.rows])

    def __repr__(self) -> str:
        return f"Scores({', '.join(f'{name}={value!r}' for name, value in self.items())})"


@dataclass(frozen=True)
class ScoreInfo:
    """The description of a score.

    Attributes:
        title: The title of its row, without the unit; ``{k}`` is the number of samples of IWAE.
        meaning: Its explanation in one line.
        kind: What it is.
        column: A shorter title for the head of a column.
        unit: The unit of its values.
        metric: Makes the metric for given references; it returns None if they have no such metric.
        compared: Whether tables give its mean over seeds and tasks.
        indented: Whether it is part of the row above.
        estimates: The score that it estimates, beside which it is redundant.
        shown: Whether it has a row in a table.
        least: The least value of its scale, where an interval ends.
        most: The greatest.
    """

    title: str
    meaning: str = ""
    kind: Kind = "metric"
    column: str = ""
    unit: str = ""
    metric: Callable[[References], Metric | None] | None = None
    compared: bool = False
    indented: bool = False
    estimates: str = ""
    shown: bool = True
    least: float = -math.inf
    most: float = math.inf

    @property
    def heading(self) -> str:
        """The short title with the unit of a percentage."""
        title = self.column or self.title
        return f"{title}, %" if self.unit == "%" else title

    def heading_of(self, part: str) -> str:
        """The heading of one part, such as "accuracy of german, %"."""
        title, comma, unit = self.heading.partition(", ")
        return f"{title} of {part}{comma}{unit}"


_nats = partial(ScoreInfo, unit=NATS)
"""Describes a score in nats per token."""


def _metric(
    title: str,
    meaning: str,
    metric: Callable[[References], Metric | None] | None = None,
    unit: str = "",
    most: float = math.inf,
) -> ScoreInfo:
    """Describes a metric of output lines."""
    return ScoreInfo(title, meaning, unit=unit, metric=metric, compared=True, least=0.0, most=most)


def _weights(title: str, meaning: str, unit: str) -> ScoreInfo:
    """Describes a diagnostic of the importance weights of IWAE."""
    return ScoreInfo(title, meaning, "count", unit=unit, indented=True, estimates="exact")


def _first_sentence(title: str) -> ScoreInfo:
    """Describes the ROUGE of the first sentence of every source."""
    return ScoreInfo(f"{title}, first sentence", "of the source: the baseline", indented=True)


def _count(title: str, unit: str, indented: bool = False, shown: bool = True) -> ScoreInfo:
    """Describes a count."""
    return ScoreInfo(title, "", "count", unit=unit, indented=indented, shown=shown)


FEWER = "fewer are better"
OF_CTC = "a head that is only for training"

SCORES: dict[str, ScoreInfo] = {
    "elbo": _nats(
        "bound (ELBO)",
        "evidence lower bound: the next row minus the KL",
        "bound",
        "ELBO",
        compared=True,
        most=0.0,
    ),
    "log_likelihood": _nats(
        "log p(y | z, x), mean under the guide",
        "may exceed log p: the KL is subtracted from it",
        "term",
        "log-likelihood",
        compared=True,
        indented=True,
        most=0.0,
    ),
    "kl": _nats(
        "KL(guide, prior)",
        "of all latents together",
        "term",
        "KL",
        compared=True,
        indented=True,
        least=0.0,
    ),
    "iwae": _nats(
        "bound (IWAE_{k})",
        "importance-weighted bound of {k} samples: tighter",
        "bound",
        "IWAE",
        compared=True,
        estimates="exact",
        most=0.0,
    ),
    "effective_sample_size": _weights("effective samples of {k}", "mean over sentences", "samples"),
    "pareto_k": _weights(
        "Pareto k > 0.7",
        "share of sentences or blocks whose weights have too heavy a tail",
        "share",
    ),
    "pareto_unknown": _weights(
        "Pareto k unknown", "share of sentences or blocks whose weights tie", "share"
    ),
    "exact": _nats(
        "exact log p",
        "log p(y | x) of the model: latents, if any, summed out",
        "exact",
        compared=True,
        most=0.0,
    ),
    "gap": _nats(
        "gap of the guide",
        "KL from the guide to the exact posterior",
        "exact",
        "gap",
        compared=True,
        indented=True,
        least=0.0,
    ),
    "prior_gap": _nats(
        "gap of the prior (guide tied)",
        "what the bound would lose without a guide",
        "exact",
        "gap of the prior",
        compared=True,
        indented=True,
        least=0.0,
    ),
    "prior_entropy": _nats(
        "entropy of the prior", "of all latents of a token or sentence, before it is known", "exact"
    ),
    "posterior_entropy": _nats(
        "entropy of the exact posterior", "the same, given the token or sentence", "exact"
    ),
    "information": _nats(
        "KL(exact posterior, prior)",
        "what a token or sentence reveals about its latents beyond their prior",
        "exact",
    ),
    "truth": _nats(
        "true log p",
        "log p(y | x) under the process that generated the corpus, not under the model",
        "exact",
    ),
    "truth_elbo": _nats(
        "ELBO of these sentences",
        "compare with the row above",
        "bound",
        indented=True,
    ),
    "truth_gap": _nats(
        "gap of the bound to true log p",
        "true log p minus the bound",
        "term",
        indented=True,
    ),
    "plug_in": _nats(
        "plug-in log-likelihood",
        "of one network, each latent set to one value: no bound",
        "plug-in",
        "plug-in (no bound)",
        compared=True,
        estimates="exact",
        most=0.0,
    ),
    "accuracy": _metric("accuracy", "of the translations: exact matches", accuracy, "%", 100.0),
    "edit_distance": _metric(
        "edit distance", f"edits from a translation to its reference: {FEWER}", edit_distance
    ),
    "bleu": _metric("BLEU", "of the translations", bleu, most=100.0),
    "chrf": _metric("chrF", "of the translations", chrf, most=100.0),
    "paper_bleu": _metric(
        "papers' BLEU", "of the translations, by the papers' protocol", paper_bleu, most=100.0
    ),
    "rouge1": _metric("ROUGE-1", "of the summaries", most=100.0),
    "lead_rouge1": _first_sentence("ROUGE-1"),
    "rouge2": _metric("ROUGE-2", "of the summaries", most=100.0),
    "lead_rouge2": _first_sentence("ROUGE-2"),
    "rouge_l": _metric("ROUGE-L", "of the summaries", most=100.0),
    "lead_rouge_l": _first_sentence("ROUGE-L"),
    "wer": _metric("WER", f"of the transcripts, errors per 100 words: {FEWER}", wer, "%"),
    "substitutions": _count("substitutions", "words", indented=True),
    "deletions": _count("deletions", "words", indented=True),
    "insertions": _count("insertions", "words", indented=True),
    "words": _count("words of the references", "words", indented=True),
    "cer": _metric("CER", f"of the transcripts, errors per 100 characters: {FEWER}", cer, "%"),
    "paper_wer": _metric(
        "papers' WER", f"of the transcripts, by the papers' protocol: {FEWER}", paper_wer, "%"
    ),
    "ctc_wer": ScoreInfo("WER of CTC", OF_CTC, unit="%"),
    "ctc_cer": ScoreInfo("CER of CTC", OF_CTC, unit="%"),
    "sentences_per_second": _count("sentences decoded per second", "sentences/s"),
    "tokens": _count("target tokens", "tokens"),
    "sentences": _count("sentences", "sentences", shown=False),
    "truth_sentences": _count("sentences whose true log p is known", "sentences", shown=False),
    "iwae_k": _count("samples of IWAE", "samples", shown=False),
}
"""The description of each score, in the order of rows; a metric of your own is one line more."""

BUILT_IN = frozenset(SCORES)
"""The scores of this library."""

PRIMARY_SCORES = ("accuracy", "wer", "bleu")
"""The scores that may be the primary one; the first that a system has is."""


def describe(name: str) -> ScoreInfo:
    """The description of a score; for one that is not in ``SCORES``, its name."""
    return SCORES.get(name) or ScoreInfo(name)


def primary_score(scores: Mapping[str, object]) -> str | None:
    """The name of the primary score; None if there is no score of output."""
    return next((name for name in PRIMARY_SCORES if scores.get(name) is not None), None)


def score_lines(outputs: Sequence[str], references: References) -> Scores:
    """Scores the output of one system."""
    check_lines(outputs, references.lines)
    rows = _of_each_metric(references, lambda name, metric: [*_measure(name, metric, outputs)])
    return Scores(chain.from_iterable(rows.values()))


def _measure(name: str, metric: Metric, outputs: Sequence[str]) -> Iterator[Score]:
    """Yields the row of a metric, then those of its named counts."""
    if metric.has_interval:
        indices = Resamples(len(outputs), RESAMPLES, SEED)
        (estimate,) = _compare(name, metric, [outputs], indices)
        interval = None if math.isnan(estimate.low) else (estimate.low, estimate.high)
        yield Score.of(name, estimate.score, interval=interval, signature=estimate.signature)
    else:
        value = metric.measure(outputs)
        yield Score.of(name, value, signature=metric.signature())
    if metric.counts:
        for count, number in zip(metric.counts, metric.count_lines(outputs).sum(0), strict=True):
            yield Score.of(count, int(number))


def compare_systems(
    systems: Sequence[Sequence[str]],
    references: References,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> list[dict[str, Estimate]]:
    """Compares systems with the first one by paired bootstrap over sentences.

    Args:
        systems: The output of each system, one line per sentence; the first is the baseline.
        references: The references, and how outputs are compared with them.
        resamples: Number of resamples; the smallest p-value is 1 / (resamples + 1).
        seed: Seed of the resampling.

    Returns:
        The estimates of every system, by the name of the metric.

    Raises:
        ValueError: All references are empty, or numbers of lines differ.
    """
    for lines in systems:
        check_lines(lines, references.lines)
    indices = Resamples(len(references.lines), resamples, seed)
    estimates = _of_each_metric(
        references, lambda name, metric: _compare(name, metric, systems, indices)
    )
    columns = estimates.items()
    return [{name: column[row] for name, column in columns} for row in range(len(systems))]


def _compare(
    name: str, metric: Metric, systems: Sequence[Sequence[str]], indices: Resamples
) -> list[Estimate]:
    """Estimates a metric of all systems; its intervals end where the scale of the score does."""
    counts = [metric.count_lines(lines) for lines in systems]
    scores = [resample_counts(rows, metric.combine, indices) for rows in counts]
    signature = f"{metric.signature()}|bs:{len(indices)}|seed:{indices.seed}|p:two-sided"
    info = describe(name)
    estimates = estimate_systems(scores, signature, info.least, info.most)
    if metric.untested is None:
        return estimates
    first, *others = [metric.untested(rows.sum(0)) for rows in counts]
    for number, reason in enumerate(others, 1):
        if untested := first and reason:
            estimates[number] = replace(estimates[number], p=None, untested=untested)
    return estimates


def _of_each_metric(references: References, compute: Callable[[str, Metric], T]) -> dict[str, T]:
    """Computes something of each metric that given references have, by its name.

    One that a user has added is left out with a warning if it fails.
    """
    results: dict[str, T] = {}
    for name, info in SCORES.items():
        try:
            metric = None if info.metric is None else info.metric(references)
            if metric is not None:
                results[name] = compute(name, metric)
        except Exception as reason:
            if name in BUILT_IN:
                raise
            message = f"the metric {name} is left out: {one_line_message(reason)}"
            warnings.warn(message, stacklevel=3)
    return results


ROUNDING = 5e-5
"""Smaller differences of nats are not shown."""

LEAST_INFORMATION = 0.01
"""Nats below which a text reveals little about the latents."""

MOST_CERTAIN = 0.25
"""Nats of entropy up to which a prior needs no text: its positions are nearly certain."""

FORMATS = {
    **{"share": "{:.0%}", "samples": "{:.1f}", "sentences/s": "{:,.0f}"},
    **dict.fromkeys(("tokens", "words", "sentences"), "{:,}"),
}
"""The format of values in a unit; others have two decimals."""


def format_perplexity(value: float | None) -> str:
    """Formats a perplexity with at most six digits: 12.34, 12,345 or 1.68e7; empty for None."""
    if value is None:
        return ""
    if value < 1e6:
        return f"{value:.2f}" if value < 1e4 else f"{value:,.0f}"
    return re.sub(r"e\+0*", "e", f"{value:.2e}")


def format_value(value: float | None, unit: str = NATS) -> str:
    """Formats a value for a table; empty for None.

    Nats have four decimals, or two digits if these would all be 0.
    """
    if value is None:
        return ""
    if unit == NATS:
        return f"{value:.4f}" if value == 0 or not abs(value) < 5e-5 else f"{value:.1e}"
    return FORMATS.get(unit, "{:.2f}").format(value)


def shown_names(parts: Sequence[Scores]) -> list[str]:
    """The scores that have a row in a table of given parts, in order.

    Beside an exact log p, IWAE and the plug-in network are redundant; IWAE of one sample is the
    ELBO; the ELBO of the sentences whose true log p is known has a row if these are not all.
    """
    own = dict.fromkeys(name for part in parts for name in part if name not in SCORES)
    return [name for name in (*SCORES, *own) if _is_shown(name, parts)]


def _is_shown(name: str, parts: Sequence[Scores]) -> bool:
    info = describe(name)
    values = [part[name] for part in parts if part.get(name) is not None]
    if not (info.shown and values):
        return False
    if info.estimates and any(part.get(info.estimates) is not None for part in parts):
        return False
    if name in ("iwae", "effective_sample_size"):
        return any(part.iwae_k != 1 for part in parts)
    if name == "truth_elbo":
        return any(map(truth_coverage, parts))
    return name != "pareto_unknown" or any(values)


def is_below_prior(scores: Mapping[str, Any], prior_elbo: float | None = None) -> bool:
    """Whether the bound of a guide is below that of its model's prior, by what a table shows.

    Args:
        scores: Its scores; the gaps of guide and prior decide where they are exact.
        prior_elbo: The bound of guide tied on the same model, where it was computed.
    """
    gap, prior_gap = scores.get("gap"), scores.get("prior_gap")
    if gap is not None and prior_gap is not None:
        return bool(gap - prior_gap > ROUNDING)
    elbo = scores.get("elbo")
    return prior_elbo is not None and elbo is not None and prior_elbo - elbo > ROUNDING


def is_uninformed(scores: Mapping[str, Any]) -> bool:
    """Whether latents are uncertain, and the text reveals little about them."""
    information, entropy = scores.get("information"), scores.get("prior_entropy")
    if information is None or entropy is None:
        return False
    return information < LEAST_INFORMATION and entropy > MOST_CERTAIN


def truth_coverage(scores: Mapping[str, Any]) -> str:
    """The number of sentences whose true log p is known; empty if it is all or none."""
    num_known, num_sentences = scores.get("truth_sentences"), scores.get("sentences")
    unknown = scores.get("truth") is None or None in (num_known, num_sentences)
    if unknown or num_known == num_sentences:
        return ""
    return f"of {num_known:,} of {num_sentences:,} sentences"
