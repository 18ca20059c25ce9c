"""Scores: the rows of a report, what each of them means, and the metrics of written lines.

A new metric is a function that makes a :class:`~latentheads.metrics.resampling.Metric` for some
references, and its line in ``SCORES``: reports, tables, comparisons over seeds, paired tests and
the report page loop over these rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Literal

from latentheads.metrics.accuracy import accuracy, edit_distance
from latentheads.metrics.recognition import cer, paper_wer, wer
from latentheads.metrics.resampling import (
    RESAMPLES,
    SEED,
    Estimate,
    Metric,
    References,
    check_lines,
    compare_lines,
)
from latentheads.metrics.translation import bleu, chrf, paper_bleu
from latentheads.values import convert

__all__ = [
    "CHIEF",
    "COMPARED",
    "METRICS",
    "NATS",
    "SCORES",
    "Kind",
    "Score",
    "ScoreInfo",
    "Scores",
    "chief_score",
    "compare_systems",
    "describe",
    "format_value",
    "score_lines",
    "shown_names",
    "truth_coverage",
]

Kind = Literal["bound", "exact", "plug-in", "metric", "count"]
"""What a score is: of the ELBO and IWAE, computed without sampling, of the network whose heads are
set to the prior mean, of written lines, or a number of things."""

NATS = "nats per token"


@dataclass(frozen=True)
class Score:
    """A row of a report.

    Attributes:
        name: As in ``SCORES``.
        value: None where it is no finite number.
        interval: Its 95 % interval; None where nothing was resampled.
        unit: Of the value.
        kind: What it is.
        signature: How it was computed, where there is more than one way.
    """

    name: str
    value: int | float | None
    interval: tuple[float, float] | None = None
    unit: str = ""
    kind: Kind = "metric"
    signature: str = ""

    @classmethod
    def of(cls, name: str, value: float | None, **more: Any) -> Score:
        """A score with the unit and the kind that its name has in ``SCORES``."""
        info = describe(name)
        return cls(name, value, unit=info.unit, kind=info.kind, **more)

    def to_json(self) -> dict[str, Any]:
        """The row as ``results.json`` holds it, without what it does not have."""
        row = asdict(self)
        return {key: each for key, each in row.items() if key == "value" or each not in (None, "")}


class Scores(Mapping[str, float | None]):
    """The scores of a part of a corpus: rows, and a mapping from their names to their values.

    A score of ``SCORES`` is an attribute, too: None where the part has no such row.

    Args:
        rows: One for each name.
    """

    def __init__(self, rows: Iterable[Score] = ()) -> None:
        self._rows = {row.name: row for row in rows}

    @classmethod
    def of(cls, values: Mapping[str, float | None]) -> Scores:
        """Rows of values by their names; None is left out."""
        return cls(Score.of(name, value) for name, value in values.items() if value is not None)

    @classmethod
    def read(cls, rows: Any) -> Scores:
        """Reads what :meth:`to_json` gives.

        Raises:
            ValueError: It is no list of rows.
        """
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError("scores must be a list of rows")
        return cls(convert("a score", Score, row) for row in rows)

    def to_json(self) -> list[dict[str, Any]]:
        """The rows as ``results.json`` holds them."""
        return [row.to_json() for row in self.rows]

    @property
    def rows(self) -> tuple[Score, ...]:
        """All rows in their order."""
        return tuple(self._rows.values())

    def row(self, name: str) -> Score | None:
        """The row of a name; None where there is none."""
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
    """What is known of a score by its name.

    Attributes:
        title: Of its row, without the unit; ``{k}`` stands for the draws of IWAE.
        meaning: In a line.
        kind: What it is.
        unit: Of its values.
        column: A shorter title for the head of a column.
        metric: Makes it of written lines; it gives None for references that have none.
        compared: Whether it has a mean over seeds and tasks.
        indented: Whether it is part of the row above.
        estimates: Another score, beside which it says nothing new.
        shown: Whether it has a row in a table.
    """

    title: str
    meaning: str = ""
    kind: Kind = "metric"
    unit: str = ""
    column: str = ""
    metric: Callable[[References], Metric | None] | None = None
    compared: bool = False
    indented: bool = False
    estimates: str = ""
    shown: bool = True

    @property
    def heading(self) -> str:
        """The short title with the unit of a percentage."""
        title = self.column or self.title
        return f"{title}, %" if self.unit == "%" else title

    def heading_of(self, part: str) -> str:
        """The heading of a part, such as "accuracy of german, %"."""
        title, comma, unit = self.heading.partition(", ")
        return f"{title} of {part}{comma}{unit}"


def _nats(
    title: str,
    meaning: str,
    kind: Kind,
    column: str = "",
    *,
    compared: bool = False,
    indented: bool = False,
    estimates: str = "",
) -> ScoreInfo:
    """A score in nats per token."""
    return ScoreInfo(
        title, meaning, kind, NATS, column, None, compared, indented, estimates=estimates
    )


def _metric(
    title: str,
    meaning: str,
    metric: Callable[[References], Metric | None] | None = None,
    unit: str = "",
) -> ScoreInfo:
    """A metric of written lines."""
    return ScoreInfo(title, meaning, unit=unit, metric=metric, compared=True)


def _weights(title: str, meaning: str, unit: str) -> ScoreInfo:
    """How good the weights of IWAE are."""
    return ScoreInfo(title, meaning, "bound", unit, indented=True, estimates="exact")


def _lead(title: str) -> ScoreInfo:
    """ROUGE of the first sentence of every source."""
    return ScoreInfo(f"{title}, first sentence", "of the source: the baseline", indented=True)


def _count(title: str, unit: str, indented: bool = False, shown: bool = True) -> ScoreInfo:
    """A number of things."""
    return ScoreInfo(title, "", "count", unit, indented=indented, shown=shown)


FEWER = "fewer are better"
OF_CTC = "a head of training alone"

SCORES: dict[str, ScoreInfo] = {
    "elbo": _nats(
        "bound (ELBO)",
        "evidence lower bound: the log-likelihood term minus the KL",
        "bound",
        "ELBO",
        compared=True,
    ),
    "log_likelihood": _nats(
        "log-likelihood term",
        "expectation of log p(y | z, x) under the guide",
        "bound",
        "log-likelihood",
        compared=True,
        indented=True,
    ),
    "kl": _nats(
        "KL, all sites",
        "from the guide to the prior",
        "bound",
        "KL",
        compared=True,
        indented=True,
    ),
    "iwae": _nats(
        "bound (IWAE_{k})",
        "importance-weighted bound of {k} samples: tighter",
        "bound",
        "IWAE",
        compared=True,
        estimates="exact",
    ),
    "effective_sample_size": _weights("effective samples of {k}", "mean over sentences", "samples"),
    "pareto_k": _weights("Pareto k > 0.7", "of sentences or blocks: weights too uneven", "share"),
    "pareto_unknown": _weights("Pareto k unknown", "of sentences or blocks: weights tie", "share"),
    "exact": _nats("exact log p", "the model's own: all alignments summed", "exact", compared=True),
    "gap": _nats(
        "gap of the guide",
        "KL from the guide's alignments to their exact posterior",
        "exact",
        "gap",
        compared=True,
        indented=True,
    ),
    "prior_entropy": _nats("entropy of alignments, prior", "of all heads together", "exact"),
    "posterior_entropy": _nats(
        "given the token, exact posterior", "of all heads together", "exact", indented=True
    ),
    "information": _nats(
        "KL(posterior, prior)", "what a token says of its alignments", "exact", indented=True
    ),
    "truth": _nats(
        "true log p", "of the process that generated the corpus, not of the model", "exact"
    ),
    "truth_elbo": _nats(
        "ELBO of these sentences",
        "compare with the row above",
        "bound",
        indented=True,
    ),
    "truth_gap": _nats(
        "gap to the true log-likelihood",
        "true log p minus the bound",
        "bound",
        indented=True,
    ),
    "plug_in": _nats(
        "plug-in log-likelihood",
        "heads set to the prior mean: no bound",
        "plug-in",
        "plug-in (no bound)",
        compared=True,
        estimates="exact",
    ),
    "accuracy": _metric("accuracy", "of the translations: right to the letter", accuracy, "%"),
    "edit_distance": _metric(
        "edit distance", f"edits from a translation to the right one: {FEWER}", edit_distance
    ),
    "bleu": _metric("BLEU", "of the translations", bleu),
    "chrf": _metric("chrF", "of the translations", chrf),
    "paper_bleu": _metric(
        "papers' BLEU", "of the translations, by the papers' protocol", paper_bleu
    ),
    "rouge1": _metric("ROUGE-1", "of the summaries"),
    "lead_rouge1": _lead("ROUGE-1"),
    "rouge2": _metric("ROUGE-2", "of the summaries"),
    "lead_rouge2": _lead("ROUGE-2"),
    "rouge_l": _metric("ROUGE-L", "of the summaries"),
    "lead_rouge_l": _lead("ROUGE-L"),
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
    "sentences_per_second": _count("sentences written per second", "sentences/s"),
    "tokens": _count("target tokens", "tokens"),
    "sentences": _count("sentences", "sentences", shown=False),
    "truth_sentences": _count("sentences whose true log p is known", "sentences", shown=False),
    "iwae_k": _count("samples of IWAE", "samples", shown=False),
}
"""What each score is, in the order of their rows; a metric of your own is a line more."""

COMPARED = tuple(name for name, info in SCORES.items() if info.compared)
"""Scores that have a mean over seeds and over tasks."""

METRICS = tuple(name for name in COMPARED if SCORES[name].kind == "metric")
"""Those of written lines."""

CHIEF = ("accuracy", "wer", "bleu")
"""The scores that may stand for all; the first that is known does."""


def describe(name: str) -> ScoreInfo:
    """What is known of a score; of one that ``SCORES`` lacks, its name."""
    return SCORES.get(name) or ScoreInfo(name)


def chief_score(scores: Mapping[str, object]) -> str | None:
    """The name of the score that stands for all; None where nothing was written."""
    return next((name for name in CHIEF if scores.get(name) is not None), None)


def score_lines(written: Sequence[str], references: References) -> Scores:
    """The metrics of what one system writes.

    Args:
        written: A line each.
        references: What counts as right, and how lines are compared.

    Raises:
        ValueError: There is nothing to score, or not one line each.
    """
    check_lines(written, references.lines)
    metrics = _make_metrics(references)
    rows = (_measure(name, metric, written, references) for name, metric in metrics.items())
    return Scores(chain.from_iterable(rows))


def _measure(
    name: str, metric: Metric, written: Sequence[str], references: References
) -> Iterator[Score]:
    """The row of a metric, then those of the counts that it names."""
    if metric.has_interval:
        (estimates,) = compare_lines([written], references.lines, {name: metric})
        found = estimates[name]
        interval = None if math.isnan(found.low) else (found.low, found.high)
        yield Score.of(name, found.score, interval=interval, signature=found.signature)
    else:
        value = metric.measure(written)
        yield Score.of(name, value, signature=metric.sign())
    if metric.counts:
        for count, number in zip(metric.counts, metric.count(written).sum(0), strict=True):
            yield Score.of(count, int(number))


def compare_systems(
    systems: Sequence[Sequence[str]],
    references: References,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> list[dict[str, Estimate]]:
    """Compares systems with the first of them on resampled sentences, the same ones for all.

    Args:
        systems: What each writes, a line a sentence; the first is the baseline.
        references: What counts as right, and how lines are compared.
        resamples: How often the corpus is resampled; the least p is 1 / (resamples + 1).
        seed: Of the resamples.

    Returns:
        For every system its metrics, by their names.
    """
    return compare_lines(systems, references.lines, _make_metrics(references), resamples, seed)


def _make_metrics(references: References) -> dict[str, Metric]:
    """The metrics that some references have, by their names."""
    made = {name: info.metric(references) for name, info in SCORES.items() if info.metric}
    return {name: metric for name, metric in made.items() if metric is not None}


FORMS = {
    **{"share": "{:.0%}", "samples": "{:.1f}", "sentences/s": "{:,.0f}"},
    **dict.fromkeys(("tokens", "words", "sentences"), "{:,}"),
}
"""How the values of a unit are printed; others with two decimals."""


def format_value(value: float | None, unit: str = NATS) -> str:
    """A value as tables show it: nothing for one that is not known.

    Nats have four decimals, or two digits of what would not show in them.
    """
    if value is None:
        return ""
    if unit == NATS:
        return f"{value:.4f}" if value == 0 or not abs(value) < 5e-5 else f"{value:.1e}"
    return FORMS.get(unit, "{:.2f}").format(value)


def shown_names(parts: Sequence[Scores]) -> list[str]:
    """The scores that have a row in a table of some parts, in their order.

    Where log p is exact, the plug-in network is that distribution and IWAE an estimate of it; of
    one sample IWAE is the bound; where the truth is known of all sentences, their bound has its
    row.
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


def truth_coverage(scores: Mapping[str, Any]) -> str:
    """The number of sentences whose true log p is known; empty if it is all or none."""
    known, every = scores.get("truth_sentences"), scores.get("sentences")
    if scores.get("truth") is None or None in (known, every) or known == every:
        return ""
    return f"of {known:,} of {every:,} sentences"
