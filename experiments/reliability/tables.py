"""The findings about systems as tables of at most 100 columns, as rows of a CSV, and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from latentheads.experiments.cli.tables import aligned
from latentheads.experiments.reliability.results import SHOWN, EvaluationResults
from latentheads.uncertainty.evaluation import DISSIMILARITY, TEST
from latentheads.uncertainty.measures import Figure
from latentheads.uncertainty.scaling import MAX_TEMPERATURE, MIN_TEMPERATURE
from latentheads.uncertainty.token_scores import UNCERTAINTIES
from latentheads.values import finite

__all__ = ["csv_rows", "to_json", "write_tables"]

Found = Mapping[str, Figure]

WIDEST = 26
"""Letters of a system's name in a table."""


def write_tables(findings: EvaluationResults) -> str:
    """All tables, one below the other."""
    names, found = [_shorten(name) for name in findings.names], findings.figures
    scores = [name for name in SHOWN if findings.knows_score(name)]
    parts = [
        "References: nats a token, and calibration before and at the temperature of validation",
        "\n".join(
            [
                _table(("system", *LAWS, "T", "passes", "s"), names, _law_cells(findings)),
                *_note_ends(findings),
            ]
        ),
        "What systems write: token by token against edits to the reference, and as sentences",
        _table(("system", *OWN), names, [_cells(each, OWN.values()) for each in found]),
        "Rejection: prediction rejection ratio by each score (100: the errors themselves)",
        _score_table("prr_", names, found, scores),
        "Quality without references: correlation of each score with sentence chrF",
        _score_table("chrf_", names, found, scores),
    ]
    for other in findings.texts.others:
        parts.append(f"Other texts, area under the ROC curve by each score: {other}")
        parts.append(_score_table(f"roc_{other}_", names, found, scores, 3))
    if len(found) > 1:
        parts.append(f"Less the first system's, {names[0]} [95 % interval]; scores by log p")
        parts.append(_table(("system", *APART), names[1:], map(_apart_cells, found[1:])))
    return "\n\n".join(parts)


LAWS = {
    "NLL": "nll",
    "at T": "nll_scaled",
    "Brier": "brier",
    "ECE": "ece",
    "ECE at T": "ece_scaled",
    "too sure": "excess",
    "end": "ece_end",
    "weighted": "ece_weighted",
}
OWN = {
    "chrF": "chrf",
    "right": "right",
    "said": "sure",
    "ECE": "own_ece",
    "by the line": "own_ece_line",
}
APART = {
    "NLL at T": "nll_scaled",
    "ECE at T": "ece_scaled",
    "PRR": "prr_log_prob",
}


def _shorten(name: str) -> str:
    return name if len(name) <= WIDEST else "\N{HORIZONTAL ELLIPSIS}" + name[1 - WIDEST :]


def _table(titles: Sequence[str], names: Sequence[str], rows: Any) -> str:
    cells = [(name, *row) for name, row in zip(names, rows, strict=True)]
    return aligned([tuple(titles), *cells])


def _law_cells(findings: EvaluationResults) -> Iterator[list[str]]:
    """Figures of laws, the mean temperature, passes, and seconds of a thousand tokens."""
    for each, figures in zip(findings.evaluations, findings.figures, strict=True):
        temperature = sum(evaluation.temperature for evaluation in each) / len(each)
        seconds = sum(evaluation.seconds for evaluation in each) / len(each)
        cells = _cells(figures, LAWS.values())
        yield [*cells, f"{temperature:.2f}", str(each[0].members), f"{seconds:.2f}"]


def _note_ends(findings: EvaluationResults) -> Iterator[str]:
    """Names the systems whose temperature may lie beyond those that were looked at."""
    ends = (MIN_TEMPERATURE, MAX_TEMPERATURE)
    for name, each in zip(findings.names, findings.evaluations, strict=True):
        if any(evaluation.temperature in ends for evaluation in each):
            limits = f"{MIN_TEMPERATURE:.2f} to {MAX_TEMPERATURE:.2f}"
            yield f"{name}: T is at an end of what is looked at, {limits}"


def _cells(figures: Found, names: Any) -> list[str]:
    return [_number(figures.get(name), 2 if name == "chrf" else 3) for name in names]


def _number(figure: Figure | None, digits: int) -> str:
    """A figure; nothing where there is none."""
    known = figure is not None and not math.isnan(figure.score)
    return f"{figure.score:.{digits}f}" if known and figure is not None else ""


def _score_table(
    kind: str,
    names: Sequence[str],
    found: Sequence[Found],
    scores: Sequence[str],
    digits: int | None = None,
) -> str:
    digits = digits or (1 if kind == "prr_" else 3)
    rows = [[_number(each.get(f"{kind}{score}"), digits) for score in scores] for each in found]
    return _table(("system", *(SHOWN[score] for score in scores)), names, rows)


def _apart_cells(figures: Found) -> list[str]:
    """Differences with their intervals."""
    return [
        _apart_cell(figures[name], 1 if name.startswith("prr") else 3) for name in APART.values()
    ]


def _apart_cell(figure: Figure, digits: int) -> str:
    """A difference with its interval; of both as much as is known."""
    if math.isnan(figure.difference):
        return ""
    said, ends = f"{figure.difference:+.{digits}f}", (figure.difference_low, figure.difference_high)
    if any(map(math.isnan, ends)):
        return said
    low, high = (f"{end:+.{digits}f}" for end in ends)
    return f"{said} [{low}, {high}]"


def csv_rows(findings: EvaluationResults) -> list[dict[str, Any]]:
    """A row for every figure of every system."""
    rows = []
    for owner, figures in zip(findings.names, findings.figures, strict=True):
        for name, figure in figures.items():
            said = {key: value for key, value in asdict(figure).items() if key != "each"}
            each = " ".join(f"{value:.6g}" for value in figure.each)
            rows.append({"system": owner, "figure": name, **said, "each": each})
    return rows


def to_json(findings: EvaluationResults, options: Mapping[str, Any]) -> str:
    """Everything, as JSON; what is not known is null."""
    every = zip(findings.systems, findings.evaluations, findings.figures, strict=True)
    rows = [
        {
            "system": system.name,
            "kind": system.kind,
            "passes": each[0].members,
            "temperatures": [evaluation.temperature for evaluation in each],
            "lines": [asdict(evaluation.platt_scaling) for evaluation in each],
            "seconds_per_1000_tokens": [evaluation.seconds for evaluation in each],
            "tokens": [len(evaluation.references.token) for evaluation in each],
            "figures": {name: asdict(figure) for name, figure in figures.items()},
        }
        for system, each, figures in every
    ]
    said = {
        "options": dict(options),
        "sentences": findings.texts.sizes,
        "scores": UNCERTAINTIES
        | {DISSIMILARITY: "less the likeness of translations by single draws"},
        "baseline": f"{findings.names[0]}; of scores its less log-probability, on {TEST}",
        "systems": rows,
    }
    return json.dumps(finite(said), indent=1, ensure_ascii=False) + "\n"
