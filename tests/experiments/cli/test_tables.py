"""The tables of a run: whole where a figure is missing, and true about the truth."""

from __future__ import annotations

from typing import Any

import pytest

from tests.figures import FIGURES

RESULTS: dict[str, Any] = {
    "valid": FIGURES,
    "test": FIGURES,
    "kl_by_site": {"encoder.0.self.logits": 0.25},
    "kl_how": {"encoder.0.self.logits": "analytic"},
    "head_divergence": 0.5,
    "head_divergence_by_chain": {"encoder-self": 0.5},
    "parameters": 12345,
    "tokens_per_second": 678.0,
}


def test_a_wide_table_is_cut_into_tables_that_fit_a_terminal() -> None:
    from latentheads.experiments.cli.tables import packed

    rows = [["recipe", "seeds", *(f"figure {n}" for n in range(9))], ["a", "2", *("x" * 30,) * 9]]
    parts = packed(rows, names=2).split("\n\n")
    assert len(parts) == 5
    assert all(len(line) <= 100 for part in parts for line in part.splitlines())
    assert [part.split()[:2] for part in parts] == [["recipe", "seeds"]] * 5
    cells = [line.split("  ")[-1] for part in parts for line in part.splitlines()]
    assert (cells[0].strip(), cells[-1].strip()) == ("figure 1", "x" * 30)


def told(**changes: Any) -> dict[str, list[str]]:
    """The rows of the table by their names."""
    from latentheads.experiments.cli.tables import result_table

    lines = result_table({**RESULTS, **changes}).splitlines()
    cells = [[cell for cell in line.split("  ") if cell.strip()] for line in lines]
    return {name.strip(): [value.strip() for value in values] for name, *values in cells}


def test_the_gap_to_a_truth_that_is_known_of_all_needs_no_more_words() -> None:
    rows = told()
    assert rows["true log p(y | x)"] == ["-1.0000", "-1.0000"]
    assert rows["truth less bound"] == ["0.2500", "0.2500"]
    assert not any("known" in name for name in rows)


def test_a_truth_that_is_known_of_some_says_of_how_many() -> None:
    rows = told(test=FIGURES | {"truth_sentences": 9})
    assert rows["sentences that it is known of"] == ["11 of 11", "9 of 11"]
    assert rows["truth less bound, of these sentences"] == ["0.2500", "0.2500"]


def test_where_the_exact_law_is_known_it_is_told_by_task_and_not_the_plug_in() -> None:
    from latentheads.experiments.cli.tables import task_table
    from latentheads.metrics.seeds import _of_tasks
    from latentheads.runs.reporter import average

    tasks = {"de": FIGURES | {"bleu": 5.0}, "fr": FIGURES | {"bleu": 7.0}}
    drawn = {"tasks": tasks, "average": average(tasks)}
    tasks = {name: figures | {"exact": -1.3125} for name, figures in tasks.items()}
    exact = {"tasks": tasks, "average": average(tasks)}
    assert "plug-in (no bound)" in task_table(drawn)
    head = task_table(exact).splitlines()[0]
    assert "bound (ELBO)  exact log p(y | x)  true log p(y | x)" in head
    assert "plug-in" not in head
    assert {"average_plug_in", "task de: plug_in"} <= set(_of_tasks(drawn))
    row = _of_tasks(exact)
    assert (row["average_exact"], row["average_bleu"], row["task fr: exact"]) == (
        -1.3125,
        6,
        -1.3125,
    )
    assert not any("plug_in" in name or "iwae" in name for name in row)


def test_accuracy_stands_before_bleu_where_it_was_asked_for() -> None:
    written = {"bleu": 91.0, "bleu_signature": "of BLEU", "chrf": 90.0, "paper_bleu": None}
    scores = FIGURES | written | {"sentences_per_second": 100.0}
    whole = {"accuracy": 74.7, "edit_distance": 0.731, "edit_signature": "of edits"}
    decoding = {"beam": 1, "draws": 0}
    rows = told(test=scores | whole, decoding=decoding)
    names = ["accuracy (plug-in, greedy), %", "edit distance, mean", "BLEU (plug-in, greedy)"]
    assert [rows[name] for name in names] == [["74.70"], ["0.73"], ["91.00"]]
    places = [list(rows).index(name) for name in names]
    assert places == sorted(places)
    assert not any("accuracy" in name for name in told(test=scores, decoding=decoding))


@pytest.mark.parametrize("unknown", ["valid", "test"])
def test_a_part_may_have_no_truth_where_the_other_has_one(unknown: str) -> None:
    none = {"truth": None, "truth_elbo": None, "truth_sentences": 0}
    rows = told(**{unknown: FIGURES | none})
    assert rows["true log p(y | x)"] == ["-1.0000"]
    assert rows["truth less bound, of these sentences"] == ["0.2500"]


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("part", ["valid", "test"])
def test_a_table_survives_any_missing_figure(part: str, name: str) -> None:
    without = {key: value for key, value in FIGURES.items() if key != name}
    for figures in (FIGURES | {name: None}, without):
        assert "parameters" in told(**{part: figures})


