"""The results as tables of at most 100 columns, as rows of a CSV, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from latentheads.contrib.uncertainty.evaluation import DISSIMILARITY, TEST
from latentheads.contrib.uncertainty.measures import Figure
from latentheads.contrib.uncertainty.scaling import MAX_TEMPERATURE, MIN_TEMPERATURE
from latentheads.contrib.uncertainty.token_scores import UNCERTAINTIES
from latentheads.experiments.cli.tables import aligned
from latentheads.experiments.comparison.systems import describe_few
from latentheads.experiments.reliability.results import SCORE_TITLES, EvaluationResults
from latentheads.files import format_json
from latentheads.packages import package_versions

Measures = Mapping[str, Figure]

MAX_NAME_WIDTH = 26
"""Most letters of a system's name in a table."""


def write_tables(results: EvaluationResults) -> str:
    """Formats all tables."""
    names, measures = [_shorten(name) for name in results.names], results.figures
    scores = [name for name in SCORE_TITLES if results.has_score(name)]
    parts = [
        "References: nats per token, and calibration at T = 1 and at T fitted on validation",
        "\n".join(
            [
                _table(
                    ("system", *CALIBRATION_MEASURES, "T", "passes", "s"),
                    names,
                    _calibration_cells(results),
                ),
                *_note_temperature_limits(results),
            ]
        ),
        "Translations: chrF, and calibration of tokens labelled by the edits to the reference",
        _table(
            ("system", *OUTPUT_MEASURES),
            names,
            [_cells(measure, OUTPUT_MEASURES.values()) for measure in measures],
        ),
        "Rejection: prediction rejection ratio of each score (100: oracle)",
        _score_table("prr_", names, measures, scores),
        "Quality estimation: correlation of each score with sentence chrF",
        _score_table("chrf_", names, measures, scores),
    ]
    for other in results.texts.others:
        parts.append(f"Out-of-domain text, area under the ROC curve of each score: {other}")
        parts.append(_score_table(f"roc_{other}_", names, measures, scores, 3))
    if len(measures) > 1:
        parts.append(f"Difference to the first system, {names[0]} [95 % interval]; score: log p")
        parts.append(
            _table(
                ("system", *DIFFERENCE_MEASURES), names[1:], map(_difference_cells, measures[1:])
            )
        )
    return "\n\n".join([*parts, *describe_few(results.texts.sizes[TEST])])


CALIBRATION_MEASURES = {
    "NLL": "nll",
    "at T": "nll_scaled",
    "Brier": "brier",
    "ECE": "ece",
    "ECE at T": "ece_scaled",
    "overconf.": "excess",
    "EOS": "ece_end",
    "weighted": "ece_weighted",
}
OUTPUT_MEASURES = {
    "chrF": "chrf",
    "accuracy": "right",
    "confidence": "sure",
    "ECE": "own_ece",
    "ECE, Platt": "own_ece_line",
}
DIFFERENCE_MEASURES = {
    "NLL at T": "nll_scaled",
    "ECE at T": "ece_scaled",
    "PRR": "prr_log_prob",
}


def _shorten(name: str) -> str:
    return (
        name
        if len(name) <= MAX_NAME_WIDTH
        else "\N{HORIZONTAL ELLIPSIS}" + name[1 - MAX_NAME_WIDTH :]
    )


def _table(titles: Sequence[str], names: Sequence[str], rows: Any) -> str:
    cells = [(name, *row) for name, row in zip(names, rows, strict=True)]
    return aligned([tuple(titles), *cells])


def _calibration_cells(results: EvaluationResults) -> Iterator[list[str]]:
    """Calibration measures, mean temperature, members, and seconds per 1,000 tokens."""
    for evaluations, figures in zip(results.evaluations, results.figures, strict=True):
        temperature = sum(evaluation.temperature for evaluation in evaluations) / len(evaluations)
        seconds = sum(evaluation.seconds for evaluation in evaluations) / len(evaluations)
        cells = _cells(figures, CALIBRATION_MEASURES.values())
        yield [*cells, f"{temperature:.2f}", str(evaluations[0].members), f"{seconds:.2f}"]


