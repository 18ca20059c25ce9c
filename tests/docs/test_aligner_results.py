"""The figures of word alignment are those of the results of its study."""

from __future__ import annotations

import json
from statistics import mean
from typing import Any

import pytest

from tests.docs.pages import RESULTS, ROOT, Page, rows_of

FOLDER = RESULTS / "hansards"
STUDY, MANUAL = Page(FOLDER / "README.md"), Page(ROOT / "docs" / "align.md")
COLUMNS = (
    *("forward", "backward", "intersection", "grow-diag-final-and"),
    *("grow", "product 0.4"),
)
SAMPLES = {5_000: 1, 50_000: 3, 300_000: 1, 1_130_104: 1}
"""Samples of training pairs of the aligner, by their number."""

TEXTS = {
    "English-Swedish": ("en-sv-0", "en-sv-3843"),
    "English-Romanian": ("en-ro-0", "en-ro-4553"),
    "Hansards, test": ("hansards-5000", "hansards-50000", "hansards-300000"),
}
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


def own(size: int = 50_000) -> list[dict[str, Any]]:
    names = [f"aligner-{size}-{sample}" for sample in range(SAMPLES[size])]
    return [results(name)["latentheads"] for name in names]


def of_eflomal(pairs: int) -> float:
    """CPU seconds."""
    return float(results(f"rival-{pairs}-0-eflomal")["eflomal"]["cpu_seconds"])


def section(page: Page, heading: str) -> list[list[str]]:
    (actual,) = [part for part in page.sections if part.startswith(f"## {heading}")]
    return rows_of(actual)


def percent(values: list[float]) -> str:
    return f"{100 * mean(values):.1f}"


def test_error_rates_are_those_of_the_studies() -> None:
    rows = {row[0].strip("*`"): row[1:] for row in section(STUDY, "Error rates")}
    for name, cells in rows.items():
        stem, _, size = name.partition(", ")
        pairs = int(size.split(" ")[0].replace(",", ""))
        if stem.startswith("align.py"):
            systems = own(pairs)
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


def test_seconds_and_memory_of_large_texts_are_those_of_the_studies() -> None:
    speed, (large,), (largest,) = results("speed")["speed"], own(300_000), own(1_130_104)
    seconds = [speed[name]["cpu_seconds"][0] for name in ("training", "aligning", "eflomal")]
    ratio = f"{speed['ratio_to_eflomal'][0]:.2f}".removeprefix("0")
    small = f"{own(5_000)[0]['peak_rss_gb']:.1f}".removeprefix("0")
    assert f"takes {ratio} times the CPU seconds of eflomal" in " ".join(MANUAL.text.split())
    assert section(MANUAL, "Time and memory") == [
        ["5,000", "", "", f"{small} GB"],
        ["50,000", f"{sum(seconds[:2]):.0f}", f"{seconds[2]:.0f}", ""],
        [
            "300,000",
            f"{large['cpu_seconds']:.0f}",
            f"{of_eflomal(300_000):.0f}",
            f"{large['peak_rss_gb']:.1f} GB",
        ],
        [
            "1,130,104",
            f"{largest['cpu_seconds']:,.0f}",
            f"{of_eflomal(1_130_104):.0f}",
            f"{largest['peak_rss_gb']:.2f} GB",
        ],
    ]


@pytest.mark.parametrize("page", [STUDY, MANUAL], ids=str)
def test_gaps_and_error_rates_of_guides_are_means_over_samples(page: Page) -> None:
    rows = {row[0].strip("*`"): row[-2:] for row in section(page, "Guides")}
    guides = [system["guides"] for system in own()]
    assert list(rows) == list(guides[0])
    for name, cells in rows.items():
        gap = f"{mean(guide[name]['gap'] for guide in guides):.3f}".removeprefix("0")
        aer = percent([guide[name]["aer"]["product 0.4"] for guide in guides])
        assert cells == [gap, aer], name


def test_calibration_is_a_mean_over_samples() -> None:
    rows = {row[0]: row[1:] for row in section(STUDY, "Calibration")}
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
    (row,) = section(STUDY, "Precision")
    shares = [system["calibration"]["test"]["precision_by_share"] for system in own()]
    expected = [percent([share[key] for share in shares]) for key in ("0.5", "0.7", "0.9", "1.0")]
    assert row[1:] == expected


