"""The tables of a run: whole where a figure is missing, and true about the truth."""

from __future__ import annotations

from typing import Any

import pytest

from latentheads.experiments.cli.tables import (
    BELOW_PRIOR,
    HEAD_DIVERGENCE,
    UNINFORMED,
    explanations,
    heads_table,
    packed,
    result_table,
    site_table,
    task_table,
)
from latentheads.metrics.scores import Score, Scores
from latentheads.metrics.seeds import _of_tasks
from latentheads.runs.reporter import average
from latentheads.runs.results import Perplexity, Results
from tests.figures import FIGURES

RESULTS: dict[str, Any] = {
    "valid": Scores.of(FIGURES),
    "test": Scores.of(FIGURES),
    "kl_by_site": {"encoder.0.self.logits": 0.25},
    "kl_how": {"encoder.0.self.logits": "analytic"},
    "head_divergence": 0.5,
    "head_divergence_by_attention_type": {"encoder-self": 0.5},
    "parameters": 12345,
    "tokens_per_second": 678.0,
}


def test_a_wide_table_is_cut_into_tables_that_fit_a_terminal() -> None:
    rows = [["recipe", "seeds", *(f"figure {n}" for n in range(9))], ["a", "2", *("x" * 30,) * 9]]
    parts = packed(rows, names=2).split("\n\n")
    assert len(parts) == 5
    assert all(len(line) <= 100 for part in parts for line in part.splitlines())
    assert [part.split()[:2] for part in parts] == [["recipe", "seeds"]] * 5
    cells = [line.split("  ")[-1] for part in parts for line in part.splitlines()]
    assert (cells[0].strip(), cells[-1].strip()) == ("figure 1", "x" * 30)


def test_the_heads_of_each_task_stand_in_a_column() -> None:
    encoder = {"tasks": [""], "chosen": {"encoder.0.self": [[1.0, 0.0, 1.0]]}}
    decoder = {"tasks": ["de", "nl"], "chosen": {"decoder.0.self": [[1.0, 1.0, 0.0], [0.0] * 3]}}
    selection = {"encoder-self": encoder, "decoder-self": decoder}
    rows = [line.split("  ") for line in heads_table(Results(selection=selection)).splitlines()]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells == [
        ["heads by task", "de", "nl"],
        ["encoder.0.self", "0 2", "0 2"],
        ["decoder.0.self", "0 1"],
    ]
    assert heads_table(Results(selection={"encoder-self": encoder})) == ""
    assert heads_table(Results()) == ""


def told(**changes: Any) -> dict[str, list[str]]:
    """The rows of the table by their names."""
    lines = result_table(Results(**{**RESULTS, **changes})).splitlines()
    cells = [[cell for cell in line.split("  ") if cell.strip()] for line in lines]
    return {name.strip(): [value.strip() for value in values] for name, *values in cells}


def test_the_gap_to_a_truth_that_is_known_of_all_needs_no_more_words() -> None:
    rows = told()
    assert rows["true log p"] == ["-1.0000", "-1.0000"]
    assert rows["gap of the bound to true log p"] == ["0.2500", "0.2500"]
    assert not any("known" in name for name in rows)


def test_a_truth_that_is_known_of_some_says_of_how_many() -> None:
    rows = told(test=Scores.of(FIGURES | {"truth_sentences": 9}))
    assert rows["sentences that it is known of"] == ["11 of 11", "9 of 11"]
    assert rows["gap of the bound to true log p"] == ["0.2500", "0.2500"]


