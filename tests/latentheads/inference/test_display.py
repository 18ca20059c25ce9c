"""Figures in a notebook: a row each, and what it is."""

from __future__ import annotations

import html
import math
import re
from typing import Any

from latentheads.inference.display import scores_to_html, scores_to_text
from latentheads.inference.evaluation import Report
from latentheads.metrics.compared import METRICS
from latentheads.metrics.scores import SCORES, Score, Scores
from latentheads.runs.results import Results

FIGURES: dict[str, Any] = {"elbo": -1.5, "kl": 0.25, "iwae": -1.4375, "iwae_k": 3}
NO_BOUND = "of one network, each latent set to one value: no bound"
HEAD = "nats per token"


def to_html(parts: dict[str, Any], **more: Any) -> str:
    return scores_to_html({name: Scores.of(values) for name, values in parts.items()}, **more)


def to_text(parts: dict[str, Any], title: str = "", **more: Any) -> str:
    return scores_to_text({n: Scores.of(values) for n, values in parts.items()}, title, **more)


def rows_of(table: str) -> dict[str, list[str]]:
    """The cells of a table by the first of each row."""
    lines = re.findall(r"<tr>(.*?)</tr>", table)
    cells = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", line) for line in lines]
    return {first: rest for first, *rest in cells}


def test_a_figure_stands_beside_what_it_is_and_one_that_nobody_knows_is_left_out() -> None:
    rows = rows_of(to_html({"valid": {**FIGURES, "plug_in": -1.25}, "test": FIGURES}))
    assert list(rows) == [
        *(HEAD, "bound (ELBO)", "KL(guide, prior)", "bound (IWAE_3)"),
        "plug-in log-likelihood",
    ]
    assert rows[HEAD] == ["valid", "test", ""]
    assert rows["bound (IWAE_3)"] == [
        "-1.4375",
        "-1.4375",
        "importance-weighted bound of 3 samples: tighter",
    ]
    assert rows["plug-in log-likelihood"] == ["-1.2500", "", NO_BOUND]


def test_where_log_p_is_exact_there_is_no_plug_in_network_and_no_iwae() -> None:
    rows = rows_of(to_html({"": {**FIGURES, "plug_in": -1.25, "exact": -1.25, "gap": 0.5}}))
    assert not {"plug-in log-likelihood", "bound (IWAE_3)"} & set(rows)
    assert rows["gap of the guide"][0] == "0.5000"


def test_a_terminal_shows_the_same_a_line_a_figure() -> None:
    lines = to_text({"valid": FIGURES, "test": FIGURES}, "mine").splitlines()
    assert lines[0] == "mine"
    assert [re.split("  +", line.strip())[0] for line in lines[2:]] == [
        *("bound (ELBO)", "KL(guide, prior)", "bound (IWAE_3)")
    ]
    assert lines[2].split()[2:4] == ["-1.5000", "-1.5000"]
    assert max(map(len, lines)) <= 100


def test_what_is_no_bound_is_not_called_one() -> None:
    faults = {"a true bound": "the mean bound lies above <the truth>", "plots": "no room"}
    message = "not shown to be a bound"
    lines = to_text({"": FIGURES}, faults=faults).splitlines()
    assert lines[1].endswith(f"-1.5000  {message}: see below")
    assert lines[-2:] == [
        *(
            "not in the report: a true bound: the mean bound lies above <the truth>",
            "not in the report: plots: no room",
        )
    ]
    table = to_html({"": FIGURES}, faults=faults)
    assert rows_of(table)["bound (ELBO)"][-1] == f"{message}: see below"
    assert table.endswith("above &lt;the truth&gt;</p><p>not in the report: plots: no room</p>")
    for value in (math.nan, math.inf):
        rows = rows_of(to_html({"": FIGURES, "test": {"elbo": value}}))
        assert rows["bound (ELBO)"][-1] == message


def test_iwae_of_one_draw_says_nothing_new() -> None:
    one, two = ({**FIGURES, "iwae_k": k} for k in (1, 2))
    assert "bound (IWAE_1)" not in rows_of(to_html({"": one}))
    assert "bound (IWAE_2)" in rows_of(to_html({"": two}))


def test_a_truth_of_some_sentences_stands_beside_their_bound() -> None:
    expected = {**FIGURES, "truth": -1.0, "truth_elbo": -1.25, "truth_sentences": 11}
    of_all, of_some = expected | {"sentences": 11}, expected | {"sentences": 1200}
    corpus = "log p(y | x) under the process that generated the corpus, not under the model"
    rows = rows_of(to_html({"valid": of_all, "test": of_all}))
    assert rows["true log p"] == ["-1.0000", "-1.0000", corpus]
    assert not any("these sentences" in name for name in rows)
    rows = rows_of(to_html({"valid": of_all, "test": of_some}))
    assert rows["true log p"][-1] == f"{corpus}; test: of 11 of 1,200 sentences"
    assert rows["ELBO of these sentences"][:2] == ["-1.2500", "-1.2500"]
    rows = rows_of(to_html({"": of_some}))
    assert rows["true log p"][-1] == f"{corpus}; of 11 of 1,200 sentences"


def test_every_metric_has_a_row() -> None:
    rows = rows_of(to_html({"": dict.fromkeys(METRICS, 12.345)}))
    assert [*rows][1:] == [html.escape(SCORES[name].heading) for name in METRICS]
    assert {first for first, _ in rows.values()} == {"", "12.35"}


def test_an_interval_stands_behind_its_value() -> None:
    test = Scores([Score.of("wer", 12.0, interval=(10.0, 15.5)), Score.of("cer", 4.0)])
    rows = rows_of(scores_to_html({"test": test}))
    assert rows["WER, % [95 % CI]"][0] == "12.00 [10.00, 15.50]"
    assert rows["CER, %"][0] == "4.00"


def test_a_report_and_results_show_themselves() -> None:
    more = {"log_likelihood": -1.25, "plug_in": -1.0, "tokens": 7, "effective_sample_size": 2.0}
    report = Report(**FIGURES, **more, pareto_k=None, pareto_unknown=None)
    assert rows_of(report._repr_html_())["plug-in log-likelihood"] == ["-1.0000", NO_BOUND]
    scores = Scores.of({"elbo": -2.0, "bleu": 12.345})
    shown = Results(recipe="a<b", corpus="here", steps=1234, test=scores)._repr_html_()
    assert "<caption>a&lt;b on here, seed 0, 1,234 steps</caption>" in shown
    assert rows_of(shown)["BLEU"] == ["", "12.35", "of the translations"]
    lines = str(Results(recipe="a", corpus="here", steps=1234, test=scores)).splitlines()
    assert lines[0] == "a on here, seed 0, 1,234 steps"
    assert lines[-1].split() == ["BLEU", "12.35", "of", "the", "translations"]
    assert str(report).splitlines()[1].startswith("bound (ELBO)")


def test_a_report_knows_its_gap_to_the_true_log_likelihood() -> None:
    more = {"log_likelihood": -1.25, "plug_in": -1.0, "tokens": 7, "effective_sample_size": 2.0}
    expected = {"truth": -1.0, "truth_elbo": -1.25, "truth_sentences": 3, "sentences": 3}
    report = Report(**FIGURES, **more, **expected, pareto_k=None, pareto_unknown=None)
    assert report.scores().truth_gap == 0.25
    assert "gap of the bound to true log p" in str(report)
    assert "pareto_k" not in report.scores()