def test_sure_words_and_links_are_those_of_the_study() -> None:
    measured = [results(f"nulls-{name}") for name in ("en-sv-3843", "en-ro-4553", "hansards-5000")]
    columns = ("null_source", "null_target", "forward", "backward", "product")
    rows = section(STUDY, "Sure words")
    on_the_page = [row[1:] for row in section(MANUAL, "Calibration")]
    for record, row, cells in zip(measured, rows, on_the_page, strict=True):
        shares = ["{} [{}, {}]".format(*record[name]["right"]) for name in columns]
        means = [f"{record[name]['mean']:.3f}".removeprefix("0") for name in columns]
        numbers = [f"{record[name]['number']:,}" for name in columns]
        assert row[0].endswith(f"{record['pairs']:,} pairs")
        assert row[1:] == [
            f"{number}: {mean} \N{RIGHTWARDS ARROW} {share}"
            for number, mean, share in zip(numbers, means, shares, strict=True)
        ]
        assert cells == shares[:2]
        assert [float(mean[:4]) for mean in means] == pytest.approx(
            [0.97] * 2 + [0.99] * 3, abs=0.011
        )
    ranges = [
        [min(shares), max(shares)]
        for names in (("product",), ("forward", "backward"))
        for shares in [[record[name]["right"][0] for record in measured for name in names]]
    ]
    text = " ".join(MANUAL.text.split())
    joined, single = ("{} to {} %".format(*ends) for ends in ranges)
    assert f"{joined} are right; of one direction alone (`forward`, `backward`) {single}" in text


def signed(value: float) -> str:
    """With its sign, but for zero, and without a zero before the point."""
    sign = "+" if value > 0 else "\N{MINUS SIGN}" if value < 0 else ""
    return sign + f"{abs(value):.2f}".removeprefix("0")


def difference_of(score: dict[str, Any]) -> str:
    difference, low, high = score["difference"]
    interval = f"{signed(difference)} [{signed(low)}, {signed(high)}]"
    return interval + (", not significant" if low <= 0 <= high else "")


def test_ablations_are_those_of_the_study() -> None:
    rows = {row[0].replace("`", ""): row[1:] for row in section(STUDY, "What each part")}
    measured = results("ablations-en-ro")["ablations"]
    assert list(rows) == list(measured)
    for name, cells in rows.items():
        expected = []
        for score in (measured[name][method] for method in ("product", "grow-diag-final-and")):
            difference = "" if name == "the aligner" else difference_of(score)
            expected += [f"{score['aer']:.2f}", difference]
        assert cells == expected, name


def test_the_changes_that_the_page_names_are_those_that_are_significant() -> None:
    differences = {
        name: row["product"]["difference"]
        for name, row in results("ablations-en-ro")["ablations"].items()
    }
    raising = {name for name, (_, low, _) in differences.items() if low > 0}
    assert raising == {
        "each direction alone: agreement 0",
        "product of posteriors, without the square root",
        "no line left out",
        "lines left out in the last E step alone",
        "no back-off to prefixes",
        "prefix classes of concentration 5",
        "null of concentration 1,000",
        "no prior for words spelt alike",
        "jumps independent of the word",
    }
    lowering = {name for name, (*_, high) in differences.items() if high < 0}
    assert lowering == {"start: uniform translations", "posteriors made to agree after training"}


def standings() -> list[tuple[str, dict[str, Any]]]:
    return [
        (text, results(f"standing-{name}")["standing"])
        for text, names in TEXTS.items()
        for name in names
    ]


OTHER_EFLOMALS = ("eflomal", "eflomal of sil-thot")


def best_of(system: str, scores: dict[str, Any]) -> dict[str, Any]:
    kinds = [score for name, score in scores.items() if name.startswith(f"{system}, ")]
    assert len(kinds) == 4
    best: dict[str, Any] = min(kinds, key=lambda score: float(score["aer"]))
    return best


def test_differences_to_others_are_those_of_the_study() -> None:
    expected = []
    for text, standing in standings():
        scores = standing["aer"]
        others = [scores[f"latentheads, {kind}"] for kind in ("grow", "grow-diag-final-and")]
        others += [best_of(system, scores) for system in OTHER_EFLOMALS]
        first = f"{scores['latentheads, product']['aer']:.2f}"
        ece = f"{standing['ece']:.3f}".removeprefix("0")
        expected.append([text, f"{standing['pairs']:,}", first, *map(difference_of, others), ece])
    assert section(MANUAL, "Error rates") == expected