def _note_temperature_limits(results: EvaluationResults) -> Iterator[str]:
    """Notes the systems whose temperature is at a limit of the search range."""
    ends = (MIN_TEMPERATURE, MAX_TEMPERATURE)
    for name, evaluations in zip(results.names, results.evaluations, strict=True):
        if any(evaluation.temperature in ends for evaluation in evaluations):
            limits = f"{MIN_TEMPERATURE:.2f} to {MAX_TEMPERATURE:.2f}"
            yield f"{name}: T is at a limit of its range, {limits}"


def _cells(figures: Measures, names: Any) -> list[str]:
    return [_number(figures.get(name), 2 if name == "chrf" else 3) for name in names]


def _number(figure: Figure | None, digits: int) -> str:
    """Formats a measure; empty if there is none."""
    is_number = figure is not None and not math.isnan(figure.score)
    return f"{figure.score:.{digits}f}" if is_number and figure is not None else ""


def _score_table(
    kind: str,
    names: Sequence[str],
    measures: Sequence[Measures],
    scores: Sequence[str],
    digits: int | None = None,
) -> str:
    digits = digits or (1 if kind == "prr_" else 3)
    rows = [
        [_number(of_system.get(f"{kind}{score}"), digits) for score in scores]
        for of_system in measures
    ]
    return _table(("system", *(SCORE_TITLES[score] for score in scores)), names, rows)


def _difference_cells(figures: Measures) -> list[str]:
    """Formats differences with their intervals."""
    return [
        _difference_cell(figures[name], 1 if name.startswith("prr") else 3)
        for name in DIFFERENCE_MEASURES.values()
    ]


def _difference_cell(figure: Figure, digits: int) -> str:
    """Formats a difference with its interval; parts that are NaN are left out."""
    if math.isnan(figure.difference):
        return ""
    difference, ends = (
        f"{figure.difference:+.{digits}f}",
        (figure.difference_low, figure.difference_high),
    )
    if any(map(math.isnan, ends)):
        return difference
    low, high = (f"{end:+.{digits}f}" for end in ends)
    return f"{difference} [{low}, {high}]"


def csv_rows(results: EvaluationResults) -> list[dict[str, Any]]:
    """One row for every measure of every system."""
    rows = []
    for system, figures in zip(results.names, results.figures, strict=True):
        for name, figure in figures.items():
            columns = {key: value for key, value in asdict(figure).items() if key != "each"}
            values = " ".join(f"{value:.6g}" for value in figure.each)
            rows.append({"system": system, "figure": name, **columns, "each": values})
    return rows


def to_json(results: EvaluationResults, options: Mapping[str, Any]) -> str:
    """All results as JSON; NaN becomes null."""
    systems = zip(results.systems, results.evaluations, results.figures, strict=True)
    rows = [
        {
            "system": system.name,
            "kind": system.kind,
            "passes": evaluations[0].members,
            "temperatures": [evaluation.temperature for evaluation in evaluations],
            "lines": [asdict(evaluation.platt_scaling) for evaluation in evaluations],
            "seconds_per_1000_tokens": [evaluation.seconds for evaluation in evaluations],
            "tokens": [len(evaluation.references.token) for evaluation in evaluations],
            "figures": {name: asdict(figure) for name, figure in figures.items()},
        }
        for system, evaluations, figures in systems
    ]
    record = {
        "options": dict(options),
        "versions": package_versions(),
        "sentences": results.texts.sizes,
        "scores": UNCERTAINTIES
        | {DISSIMILARITY: "dissimilarity of translations by single samples"},
        "baseline": f"{results.names[0]}; of scores its less log-probability, on {TEST}",
        "systems": rows,
    }
    return format_json(record)
