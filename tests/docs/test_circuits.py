"""The tables of the page on circuits are those of its results."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch

from latentheads.metrics.seeds import spread
from tests.docs.pages import ROOT

RESULTS = ROOT / "experiments" / "results" / "circuits"
PAGE = RESULTS / "README.md"
PENALTY = 0.003


@cache
def read(name: str) -> Any:
    """A part of the report."""
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))[name]


def bounds(values: Sequence[float], places: int = 3) -> str:
    """A mean and its interval."""
    mean, low, high = (f"{value:.{places}f}" for value in values)
    return f"{mean} [{low}, {high}]"


def difference(values: Sequence[float], places: int = 3) -> str:
    """A mean and its interval, and whether this holds 0."""
    holds_0 = values[1] <= 0 <= values[2] and any(values)
    return bounds(values, places) + " n.s." * holds_0


def heads_lines() -> list[str]:
    """Heads with a probability of .2 or more, and those that fresh prompts need."""
    lines = []
    for row in read("inclusion"):
        if row["penalty"] != PENALTY or row["intervention"] != "counterfactual":
            continue
        columns = zip(row["labels"], row["inclusion"], row["low"], row["high"], strict=True)
        heads = [f"{label} {bounds(x, 2)}" for label, *x in columns if x[0] >= 0.2]
        needed = [label for label, x in zip(row["labels"], row["needed"], strict=True) if x]
        lines.append(
            f"| {row['task']} | {row['layer']} | {', '.join(heads)} | {', '.join(needed)} |"
        )
    return lines


def intervention_lines() -> list[str]:
    """Probabilities of layers with several interventions."""
    window = json.loads((RESULTS / "inclusion-window.json").read_text("utf-8"))["inclusion"]
    rows = [row for row in [*read("inclusion"), *window] if row["penalty"] == PENALTY]
    rows.sort(key=lambda row: (row["task"], row["layer"]))
    several = {
        (row["task"], row["layer"]) for row in rows if row["intervention"] != "counterfactual"
    }
    lines = []
    for row in rows:
        if (row["task"], row["layer"]) in several:
            cells = " | ".join(f"{x:.2f}" for x in row["inclusion"])
            lines.append(f"| {row['task']} {row['layer']} | {row['intervention']} | {cells} |")
    return lines


def calibration_lines() -> list[str]:
    """How often heads of stated probability are needed by fresh prompts."""
    lines = []
    for row in read("calibration"):
        bins = {b["from"]: b for b in row["bins"]}
        shares = [
            f"{b['probability']:.2f}: {bounds([b['share'], b['low'], b['high']], 2)}"
            if (b := bins.get(low))
            else "none"
            for low in (0, 0.9)
        ]
        cells = [
            f"{row['calibration_error']:.3f}",
            bounds(row["log_score"], 2),
            difference(row["less_given_prompts"], 2),
            *shares,
        ]
        lines.append(f"| {row['penalty']:g} | {row['tau']} | {' | '.join(cells)} |")
    return lines


def stability_lines() -> list[str]:
    """Overlap, size and loss of sets of equal faithfulness."""
    summary = read("stability")["summary"]
    lines = []
    for method, overlap in summary["jaccard"].items():
        cells = [
            bounds(overlap["mean"], 2),
            difference(overlap["less_posterior"], 2),
            f"{summary['size'][method]['mean'][0]:.1f}",
            bounds(summary["fresh_loss"][method]["mean"], 2),
        ]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return lines


def interaction_lines() -> list[str]:
    """Sums of interactions of order 3, and how many differ from 0."""
    lines = []
    for row in read("interactions"):
        if row["order"] == 3 and row["context"] == "whole":
            signs = f"{row['significantly_negative']} | {row['significantly_positive']}"
            where = f"{row['task']} | {row['layer']} | {row['value']}"
            lines.append(f"| {where} | {difference(row['sum'])} | {signs} |")
    return lines


def pair_lines() -> list[str]:
    """The largest interaction of two heads of each layer."""
    lines = []
    for row in read("interactions"):
        if row["order"] == 2 and row["context"] == "whole" and row["value"] == "divergence":
            pair = row["largest"][0]
            size = difference([pair["mean"], pair["low"], pair["high"]])
            lines.append(f"| {row['task']} | {' '.join(pair['heads'])} | {size} |")
    return lines


def bound_lines() -> list[str]:
    """Exact gaps of guides, and errors of samplers."""
    lines = []
    for row in read("bounds"):
        if row["intervention"] == "counterfactual":
            cells = [
                f"{row['log_evidence']:.3f}",
                f"{row['mean-field']['gap']:.4f}",
                f"{row['autoregressive']['gap']:.4f}",
                f"{row['gibbs']['largest_error']:.3f}",
                f"{row['smc']['largest_error']:.3f}",
                f"{row['smc']['log_evidence_error']:.3f}",
            ]
            lines.append(f"| {row['task']} | {row['layer']} | {' | '.join(cells)} |")
    return lines


def joint_lines() -> list[str]:
    """Evidence and bounds of 27 heads, and what is left between them."""
    (joint,) = read("joint")
    evidence = spread([run["log_evidence"] for run in joint["smc"]["runs"]])
    scored = joint["scored"]["log_evidence"]
    lines = [
        f"| sequential Monte Carlo | {bounds(evidence)} |  |  |",
        f"| all {joint['scored']['subsets']:,} scored subsets | {scored:.3f} |  |  |",
    ]
    for name, row in joint["guides"].items():
        half = 1.96 * row["elbo_error"]
        elbo = [row["elbo"], row["elbo"] - half, row["elbo"] + half]
        gap, error = evidence[0] - elbo[0], math.hypot(half, evidence[0] - evidence[1])
        cells = [bounds(elbo), difference([gap, gap - error, gap + error])]
        lines.append(f"| {name} | {' | '.join(cells)} | {scored - elbo[0]:.3f} |")
    return lines


def joint_heads_lines() -> list[str]:
    """Heads of 27 that are neither in nor out."""
    (joint,) = read("joint")
    runs = torch.tensor([run["inclusion"] for run in joint["smc"]["runs"]])
    columns = [joint["layers_alone"], joint["scored"]["inclusion"]]
    columns += [joint["gibbs"][start]["inclusion"] for start in ("all heads", "random")]
    columns += [guide["inclusion"] for guide in joint["guides"].values()]
    lines = []
    for head, label in enumerate(joint["labels"]):
        values = runs[:, head]
        if 0.1 < values.mean() < 0.9:
            smc = bounds([float(x) for x in (values.mean(), values.min(), values.max())], 2)
            alone, *others = (f"{column[head]:.2f}" for column in columns)
            lines.append(f"| {label} | {alone} | {smc} | {' | '.join(others)} |")
    return lines


def planted_lines() -> list[str]:
    """Recovery of planted heads, and gaps of guides of two layers."""
    planted = read("planted")
    lines = [
        f"| planted heads with P above 1/2 | {bounds(planted['kept_above_half'], 2)} |",
        f"| other heads with P below 1/2 | {bounds(planted['off_below_half'], 2)} |",
    ]
    for name, (area, low, high) in planted["area"].items():
        text = f"{area:.2f} in each" if low == high else bounds([area, low, high], 2)
        lines.append(f"| area under the curve, {name} | {text} |")
    for name, gap in planted["gap"].items():
        lines.append(f"| exact gap, {name} | {bounds(gap, 5)} |")
    return lines


def few_prompts_lines() -> list[str]:
    """How often confident probabilities are right, by the number of prompts."""

    def cells(row: dict[str, Any]) -> str:
        share = bounds([row["share"], *row["interval"]], 2)
        return f"{row['confident_heads']} | {row['probability']:.2f} | {share} |"

    return [
        f"| {row['prompts']} | {row['unidentified']} of {row['posteriors']} | {cells(row)} "
        f"{cells(row['at_tau_1'])}"
        for row in read("few-prompts")
    ]


def no_effect_lines() -> list[str]:
    """How many heads without an effect have a probability near 0 or 1."""

    def cells(row: dict[str, Any], heads: int) -> str:
        number = row["confident_heads"]
        return f"{number} of {heads} | {bounds([number / heads, *row['interval']], 2)} |"

    return [
        f"| {row['prompts']} | {cells(row['calibrated'], row['heads'])} "
        f"{cells(row['at_tau_1'], row['heads'])}"
        for row in read("no-effect")
    ]


def shared_texts_lines() -> list[str]:
    """Probabilities and intervals of prompts that share texts, and of means over each text."""

    def cells(row: dict[str, Any]) -> str:
        share = bounds([row["share"], *row["interval"]], 2)
        covered = bounds([row["covered"], *row["covered_interval"]], 2)
        return f"{row['confident_heads']} | {row['probability']:.2f} | {share} | {covered} |"

    return [
        f"| {row['prompts']} | {row['texts']} | {row['shared']:g} | {cells(row['each_prompt'])} "
        f"{cells(row['means'])}"
        for row in read("shared-texts")
    ]


TABLES: dict[str, Callable[[], list[str]]] = {
    "heads": heads_lines,
    "interventions": intervention_lines,
    "calibration": calibration_lines,
    "stability": stability_lines,
    "interactions": interaction_lines,
    "pairs": pair_lines,
    "bounds": bound_lines,
    "joint": joint_lines,
    "joint-heads": joint_heads_lines,
    "planted": planted_lines,
    "few-prompts": few_prompts_lines,
    "no-effect": no_effect_lines,
    "shared-texts": shared_texts_lines,
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_that_of_the_results(name: str) -> None:
    expected = TABLES[name]()
    page = PAGE.read_text("utf-8").replace("\N{MINUS SIGN}", "-").splitlines()
    assert len(expected) > 1
    missing = [line for line in expected if line not in page]
    assert not missing
    assert sum(line.startswith("| ") for line in page) >= len(expected)


def test_every_part_names_its_command_and_revision() -> None:
    for path in RESULTS.glob("*.json"):
        record = json.loads(path.read_text("utf-8"))
        assert record["command"].startswith("head_circuits.py ")
        assert record["revision"]


def test_few_prompts_are_those_of_the_results() -> None:
    manual = " ".join((ROOT / "docs" / "circuits.md").read_text("utf-8").split())
    by_prompts = {row["prompts"]: row for row in read("few-prompts")}
    for prompts, text in (
        (4, "in {share:.0f} % of decisions [{low:.0f}, {high:.0f}] with 4 prompts"),
        (16, "in {share:.0f} % [{low:.0f}, {high:.0f}] with 16"),
        (32, "in {share:.0f} % [{low:.0f}, {high:.0f}] with 32"),
    ):
        row = by_prompts[prompts]
        share, low, high = (100 * x for x in (row["share"], *row["interval"]))
        assert text.format(share=share, low=low, high=high) in manual


def test_prompts_that_share_texts_are_those_of_the_results() -> None:
    manual = " ".join((ROOT / "docs" / "circuits.md").read_text("utf-8").split())
    rows = {(row["prompts"], row["shared"]): row for row in read("shared-texts")}
    for key, name, text in (
        ((200, 0.3), "each_prompt", "right in {0}, and 95 % intervals hold P in {1}"),
        ((200, 1.0), "each_prompt", "In ten copies of each of 20 prompts it is {0} and {1}."),
        ((200, 0.3), "means", "Then it is {0} and {1}."),
    ):
        row = rows[key][name]
        shares = [row["share"], *row["interval"]], [row["covered"], *row["covered_interval"]]
        shown = ["{:.0f} % [{:.0f}, {:.0f}]".format(*(100 * x for x in share)) for share in shares]
        assert text.format(*shown) in manual
    (row,) = (row for row in read("no-effect") if row["prompts"] == 16)
    for name, text in (("calibrated", "16 prompts {0} have"), ("at_tau_1", "τ is 1, it is {0}.")):
        number, interval = row[name]["confident_heads"], row[name]["interval"]
        share, low, high = (100 * x for x in (number / row["heads"], *interval))
        shown = f"{number} of {row['heads']} ({share:.0f} % [{low:.0f}, {high:.0f}])"
        assert text.format(shown) in manual


def test_a_calibrated_posterior_of_sentences_is_that_of_the_results() -> None:
    manual = " ".join((ROOT / "docs" / "bernoulli-heads.md").read_text("utf-8").split())
    (row,) = (row for row in read("few-prompts") if row["prompts"] == 200)
    for part, text in (
        (row, "this is right of {share}, where P, or 1 \N{MINUS SIGN} P, is {p} on average"),
        (row["at_tau_1"], "with τ = 1 of {share}, where it is {p} "),
    ):
        share, low, high = (f"{100 * x:.0f}" for x in (part["share"], *part["interval"]))
        share = f"{share} % [{low}, {high}] of {part['confident_heads']} heads"
        p = f"{part['probability']:.2f}".removeprefix("0")
        assert text.format(share=share, p=p) in manual


def test_the_number_of_heads_that_are_needed_is_that_of_the_results() -> None:
    layers = [
        row["needed"]
        for row in read("inclusion")
        if row["penalty"] == PENALTY and row["intervention"] == "counterfactual"
    ]
    counts = [round(sum(needed)) for needed in layers]
    assert (sum(counts), sum(map(len, layers)), max(counts)) == (22, 54, 8)
    manual = " ".join((ROOT / "docs" / "circuits.md").read_text("utf-8").split())
    assert "Fresh prompts need 22 of the 54 heads, eight of them in one layer of nine." in manual