def test_the_best_of_others_is_significantly_worse_on_each_text() -> None:
    for text, standing in standings():
        bests = [best_of(system, standing["aer"]) for system in OTHER_EFLOMALS]
        assert all(best["difference"][1] > 0 for best in bests), text


def test_the_error_rate_is_lower_than_that_of_others_in_every_column() -> None:
    rows = {row[0].replace("`", ""): row[1:-1] for row in section(STUDY, "Error rates")}
    for name, cells in rows.items():
        ours = rows[f"align.py, {name.partition(', ')[2]}"]
        pairs = [(float(x), float(y)) for x, y in zip(ours, cells, strict=True) if y]
        assert name.startswith("align.py") or all(x < y for x, y in pairs), name


def test_agreement_is_that_of_the_study() -> None:
    systems = [
        f"{name}, {kind}"
        for name, kinds in (
            ("align.py", ("product", "grow-diag-final-and")),
            ("eflomal", ("intersection", "grow-diag-final-and")),
        )
        for kind in kinds
    ]
    for text, *cells in section(STUDY, "Without manual links"):
        measured = results(f"agreement-{text.lower()}")["agreement"]
        linked = [percent([measured[name]["identical_linked"]]) for name in systems]
        f1 = percent([measured["f1"][f"{systems[0]} / {systems[2]}"]])
        assert cells == [f"{measured['pairs']:,}", f1, *linked], text


def test_speed_is_that_of_the_study() -> None:
    speed = results("speed")["speed"]
    for name, *cells in section(STUDY, "Speed"):
        row = speed[name.replace("`align.py`, ", "")]
        median, least, most = row["cpu_seconds"]
        expected = [f"{row['pairs']:,}", f"{median:.1f} [{least:.1f}, {most:.1f}]"]
        assert cells == [*expected, f"{row['pairs_per_cpu_second']:,.0f}"], name


SPANS = {"English-Swedish": "en-sv-0", "English-Romanian": "en-ro-0", "Hansards": "hansards-5000"}


def test_what_two_processes_take_is_that_of_the_study() -> None:
    timed = results("workers-50000")["workers"]
    least, middle, most = sorted(timed["wall_ratio"])
    one, two = (sum(timed[f"workers {n}"]["cpu_seconds"]) for n in (1, 2))
    (text,) = [part for part in STUDY.sections if part.startswith("## Speed")]
    assert f"{timed['workers 1']['pairs']:,} pairs took {middle:.2f}".replace("0.", ".") in text
    assert f"[{least:.2f}, {most:.2f}]".replace("0.", ".") in text
    assert f"and {two / one:.2f} times its processor time" in text
    assert f"of {timed['lines_with_other_links']} line were" in text
    assert f"took {middle:.2f} of it".replace("0.", ".") in " ".join(MANUAL.text.split())


def test_right_spans_are_those_of_the_study() -> None:
    expected = []
    for text, name in SPANS.items():
        record = results(f"spans-{name}")["spans"]
        right = [
            f"{value:.1f} [{low:.1f}, {high:.1f}]"
            for value, low, high in record["by probability"]["right"].values()
        ]
        expected.append([f"{text}, {record['spans']:,} spans", *right])
        for other in ("by the least link", "eflomal"):
            differences = record[other]["difference"].values()
            cells = [
                difference_of({"difference": d}) if any(d) else "the same" for d in differences
            ]
            assert other != "eflomal" or all(low > 0 for _, low, _ in differences)
            expected.append([f"{text}, difference to {other.removeprefix('by ')}", *cells])
    assert section(STUDY, "Spans") == expected


CHANGES = ("start: uniform translations", "posteriors made to agree after training")
TRIED = {
    "English-Swedish, 1,157 test pairs": "en-sv-0",
    "English-Romanian, 447 test pairs": "en-ro",
    "English-Romanian, 447 test pairs, and 4,553 more": "en-ro-4553",
    "Hansards, 37 trial pairs, 5,000 more": "hansards-5000",
    "Hansards, 37 trial pairs, 50,000 more": "hansards-50000",
}


def test_changes_on_other_texts_are_those_of_the_study() -> None:
    expected = []
    for text, name in TRIED.items():
        measured = results(f"ablations-{name}")["ablations"]
        methods = ("product", "grow")
        rows = [[measured[change].get(method) for method in methods] for change in CHANGES]
        expected.append([text, *(difference_of(x) if x else "" for row in rows for x in row)])
    assert section(STUDY, "Tried on other texts") == expected