def test_a_table_survives_a_report_that_has_nothing_but_names() -> None:
    rows = told(
        valid={},
        test={},
        kl_by_site={},
        kl_how={},
        head_divergence=None,
        head_divergence_by_chain={},
        tokens_per_second=None,
    )
    assert rows["bound (ELBO)"] == rows["training, target tokens/s"] == []
    assert rows["parameters"] == ["12,345"]


def test_a_kl_that_is_no_number_leaves_its_chain_out() -> None:
    from latentheads.experiments.cli.tables import site_table

    decoder = {"decoder.1.self.logits": 2.0, "decoder.0.self.logits": 1.0}
    sites = {"encoder.1.self.logits": None, **decoder}
    rows = told(kl_by_site=sites)
    assert rows["decoder-self = 1.0000 + 2.0000"] == ["3.0000"]
    assert not any(name.startswith("encoder-self =") for name in rows)
    how = dict.fromkeys(sites, "tied")
    assert "encoder.1.self.logits" in site_table({"kl_by_site": sites, "kl_how": how})


def test_perplexities_survive_a_bound_that_is_no_number() -> None:
    one = {"mode": "sentences", "iwae_k": 2, "token": dict.fromkeys(("elbo", "iwae", "plug_in"))}
    rows = told(perplexity=[one | {"word": one["token"]}] * 2)
    assert rows["perplexity from the bound"] == []
    assert "true log p(y)" in rows


def test_no_perplexity_by_word_stands_where_nobody_counted_words() -> None:
    one = {"mode": "sentences", "iwae_k": 2, "token": {"elbo": 4.0, "iwae": 3.5, "plug_in": 3.0}}
    rows = told(perplexity=[one | {"word": {}}] * 2)
    assert rows["perplexity from the bound"] == ["4.00", "4.00"]
    assert not any("by word" in name for name in rows)


def test_an_exact_perplexity_stands_in_the_place_of_the_plug_ins_and_of_draws() -> None:
    found = {"exact": 3.0, "elbo": 4.0, "iwae": 3.5, "plug_in": 3.0}
    rows = told(perplexity=[{"mode": "sentences", "iwae_k": 2, "token": found, "word": found}] * 2)
    assert rows["perplexity, exact: all alignments summed"] == ["3.00", "3.00"]
    assert rows["perplexity from the bound"] == ["4.00", "4.00"]
    assert "perplexity of the plug-in network" not in rows
    assert "perplexity from IWAE_2" not in rows


def test_error_rates_have_intervals_where_these_are_known() -> None:
    heard = {
        **{"wer": 25.0, "wer_low": None, "wer_high": None, "wer_signature": "jiwer:w", "words": 4},
        **{"cer": 12.5, "cer_low": 1.5, "cer_high": 20.25, "cer_signature": "jiwer:c"},
        **{"substitutions": 1, "deletions": 0, "insertions": 0, "paper_wer": None},
        **{"sentences_per_second": 3.0},
    }
    rows = told(test=FIGURES | heard, decoding={"draws": 0, "beam": 1})
    assert rows["WER (plug-in, greedy), %"] == ["25.00"]
    names = list(rows)
    assert names.index("95 % interval") == names.index("CER (plug-in, greedy), %") + 1
    assert rows["95 % interval"] == ["1.50 to 20.25"]
    per_word = "bound (ELBO), nats per word of the text"
    assert per_word in rows
    lost = told(test=heard, decoding={"draws": 0, "beam": 1}, missing={"test": "no memory"})
    assert per_word not in lost
    assert lost["WER (plug-in, greedy), %"] == ["25.00"]


def test_the_table_says_which_weights_it_is_of() -> None:
    best, mean = "weights: of update", "weights, mean of 10 checkpoints:"
    assert told(steps=3000, reported_step=250)[best] == ["250 of 3,000"]
    assert told(steps=3000, reported_step=3000, averaged=10)[f"{mean} up to update"] == ["3,000"]
    assert told(steps=9, reported_step=9, averaged=1)[best] == ["9 of 9"]
    assert not any("weights" in row for row in told())


def test_what_is_cut_into_blocks_is_counted_in_blocks() -> None:
    perplexities = dict.fromkeys(("elbo", "iwae", "plug_in"), 2.0)
    text = {"mode": "blocks of 32", "token": perplexities, "word": {}, "iwae_k": 4}
    weights = FIGURES | {"pareto_k": 0.5}
    for found, named in (([text, text], "blocks"), ([], "sentences")):
        rows = told(valid=weights, test=weights, perplexity=found)
        assert rows[f"{named} with Pareto k > 0.7"] == ["50 %", "50 %"]
