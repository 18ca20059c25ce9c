"""Rows of scores: what each is, how it is printed, and a metric that is one function and a line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from latentheads.inference.display import scores_to_text
from latentheads.metrics import scores as registry
from latentheads.metrics.compared import COMPARED
from latentheads.metrics.resampling import Metric, References
from latentheads.metrics.scores import (
    NATS,
    SCORES,
    Score,
    ScoreInfo,
    Scores,
    compare_systems,
    format_perplexity,
    format_value,
    primary_score,
    score_lines,
    shown_names,
)


@pytest.mark.parametrize(
    ("score", "title"), [("bleu", "BLEU of de"), ("accuracy", "accuracy of de, %")]
)
def test_the_heading_of_a_score_of_a_part_ends_in_its_unit(score: str, title: str) -> None:
    assert SCORES[score].heading_of("de") == title


def test_every_score_that_is_compared_has_a_meaning() -> None:
    assert [name for name in COMPARED if not SCORES[name].meaning] == []
    assert {info.estimates for info in SCORES.values()} == {"", "exact"}


def test_the_first_score_that_is_known_stands_for_all() -> None:
    assert primary_score({"bleu": 30.0, "wer": 20.0, "accuracy": None}) == "wer"
    assert primary_score({"elbo": -1.0}) is None


def test_rows_are_a_mapping_that_is_read_and_written_the_same() -> None:
    wer = Score.of("wer", 12.5, interval=(10.0, 15.0), signature="jiwer")
    scores = Scores.of({"elbo": -1.5, "tokens": 7, "truth": None}) | Scores([wer])
    assert dict(scores) == {"elbo": -1.5, "tokens": 7, "wer": 12.5}
    assert (scores.elbo, scores.truth, scores["wer"]) == (-1.5, None, 12.5)
    assert wer.to_json() == {
        **{"name": "wer", "value": 12.5, "interval": (10.0, 15.0)},
        **{"unit": "%", "kind": "metric", "signature": "jiwer"},
    }
    assert [*Score.of("tokens", None).to_json()] == ["name", "value", "unit", "kind"]
    again = Scores.read(scores.to_json())
    assert again.rows == scores.rows
    assert isinstance(again["tokens"], int)
    assert repr(scores) == "Scores(elbo=-1.5, tokens=7, wer=12.5)"


@pytest.mark.parametrize("broken", [{}, None, "text", [1], [{"name": 3}], [{"value": 1.0}]])
def test_what_is_no_list_of_rows_is_refused(broken: Any) -> None:
    with pytest.raises(ValueError, match="score"):
        Scores.read(broken)


def test_a_score_that_nobody_knows_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="there is no score 'belu'"):
        _ = Scores().belu


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        *((None, NATS, ""), (0.0, NATS, "0.0000"), (1.23e-6, NATS, "1.2e-06")),
        *((-1.25, NATS, "-1.2500"), (float("nan"), NATS, "nan")),
        *((12.345, "%", "12.35"), (1234, "tokens", "1,234"), (0.5, "share", "50%")),
    ],
)
def test_a_unit_says_how_values_are_printed(value: float, unit: str, shown: str) -> None:
    assert format_value(value, unit) == shown


def longest(references: References) -> Metric:
    """A metric of one's own: the mean length of the longest word of a line."""

    def count(lines: Any) -> Any:
        return np.array([[max(map(len, line.split()), default=0), 1.0] for line in lines])

    return Metric(count, lambda total: float(total[0] / total[1]), lambda: "longest")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        (7.126, "7.13"),
        (9999.0, "9999.00"),
        (12345.6, "12,346"),
        (16796722.18, "1.68e7"),
    ],
)
def test_a_large_perplexity_has_few_digits(value: float | None, shown: str) -> None:
    assert format_perplexity(value) == shown


