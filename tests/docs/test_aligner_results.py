"""The figures of word alignment are those of the results of its study."""

from __future__ import annotations

import json
from statistics import mean
from typing import Any

import pytest

from tests.docs.pages import RESULTS, ROOT, Page, rows_of

FOLDER = RESULTS / "hansards"
PAGES = [Page(FOLDER / "README.md"), Page(ROOT / "docs" / "align.md")]
COLUMNS = ("forward", "backward", "intersection", "grow-diag-final-and", "product 0.4")
SAMPLES = range(3)
OTHERS = {
    "eflomal": "eflomal",
    "fast_align of sil-thot": "fast_align",
    "HMM of sil-thot": "hmm",
    "HMM of sil-thot (variational Bayes)": "hmm+vb",
    "IBM 4 of sil-thot": "ibm4",
    "IBM 4 of sil-thot (variational Bayes)": "ibm4+vb",
}


def results(name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return record


def own(size: int = 50_000, samples: range = SAMPLES) -> list[dict[str, Any]]:
    return [results(f"aligner-{size}-{sample}")["latentheads"] for sample in samples]


def section(page: Page, heading: str) -> list[list[str]]:
    (actual,) = [part for part in page.sections if part.startswith(f"## {heading}")]
    return rows_of(actual)


def percent(values: list[float]) -> str:
    return f"{100 * mean(values):.1f}"


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_error_rates_are_means_over_samples(page: Page) -> None:
    rows = {row[0].strip("*`"): row[1:] for row in section(page, "Error rates")}
    for name, cells in rows.items():
        stem, _, size = name.partition(", ")
        pairs = int(size.split(" ")[0].replace(",", ""))
        if stem.startswith("align.py"):
            systems = own(pairs, SAMPLES if pairs == 50_000 else range(1))
        else:
            key = OTHERS[stem]
            systems = [results(f"rival-{pairs}-0-{key}")[key]]
        scores = [system["scores"]["test"] for system in systems]
        expected = [
            percent([score[column]["aer"] for score in scores]) if column in scores[0] else ""
            for column in COLUMNS
        ]
        seconds = f"{mean(system['cpu_seconds'] for system in systems):.0f}"
        assert [cell.strip("*") for cell in cells] == [*expected, seconds], name


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_gaps_and_error_rates_of_guides_are_means_over_samples(page: Page) -> None:
    rows = {row[0].strip("*`"): row[-2:] for row in section(page, "Guides")}
    guides = [system["guides"] for system in own()]
    assert list(rows) == list(guides[0])
    for name, cells in rows.items():
        gap = f"{mean(guide[name]['gap'] for guide in guides):.3f}".removeprefix("0")
        aer = percent([guide[name]["aer"]["product 0.4"] for guide in guides])
        assert cells == [gap, aer], name


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_calibration_is_a_mean_over_samples(page: Page) -> None:
    rows = {row[0]: row[1:] for row in section(page, "Calibration")}
    before = [system["calibration"]["test"] for system in own()]
    after = [system["scaled_on_trial"] for system in own()]
    for name, systems in (("as they are", before), ("scaled on trial", after)):
        expected = [
            f"{mean(system['possible']['ece'] for system in systems):.3f}".removeprefix("0"),
            *(
                f"{mean(system[f'brier_of_{kind}_links'] for system in systems):.4f}"[1:]
                for kind in ("possible", "sure")
            ),
        ]
        assert rows[name] == expected, name


def test_scaling_helps_possible_links_and_not_sure_ones_in_every_sample() -> None:
    for system in own():
        before, after = system["calibration"]["test"], system["scaled_on_trial"]
        assert after["brier_of_possible_links"] < before["brier_of_possible_links"]
        assert after["brier_of_sure_links"] > before["brier_of_sure_links"]


def test_precision_by_share_is_a_mean_over_samples() -> None:
    (row,) = section(PAGES[0], "Precision")
    shares = [system["calibration"]["test"]["precision_by_share"] for system in own()]
    expected = [percent([share[key] for share in shares]) for key in ("0.5", "0.7", "0.9", "1.0")]
    assert row[1:] == expected


def signed(value: float) -> str:
    """With its sign, but for zero, and without a zero before the point."""
    sign = "+" if value > 0 else "\N{MINUS SIGN}" if value < 0 else ""
    return sign + f"{abs(value):.2f}".removeprefix("0")


@pytest.mark.parametrize("page", PAGES[1:], ids=str)
def test_ablations_are_those_of_the_study(page: Page) -> None:
    rows = {row[0].replace("`", ""): row[1:] for row in section(page, "What each part")}
    measured = results("ablations")["ablations"]
    assert list(rows) == list(measured)
    for name, cells in rows.items():
        expected = []
        for score in measured[name].values():
            difference, low, high = score["difference"]
            interval = f"{signed(difference)} [{signed(low)}, {signed(high)}]"
            interval += ", not significant" if low <= 0 <= high else ""
            expected += [f"{score['aer']:.2f}", "" if name == "the aligner" else interval]
        assert cells == expected, name


def test_the_changes_that_the_page_names_are_those_that_are_significant() -> None:
    significant = {
        method: {
            name for name, row in results("ablations")["ablations"].items() if raises(row[method])
        }
        for method in ("product", "grow-diag-final-and")
    }
    always = {"jumps independent of the word", "start: uniform translations"}
    assert significant["product"] == always
    assert significant["grow-diag-final-and"] == always | {
        "each direction alone: agreement 0",
        "start: IBM model 1",
        "mean of the Dirichlet, not its variational posterior",
    }


def raises(score: dict[str, Any]) -> bool:
    """Whether a change raises the error rate significantly."""
    return bool(score["difference"][1] > 0)


def test_the_error_rate_is_lower_than_that_of_others_in_every_column() -> None:
    rows = {row[0].replace("`", ""): row[1:-1] for row in section(PAGES[1], "Error rates")}
    for name, cells in rows.items():
        ours = rows[f"align.py, {name.partition(', ')[2]}"]
        pairs = [(float(x), float(y)) for x, y in zip(ours, cells, strict=True) if y]
        assert name.startswith("align.py") or all(x < y for x, y in pairs), name


@pytest.mark.parametrize("page", PAGES[1:], ids=str)
def test_agreement_is_that_of_the_study(page: Page) -> None:
    systems = [
        f"{name}, {kind}"
        for name, kinds in (
            ("align.py", ("product", "grow-diag-final-and")),
            ("eflomal", ("intersection", "grow-diag-final-and")),
        )
        for kind in kinds
    ]
    for text, *cells in section(page, "Without manual links"):
        measured = results(f"agreement-{text.lower()}")["agreement"]
        linked = [percent([measured[name]["identical_linked"]]) for name in systems]
        f1 = percent([measured["f1"][f"{systems[0]} / {systems[2]}"]])
        assert cells == [f"{measured['pairs']:,}", f1, *linked], text


def test_speed_is_that_of_the_study() -> None:
    speed = results("speed")["speed"]
    for name, *cells in section(PAGES[0], "Speed"):
        row = speed[name.replace("`align.py`, ", "")]
        median, least, most = row["cpu_seconds"]
        expected = [f"{row['pairs']:,}", f"{median:.1f} [{least:.1f}, {most:.1f}]"]
        assert cells == [*expected, f"{row['pairs_per_cpu_second']:,.0f}"], name
    rates = [speed[name]["pairs_per_cpu_second"] for name in ("training", "aligning new lines")]
    ratio = f"{speed['ratio_to_eflomal'][0]:.2f}".removeprefix("0")
    for words in [f"{rate:,.0f} pairs" for rate in rates] + [f"{ratio} times"]:
        assert words in PAGES[1].text