def test_where_the_exact_law_is_known_it_is_told_by_task_and_not_the_plug_in() -> None:
    tasks = {"de": FIGURES | {"bleu": 5.0}, "fr": FIGURES | {"bleu": 7.0}}
    drawn = of_tasks(tasks)
    exact = of_tasks({name: values | {"exact": -1.3125} for name, values in tasks.items()})
    assert "plug-in (no bound)" in task_table(drawn)
    head = task_table(exact).splitlines()[0]
    assert "ELBO  exact log p  true log p" in head
    assert "plug-in" not in head
    assert {"average_plug_in", "task de: plug_in"} <= set(_of_tasks(drawn))
    row = _of_tasks(exact)
    assert (row["average_exact"], row["average_bleu"], row["task fr: exact"]) == (
        -1.3125,
        6,
        -1.3125,
    )
    assert not any("plug_in" in name or "iwae" in name for name in row)
    assert task_table(Results()) == ""


def of_tasks(tasks: dict[str, dict[str, Any]]) -> Results:
    scores = {name: Scores.of(values) for name, values in tasks.items()}
    return Results(tasks=scores, average=average(scores))


def test_accuracy_stands_before_bleu_where_it_was_asked_for() -> None:
    written = FIGURES | {"bleu": 91.0, "chrf": 90.0, "sentences_per_second": 100.0}
    decoding = {"num_beams": 1, "num_samples": 0}
    edits = Scores([Score.of("edit_distance", 0.731, signature="of edits")])
    whole = Scores.of({**FIGURES, "accuracy": 74.7}) | Scores.of(written) | edits
    rows = told(test=whole, decoding=decoding)
    names = ["accuracy, %", "edit distance", "BLEU"]
    assert [rows[name] for name in names] == [["74.70"], ["0.73"], ["91.00"]]
    places = [list(rows).index(name) for name in ("decoding: plug-in heads, greedy", *names)]
    assert places == sorted(places)
    assert list(rows).index("of edits") == list(rows).index("edit distance") + 1
    plain = told(test=Scores.of(written), decoding=decoding)
    assert not any("accuracy" in name for name in plain)


@pytest.mark.parametrize("unknown", ["valid", "test"])
def test_a_part_may_have_no_truth_where_the_other_has_one(unknown: str) -> None:
    none = {"truth": None, "truth_elbo": None, "truth_gap": None, "truth_sentences": 0}
    rows = told(**{unknown: Scores.of(FIGURES | none)})
    assert rows["true log p"] == ["-1.0000"]
    assert rows["gap of the bound to true log p"] == ["0.2500"]


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("part", ["valid", "test"])
def test_a_table_survives_any_missing_figure(part: str, name: str) -> None:
    without = {key: value for key, value in FIGURES.items() if key != name}
    unknown = Scores([*Scores.of(without).rows, Score.of(name, None)])
    for scores in (unknown, Scores.of(without)):
        assert "parameters" in told(**{part: scores})


def test_a_table_survives_a_report_that_has_nothing_but_names() -> None:
    rows = told(
        valid=Scores(),
        test=Scores(),
        kl_by_site={},
        kl_how={},
        head_divergence=None,
        head_divergence_by_attention_type={},
        tokens_per_second=None,
    )
    assert rows["training, tokens/s"] == []
    assert "bound (ELBO)" not in rows
    assert rows["parameters"] == ["12,345"]


def test_each_row_of_the_table_is_explained() -> None:
    text = explanations(Results(**RESULTS))
    assert f"{HEAD_DIVERGENCE}: " in text
    assert HEAD_DIVERGENCE in result_table(Results(**RESULTS), verbose=True)
    assert HEAD_DIVERGENCE not in result_table(Results(**RESULTS))
    assert "divergence" not in explanations(Results(**{**RESULTS, "head_divergence": None}))
    assert "bound (ELBO): evidence lower bound: the next row minus the KL" in text
    assert "{" not in text
    titles = [line.partition(":")[0] for line in text.splitlines()]
    assert len(set(titles)) == len(titles) > 3


@pytest.mark.parametrize(("gap", "is_below"), [(0.3, True), (0.1, False), (0.10004, False)])
def test_a_guide_whose_bound_is_below_the_priors_is_named(gap: float, is_below: bool) -> None:
    test = Scores.of({**FIGURES, "exact": -1.0, "gap": gap, "prior_gap": 0.1})
    rows = told(test=test)
    assert rows["gap of the guide"] == [f"{gap:.4f}"]
    assert rows["gap of the prior (guide tied)"] == ["0.1000"]
    assert (BELOW_PRIOR in rows) == is_below