def test_a_metric_is_one_function_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ScoreInfo("longest word", "of a line", metric=longest, compared=True)
    monkeypatch.setitem(registry.SCORES, "longest", own)
    scores = score_lines(["a bcd", "ab"], References(["a b", "ab"], tokenised=True))
    row = scores.row("longest")
    assert row == Score("longest", 2.5, signature="longest")
    assert "longest" in shown_names([scores])
    line = scores_to_text({"test": scores}).splitlines()[-1]
    assert line.split() == ["longest", "word", "2.50", "of", "a", "line"]
    base, other = compare_systems([["a"] * 3, ["abc"] * 3], References(["a"] * 3), resamples=50)
    assert (base["longest"].score, other["longest"].score) == (1.0, 3.0)
    assert other["longest"].p is not None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"count": lambda lines: np.ones((2 * len(lines), 2))}, "a row for each of 3 lines, got"),
        ({"count": lambda lines: np.ones(len(lines))}, r"each of 3 lines, got shape \(3,\)"),
        ({"count": lambda lines: [1 / 0]}, "ZeroDivisionError"),
        ({"combine": lambda total: "half"}, "could not convert string to float: 'half'"),
        ({"combine": lambda total: total}, "only "),
        ({"counts": ("one", "two", "three")}, "zip"),
    ],
)
def test_a_metric_of_a_users_that_fails_is_left_out(
    change: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    references = References(["a b", "c", "d"])
    others = {*score_lines(["a b", "c", "e"], references)}
    own = ScoreInfo("mine", metric=lambda references: replace(longest(references), **change))
    monkeypatch.setitem(registry.SCORES, "mine", own)
    with pytest.warns(UserWarning, match=f"^the metric mine is left out: .*{why}"):
        scores = score_lines(["a b", "c", "e"], references)
    assert {*scores} == others >= {"bleu", "chrf"}
    if "counts" not in change:
        with pytest.warns(UserWarning, match=f"^the metric mine is left out: .*{why}"):
            rows = compare_systems([["a b", "c", "e"]] * 2, references, resamples=50)
        assert [{*row} for row in rows] == [others] * 2


def test_a_metric_of_this_library_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ScoreInfo("BLEU", metric=lambda references: replace(longest(references), count=len))
    monkeypatch.setitem(registry.SCORES, "bleu", broken)
    with pytest.raises(ValueError, match="its counts must be a row for each of 1 lines"):
        score_lines(["a"], References(["a"]))


@pytest.mark.parametrize("kind", [torch.tensor, np.float32, np.float64])
def test_a_metric_may_return_a_number_of_any_kind(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ScoreInfo(
        "mine",
        metric=lambda references: Metric(
            lambda lines: [[len(line)] for line in lines], lambda total: kind(total[0]), lambda: ""
        ),
    )
    monkeypatch.setitem(registry.SCORES, "mine", own)
    value = score_lines(["a", "bcd"], References(["a", "b"])).get("mine")
    assert (type(value), value) == (float, 4)


def test_an_interval_ends_where_the_scale_of_its_score_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def negative(references: References) -> Metric:
        def count(lines: Any) -> Any:
            return np.array([[len(line), 1.0] for line in lines])

        return Metric(count, lambda total: -float(total[0] / total[1]), lambda: "")

    monkeypatch.setitem(registry.SCORES, "free", ScoreInfo("free", metric=negative))
    cut = ScoreInfo("cut", metric=negative, least=-3.0, most=-2.0)
    monkeypatch.setitem(registry.SCORES, "cut", cut)
    (row,) = compare_systems([["a", "abcd"] * 5], References(["a"] * 10), resamples=50)
    assert row["free"].low < -3 < row["free"].score == -2.5 < -2 < row["free"].high
    assert (row["cut"].low, row["cut"].high) == (-3, -2)


def test_transcripts_and_translations_have_metrics_of_their_own() -> None:
    translated = score_lines(["a b"], References(["a b"]))
    heard = score_lines(["a b"], References(["a b"], is_speech=True))
    own = {"bleu", "chrf", "wer", "cer"}
    assert {*translated} & own == {"bleu", "chrf"}
    assert {*heard} & own == {"wer", "cer"}
    assert (heard.substitutions, heard.words) == (0, 2)


def test_only_bounds_are_called_bounds() -> None:
    bounds = {name for name, info in SCORES.items() if info.kind == "bound"}
    assert bounds == {"elbo", "iwae", "truth_elbo"}
