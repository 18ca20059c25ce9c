"""Means over seeds, and differences that are paired by seed."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy import stats

from latentheads.metrics.scores import Scores
from latentheads.metrics.seeds import is_of_text, spread, spread_columns, summarise, tabulate
from latentheads.runs.results import Perplexity, Results
from tests.typechecking import unchecked

SEEDS = (0, 1, 2)
PLAIN = {"elbo": [-1.7, -1.5, -1.6], "bleu": [20.0, 24.0, 21.0], "wer": [9.0, 8.0, 7.0]}
OTHER = {"elbo": [-1.5, -1.3, -1.5], "bleu": [23.0, 26.0, 25.0]}


def results(seed: int, test: dict[str, Any], how: str) -> Results:
    site = "decoder.0.self.logits"
    facts = {"kl_how": {site: how}, "parameters": 7, "tokens_per_second": 11.0}
    return Results(seed=seed, test=Scores.of(test), **facts)


def rows(how: str, **figures: list[float]) -> list[dict[str, Any]]:
    """The summary of a network without latents and of another, paired by three seeds."""
    runs = [("plain", results(i, {n: PLAIN[n][i] for n in PLAIN}, "fixed")) for i in SEEDS]
    other = OTHER | figures
    runs += [("other", results(i, {n: other[n][i] for n in other}, how)) for i in reversed(SEEDS)]
    return summarise(tabulate(runs), ["plain", "other"])


def test_a_mean_has_the_interval_of_student() -> None:
    mean, low, high = spread([1.0, 2.0, 6.0])
    ends = stats.t.interval(0.95, 2, loc=3.0, scale=stats.sem([1.0, 2.0, 6.0]))
    assert (mean, low, high) == pytest.approx((3.0, *ends))
    assert spread([5.0]).mean == 5
    assert math.isnan(spread([5.0]).low)


def test_no_seed_has_no_mean() -> None:
    with pytest.raises(ValueError, match="values must be at least one"):
        spread([])


def test_every_figure_that_both_recipes_have_is_paired_by_seed() -> None:
    plain, other = rows("sampled")
    for name, figure in (("difference", "elbo"), ("difference_bleu", "bleu")):
        paired = spread([b - a for a, b in zip(PLAIN[figure], OTHER[figure], strict=True)])
        assert tuple(other[f"{name}{end}"] for end in ("", "_low", "_high")) == paired
        assert plain[name] == 0
    assert "difference_wer" not in other
    assert not any("exact" in name for name in (*plain, *other))


@pytest.mark.parametrize(
    ("name", "values", "ends"),
    [
        ("bleu", [4.0, 15.0], (0, None)),
        ("average_chrf", [4.0, 96.0], (0, 100)),
        ("task korin: accuracy", [85.0, 96.0], (None, 100)),
        ("wer", [4.0, 115.0], (0, None)),  # insertions are errors beyond the words
        ("kl", [0.25, 0.75], (0, None)),
        ("prior_gap", [0.25, 0.75], (0, None)),
        ("gap", [-1e-6, -1e-6 + 1e-9], (None, None)),  # estimated, and never left out
        ("elbo", [-1.0, -0.25], (None, 0)),
        ("exact", [-1.0, -0.25], (None, 0)),
        ("head_divergence self", [0.25, 0.75], (0, None)),
        ("perplexity_exact", [1.5, 4.0], (1, None)),
        ("perplexity of test by blocks: plug_in", [1.5, 4.0], (1, None)),
        ("difference_bleu", [-4.0, 15.0], (None, None)),
        ("difference", [-0.25, 1.5], (None, None)),
    ],
)
def test_the_interval_of_a_mean_ends_with_its_scale(
    name: str, values: list[float], ends: tuple[float | None, float | None]
) -> None:
    mean, *whole = spread(values)
    columns = spread_columns(name, values)
    assert columns[name] == mean
    for suffix, end, uncut in zip(("low", "high"), ends, whole, strict=True):
        assert columns[f"{name}_{suffix}"] == (uncut if end is None else end)
        assert end is None or end != uncut
    assert math.isnan(spread_columns(name, values[:1])[f"{name}_low"])


def one(recipe: str, seed: int, elbo: float) -> tuple[str, Results]:
    ways = [
        Perplexity(mode, "test", 9, 5, {"exact": 2.0}, {"exact": 2.0 - elbo})
        for mode in ("lines", "blocks")
    ]
    test = Scores.of({"elbo": elbo, "prior_gap": 1 + elbo, "iwae": elbo})
    return recipe, Results(seed=seed, test=test, perplexity=ways)


def test_results_are_a_row_each() -> None:
    table = tabulate([one("plain", 3, -1.5), one("other", 3, -1.25)])
    assert list(table.elbo) == list(table.iwae) == [-1.5, -1.25]
    assert list(table.prior_gap) == [-0.5, -0.25]
    assert list(table.seed) == [3, 3]
    for name in ("perplexity_exact", "perplexity of test by lines: exact"):
        assert list(table[name]) == [3.5, 3.25]


def test_a_run_that_has_not_finished_has_no_row() -> None:
    with pytest.raises(ValueError, match=r"^plain: results must be a finished run\.results, got N"):
        unchecked(tabulate)([("plain", None)])


def test_a_mean_over_tasks_may_be_of_a_metric_that_is_not_here_any_more() -> None:
    run = Results(test=Scores.of({"elbo": -1.5}), average=Scores.of({"mine": 0.5}))
    assert list(tabulate([("plain", run)]).average_mine) == [0.5]


def test_a_difference_is_of_the_seeds_that_both_have() -> None:
    ones = [one("plain", 0, -1.5), one("plain", 1, -1.0), one("other", 1, -0.75)]
    plain, other = summarise(tabulate(ones), ["plain", "other"])
    assert (plain["seeds"], other["seeds"], other["difference"]) == (2, 1, 0.25)
    lone = summarise(tabulate([ones[0], ones[2]]), ["plain", "other"])[1]
    assert "difference" not in lone
    assert lone["elbo"] == -0.75


def test_runs_of_a_recipe_that_is_not_summarised_change_no_difference() -> None:
    runs = [(name, results(0, {"bleu": bleu}, "fixed")) for name, bleu in (("a", 9.0), ("b", 11.0))]
    runs.append(("c", results(0, {}, "fixed")))
    for recipes in (["a", "b"], ["a", "b", "c"]):  # c has no BLEU, which is c's lack alone
        assert summarise(tabulate(runs), recipes)[1]["difference_bleu"] == 2
    assert "difference_bleu" not in summarise(tabulate(runs), ["a", "b", "c"])[2]


def test_a_recipe_without_a_run_is_named() -> None:
    with pytest.raises(ValueError, match=r"^recipe must be one of plain; got 'coda'$"):
        summarise(tabulate([one("plain", 0, -1.5)]), ["plain", "coda"])


def test_a_run_counts_once_and_some_are_needed() -> None:
    twice = tabulate([one("plain", 0, -1.5), one("plain", 1, -1.5), one("plain", 0, -1.25)])
    with pytest.raises(ValueError, match="recipe 'plain' has two runs of seed 0: a run counts"):
        summarise(twice, ["plain"])
    with pytest.raises(ValueError, match="runs must be at least one"):
        summarise(tabulate([]), ["plain"])
    with pytest.raises(ValueError, match="recipes must be at least one"):
        summarise(twice[:1], [])
    with pytest.raises(ValueError, match="recipes must be a list, got 'plain'"):
        unchecked(summarise)(twice[:1], "plain")


@pytest.mark.parametrize(
    ("own", "differences"),
    [
        ({}, {"difference", "difference_bleu"}),
        ({"corpus": "mirel"}, set()),
        ({"sentences": 13}, set()),
        ({"truth": -1.25}, set()),
        ({"truth": -1.5000001}, {"difference", "difference_bleu"}),  # of another machine
        ({"tokens": 19}, {"difference_bleu"}),
    ],
)
def test_runs_of_different_texts_have_no_difference(
    own: dict[str, Any], differences: set[str]
) -> None:
    facts = {"corpus": "velu", "sentences": 11, "tokens": 17, "truth": -1.5}
    runs = []
    for recipe, figures in (("plain", facts), ("other", {**facts, **own})):
        test = {name: figures[name] for name in ("sentences", "tokens", "truth")}
        test = Scores.of({"elbo": -2.0, "bleu": 23.0} | test)
        runs.append((recipe, Results(seed=0, test=test, corpus=figures["corpus"])))
    plain, other = summarise(tabulate(runs), ["plain", "other"])
    assert {*other} & {"difference", "difference_bleu"} == differences
    assert is_of_text(plain, other) == (len(differences) == 2)
    assert other["corpus"] == own.get("corpus", "velu")


def test_a_bound_is_exact_where_nothing_is_drawn_and_nowhere_else() -> None:
    plain, other = rows("enumerated", exact=[-1.2, -1.1, -1.3])
    assert plain["exact"] == plain["elbo"]
    assert other["difference_exact"] == pytest.approx(0.4)
    assert other["difference"] == pytest.approx(0.5 / 3)
    runs = [
        ("exact", results(0, {"elbo": -1.5, "exact": -1.25}, "enumerated")),
        ("drawn", results(0, {"elbo": -1.5, "plug_in": -1.0}, "sampled")),
    ]
    _, drawn = summarise(tabulate(runs), ["exact", "drawn"])
    assert "exact" not in drawn
    assert "difference_exact" not in drawn


def test_a_row_without_an_exact_log_p_takes_its_difference_from_no_other() -> None:
    figures = {
        "first": ([-1.5, -1.25], {}, "enumerated"),
        "exact": ([-1.0, -0.5], {}, "enumerated"),
        "drawn": (None, {"iwae": -1.25, "iwae_k": 8}, "sampled"),
    }
    runs = [
        (name, results(i, {"elbo": -2.0} | more | ({"exact": exact[i]} if exact else {}), how))
        for name, (exact, more, how) in figures.items()
        for i in (0, 1)
    ]
    _, exact_row, drawn = summarise(tabulate(runs), [*figures])
    ends = tuple(exact_row[f"difference_exact{end}"] for end in ("", "_low", "_high"))
    assert ends == spread([0.5, 0.75])
    assert not {"difference_exact", "difference_iwae"} & {*drawn}


@pytest.mark.parametrize(
    ("own", "difference"),
    [
        ({"iwae": -1.0, "iwae_k": 8}, 0.25),
        ({"iwae": -1.0, "iwae_k": 4}, None),
        ({"exact": -1}, None),
    ],
)
def test_iwae_is_compared_with_iwae_of_as_many_samples(
    own: dict[str, float], difference: float | None
) -> None:
    first = {"elbo": -2.0, "iwae": -1.25, "iwae_k": 8}
    runs = [
        ("first", results(0, first, "sampled")),
        ("other", results(0, {"elbo": -1.5} | own, "fixed" if "exact" in own else "sampled")),
    ]
    _, other = summarise(tabulate(runs), ["first", "other"])
    assert other.get("difference_iwae") == difference


def test_a_network_without_noise_has_the_columns_of_one_with_noise_beside_it() -> None:
    still = {"elbo": -1.5, "iwae": -1.5, "plug_in": -1.5, "exact": -1.5}
    runs = [
        ("still", results(0, still, "fixed")),
        ("drawn", results(0, {"elbo": -1.5, "iwae": -1.25, "plug_in": -1.0}, "sampled")),
    ]
    first, _ = tabulate(runs).to_dict("records")
    assert (first["exact"], first["iwae"], first["plug_in"]) == (-1.5, -1.5, -1.5)
    (alone,) = tabulate(runs[:1]).to_dict("records")
    assert alone["exact"] == -1.5
    assert not {"iwae", "plug_in"} & {*alone}