@pytest.mark.parametrize(
    ("information", "entropy", "is_uninformed"),
    [(0.009, 0.3, True), (0.011, 0.3, False), (0.009, 0.2, False)],
)
def test_a_posterior_that_is_the_prior_is_named(
    information: float, entropy: float, is_uninformed: bool
) -> None:
    figures = {"exact": -1.0, "information": information, "prior_entropy": entropy}
    test = Scores.of({**FIGURES, **figures})
    assert (UNINFORMED in result_table(Results(**{**RESULTS, "test": test}))) == is_uninformed


def test_the_gap_of_each_site_is_in_the_table_of_sites() -> None:
    sites = {"decoder.0.alignment.choice": 1.0, "decoder.1.alignment.choice": 2.0}
    how, gaps = dict.fromkeys(sites, "enumerated"), dict.fromkeys(sites, 0.5)
    lines = site_table(Results(kl_by_site=sites, kl_how=how, gap_by_site=gaps)).splitlines()
    assert lines[0].endswith("KL(guide, prior)  gap of the guide         how")
    assert lines[1].split() == [
        "decoder.0.alignment.choice",
        "1.000e+00",
        "5.000e-01",
        "enumerated",
    ]


def test_a_kl_that_is_no_number_leaves_its_chain_out() -> None:
    decoder = {"decoder.1.self.logits": 2.0, "decoder.0.self.logits": 1.0}
    sites = {"encoder.1.self.logits": None, "encoder.0.self.logits": 1.0, **decoder}
    rows = told(kl_by_site=sites)
    assert rows["decoder-self"] == ["3.0000"]
    assert "encoder-self" not in rows
    above = {"decoder.0.alignment.choice": 1.0, "decoder.0.alignment.copy": 2.0}
    assert {"decoder-alignment", "copy"} <= set(told(kl_by_site=above))
    how = dict.fromkeys(sites, "tied")
    assert "encoder.1.self.logits" in site_table(Results(kl_by_site=sites, kl_how=how))


def text(token: dict[str, Any], word: dict[str, Any], mode: str = "sentences") -> tuple[Any, Any]:
    """The perplexities of both parts."""
    valid, test = (Perplexity(mode, part, 9, 2, token, word) for part in ("valid", "test"))
    return valid, test


def test_perplexities_survive_a_bound_that_is_no_number() -> None:
    unknown = dict.fromkeys(("elbo", "iwae", "plug_in"))
    assert told(perplexity=text(unknown, unknown))["perplexity from the bound"] == []


def test_no_perplexity_by_word_stands_where_nobody_counted_words() -> None:
    rows = told(perplexity=text({"elbo": 4.0, "iwae": 3.5, "plug_in": 3.0}, {}))
    assert rows["perplexity from the bound"] == ["4.00", "4.00"]
    assert not any("by word" in name for name in rows)


def test_an_exact_perplexity_stands_in_the_place_of_the_plug_ins_and_of_draws() -> None:
    actual = {"exact": 3.0, "elbo": 4.0, "iwae": 3.5, "plug_in": 3.0}
    rows = told(perplexity=text(actual, actual))
    assert rows["perplexity, exact"] == ["3.00", "3.00"]
    assert rows["perplexity from the bound"] == ["4.00", "4.00"]
    assert "perplexity, plug-in" not in rows
    assert "perplexity from IWAE_2" not in rows


def test_error_rates_have_intervals_where_these_are_known() -> None:
    heard = Scores(
        [
            Score.of("wer", 25.0, signature="jiwer:w"),
            *Scores.of({"substitutions": 1, "deletions": 0, "insertions": 0, "words": 4}).rows,
            Score.of("cer", 12.5, interval=(1.5, 20.25), signature="jiwer:c"),
        ]
    )
    decoding = {"num_samples": 0, "num_beams": 1}
    rows = told(test=Scores.of(FIGURES) | heard, decoding=decoding)
    assert rows["WER, %"] == ["25.00"]
    assert rows["CER, % [95 % CI]"] == ["12.50 [1.50, 20.25]"]
    assert (rows["substitutions"], rows["words of the references"]) == (["1"], ["4"])
    assert rows["bound (ELBO), nats per word"] == [f"{-1.5 * 1234 / 4:.4f}"]
    lost = told(test=heard, decoding=decoding, missing={"test": "no memory"})
    assert "bound (ELBO), nats per word" not in lost
    assert lost["WER, %"] == ["25.00"]


def test_what_plug_in_means_is_said_once() -> None:
    drawn = result_table(Results(**RESULTS))
    prior_mean = "plug-in: heads set to the prior mean, which is another model"
    assert drawn.splitlines()[-1].startswith(prior_mean)
    exact = {name: Scores.of(FIGURES | {"exact": -1.0, "gap": 0.5}) for name in ("valid", "test")}
    assert "plug-in:" not in result_table(Results(**{**RESULTS, **exact}))


def test_a_network_without_sites_is_decoded_without_latents() -> None:
    scores = Scores.of(FIGURES | {"exact": -1.0, "bleu": 5.0})
    decoding = {"num_samples": 0, "num_beams": 1}
    content = {**RESULTS, "valid": scores, "test": scores, "kl_by_site": {}, "kl_how": {}}
    table = result_table(Results(**content, decoding=decoding))
    assert "decoding: no latents, greedy" in table


def test_a_network_without_noise_has_an_exact_log_p_and_no_plug_in() -> None:
    elbo = FIGURES["elbo"]
    scores = Scores.of(FIGURES | {"plug_in": elbo, "exact": elbo, "bleu": 5.0})
    parts = {"valid": scores, "test": scores, "tasks": {"de": scores}, "average": scores}
    decoding = {"num_samples": 0, "num_beams": 1}
    perplexity = text(dict.fromkeys(("elbo", "iwae", "plug_in", "exact"), 4.0), {})
    fixed = {"encoder.0.self.logits": "fixed"}
    changes = {**parts, "kl_how": fixed, "decoding": decoding, "perplexity": perplexity}
    rows, results = told(**changes), Results(**{**RESULTS, **changes})
    assert rows["exact log p"] == ["-1.5000", "-1.5000"]
    assert rows["perplexity, exact"] == ["4.00", "4.00"]
    assert "decoding: no latents, greedy" in rows
    assert "exact log p: " in explanations(results)
    assert "exact log p" in task_table(results)
    assert "plug-in" not in task_table(results)
    assert not any(name.startswith(("plug-in", "bound (IWAE", "Pareto")) for name in rows)


def test_the_table_says_which_weights_it_is_of() -> None:
    best, mean = "weights of step", "weights, mean of 10 checkpoints:"
    assert told(steps=3000, reported_step=250)[best] == ["250 of 3,000"]
    assert told(steps=3000, reported_step=3000, averaged=10)[f"{mean} up to step"] == ["3,000"]
    assert told(steps=9, reported_step=9, averaged=1)[best] == ["9 of 9"]
    assert not any("weights" in row for row in told())


def test_weights_that_are_not_to_be_trusted_are_a_share() -> None:
    scores, some, none = (
        Scores.of(FIGURES | {"pareto_k": k, "pareto_unknown": share})
        for k, share in ((0.25, 0.0), (0.5, 0.1), (0.5, 0.0))
    )
    assert told(valid=scores, test=some)["Pareto k unknown"] == ["0%", "10%"]
    rows = told(valid=scores, test=none)
    assert rows["Pareto k > 0.7"] == ["25%", "50%"]
    assert "Pareto k unknown" not in rows
