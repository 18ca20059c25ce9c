"""The figures of a table are those of the results that its section links to."""

from __future__ import annotations

import csv
import json
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest
import yaml

from latentheads.metrics.seeds import spread
from tests.docs.pages import HEADING, README, RESULTS, ROOT, Page, among, numbers, rows_of, slug

ALIGNMENTS = ROOT / "docs" / "alignments.md"
STUDY = re.compile(r"experiments/results/([\w-]+)/README\.md")
LINKED = re.compile(r"\]\(\.\./experiments/results/([\w-]+)/README\.md(?:#([\w-]+))?\)")
QUESTIONS = Page(ROOT / "docs" / "results.md")
PAPERS = Page(ROOT / "docs" / "papers.md")


def label(cell: str) -> str:
    """What a row is of: its first cell, up to a comma."""
    return re.sub(r"[`*]", "", cell).split(",")[0].strip()


@cache
def known(study: str) -> tuple[list[list[float]], dict[str, list[float]]]:
    """The figures of every row of a study's tables, and those of all rows of a label together."""
    rows = rows_of((RESULTS / study / "README.md").read_text(encoding="utf-8"))
    for path in sorted((RESULTS / study).glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            rows += list(csv.reader(file))
    computed_figures, labelled = [], defaultdict(list)
    for row in rows:
        figures = [float(text) for cell in row for text in numbers(cell)]
        computed_figures.append(figures)
        labelled[label(row[0])] += figures
    return computed_figures, labelled


def alternatives(row: list[str]) -> list[list[str]]:
    """The rows that a row of the form "seed 0 / seed 1" is made of."""
    cells = [cell.split(" / ") for cell in row[1:]]
    return [[cell[min(i, len(cell) - 1)] for cell in cells] for i in range(max(map(len, cells)))]


def is_made_of(row: list[str], study: str) -> bool:
    """Whether a study has the figures of a row side by side, or under the row's label."""
    rows, labelled = known(study)
    return all(
        any(
            all(among(text, figures) for cell in part for text in numbers(cell))
            for figures in [labelled[label(row[0])], *rows]
        )
        for part in alternatives(row)
    )


SECTIONS = {
    section.splitlines()[0]: section
    for section in README.sections
    if any(map(numbers, chain.from_iterable(rows_of(section))))
}
"""Sections of the first page with tables of figures, by their headings."""


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_row_of_a_table_is_one_of_the_results_it_cites(heading: str) -> None:
    studies = STUDY.findall(SECTIONS[heading])
    assert studies
    for row in rows_of(SECTIONS[heading]):
        assert any(is_made_of(row, study) for study in studies), row


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_figure_between_the_tables_is_one_of_the_results_too(heading: str) -> None:
    """Whichever way it is told: a fall of .06 is a difference of -.06."""
    section = SECTIONS[heading]
    pages = [RESULTS / study / "README.md" for study in STUDY.findall(section)]
    pages += [ROOT / "docs" / "cost.md"] if "(docs/cost.md)" in section else []
    rows = chain.from_iterable(known(study)[0] for study in STUDY.findall(section))
    values = [float(text) for path in pages for text in numbers(path.read_text(encoding="utf-8"))]
    sizes = [abs(figure) for figure in chain(values, *rows)]
    prose = re.sub(r"^\|.*$|`[^`]*`|\]\([^)]*\)", "", section, flags=re.MULTILINE)
    for text in numbers(prose):
        assert among(text.removeprefix("-"), sizes), text


def test_a_wrong_figure_would_be_found() -> None:
    row = ["`coda`", "-.0709 [-.0757, -.0660]", "0", "-.0676", "95.1"]
    assert is_made_of(row, "grammar-velu")
    for number, wrong in ((1, "-.0708 [-.0757, -.0660]"), (3, "-.0675"), (4, "95.2")):
        assert not is_made_of([*row[:number], wrong, *row[number + 1 :]], "grammar-velu")


def below_heading(page: Page, anchor: str) -> str:
    """The part of a page from a heading to the next of its level; without an anchor all of it."""
    if not anchor:
        return page.text
    headings = [(match, match[1].count("#")) for match in HEADING.finditer(page.prose)]
    first = next(i for i, (actual, _) in enumerate(headings) if slug(actual[2]) == anchor)
    start, level = headings[first]
    ends = (actual.start() for actual, depth in headings[first + 1 :] if depth <= level)
    return page.prose[start.start() : next(ends, None)]


@cache
def figures_at(study: str, anchor: str) -> list[float]:
    """The sizes of all figures of a section of a study, or of its page and its tables."""
    page = Page(RESULTS / study / "README.md")
    figures = [float(text) for text in numbers(below_heading(page, anchor))]
    if not anchor:
        figures += chain.from_iterable(known(study)[0])
    return [abs(figure) for figure in figures]


def check_linked(row: list[str], cells: list[str]) -> None:
    """Whether the figures of cells are those of the sections of studies that their row links to."""
    links = LINKED.findall(" ".join(row))
    figures = [figure for link in links for figure in figures_at(*link)]
    for text in numbers(re.sub(r"`[^`]*`|\]\([^)]*\)", "", " ".join(cells))):
        assert among(text.removeprefix("-"), figures), (text, row)


@pytest.mark.parametrize("row", rows_of(QUESTIONS.text), ids=lambda row: row[0] or row[2][:30])
def test_every_answer_has_the_figures_of_the_section_that_it_links_to(row: list[str]) -> None:
    question, answer, figures, seeds, link = row
    assert LINKED.search(link), row
    assert int(seeds) in (1, 2, 3)
    check_linked(row, [question, answer, figures])


def test_accuracies_on_the_page_of_inflection_are_those_of_the_study() -> None:
    page = Page(ROOT / "docs" / "inflection.md")
    (text,) = (part for part in page.sections if part.startswith("## Results"))
    link = "[rows](../experiments/results/sigmorphon/README.md#german-and-turkish)"
    rows = rows_of(text)
    assert len(rows) == 3
    for _, *cells in rows:
        assert all(len(numbers(cell)) == 3 for cell in cells)
        check_linked([link], cells)


def test_a_wrong_answer_would_be_found() -> None:
    link = "[rows](../experiments/results/multi30k-end/README.md#all-recipes-over-three-seeds)"
    check_linked([link], ["-.095 [-.117, -.074] nats"])
    for wrong in ("-.096 [-.118, -.074]", ".032 [.021, .043]"):  # the second is of another section
        with pytest.raises(AssertionError):
            check_linked([link], [wrong])


PAPER_TABLES = [part for part in PAPERS.sections[1:] if not part.startswith("## Hours")]
PAPER_ROWS = [row for part in PAPER_TABLES for row in rows_of(part)]
NOT_RUN = re.compile(r"not run: ((?:at least )?[\d.]+) GPU-hours")


@pytest.mark.parametrize("row", PAPER_ROWS, ids=lambda row: f"{row[0]}: {row[2][:20]}")
def test_our_figures_beside_a_papers_are_those_of_the_sections_linked_to(row: list[str]) -> None:
    _, _, ours, seeds, _ = row
    assert NOT_RUN.search(ours) or LINKED.search(ours) or not numbers(ours), row
    assert (seeds in {"1", "2", "3"}) == bool(LINKED.search(ours)), row
    check_linked([ours], [NOT_RUN.sub("", ours)])


def test_hours_of_what_was_not_run_are_those_of_presets_and_timed_passes() -> None:
    timed = json.loads((RESULTS / "gpu" / "speed.json").read_text(encoding="utf-8"))["rows"]
    passes = {
        row["row"]: row["ms"]
        for row in timed
        if (row["size"], row["precision"]) == ("sentences", "bf16")
    }
    listed = set()
    for preset, recipe, *cells in rows_of(PAPERS.sections[-1]):
        text = (ROOT / "experiments" / "presets" / f"{preset.strip('`')}.yaml").read_text()
        train = yaml.safe_load(text)["train"]
        ms = passes[{"`transformer`": "no latents"}.get(recipe, recipe.strip("`"))]
        assert cells[:2] == [f"{train['steps']:,}", str(train["accumulate"])]
        assert cells[2] == f"{ms:.1f}"
        hours = train["steps"] * train["accumulate"] * ms / 3.6e6
        assert float(cells[3].removeprefix("at least ")) == pytest.approx(hours, abs=0.0501)
        listed.add(cells[3])
    assert {match for row in PAPER_ROWS for match in NOT_RUN.findall(row[2])} == listed


def test_the_prose_of_the_results_has_no_figures_of_its_own() -> None:
    prose = re.sub(r"^\|.*$|```.*?```|`[^`]*`", "", QUESTIONS.text, flags=re.MULTILINE | re.DOTALL)
    assert set(numbers(prose)) <= {".05"}  # the level of significance


def test_the_table_of_recipes_on_the_grammar_is_that_of_its_runs() -> None:
    names = ("elbo", "kl", "iwae", "plug_in", "bleu", "head_divergence")
    runs = {run["recipe"]: run for run in runs_in("grammar-velu", "table.csv")}
    *rows, _ = rows_of(section("grammar-velu", "## All recipes, 3,000 steps"))
    assert {label(row[0]) for row in rows} == set(runs)
    for recipe, *cells in rows:
        run = runs[label(recipe)]
        for cell, name in zip(cells, names, strict=True):
            figures = [float(run[f"{name}{end}"]) for end in ("", "_low", "_high")]
            given_figures = numbers(cell)
            pairs = zip(given_figures, figures, strict=False)
            assert all(among(text, [figure]) for text, figure in pairs), (recipe, cell)
            assert len(given_figures) in (0, 1, 3)


def test_differences_of_bounds_on_the_grammar_are_those_of_its_runs() -> None:
    figures: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in runs_in("grammar-velu", "runs.csv"):
        for column in ("elbo", "iwae"):
            figures[run["recipe"], column].append(float(run[column] or run["elbo"]))
    text = section("grammar-velu", "## All recipes, 3,000 steps")
    plain = figures["transformer", "elbo"]
    (names,) = re.findall(r"^\| \| (`coda-cs` .*) \|$", text, re.MULTILINE)
    *_, (_, *cells) = rows_of(text)
    for name, cell in zip(names.split(" | "), cells, strict=True):
        check_spread(cell, figures[name.strip("`"), "iwae"], plain)
    (significance,) = re.findall(r"[*] [*][*]Significance.[*][*] (.*?)\n[*]", text, re.DOTALL)
    values = dict(re.findall(r"`([\w-]+)`\s\((-.*?\])\)", significance, re.DOTALL))
    assert set(values) == {"mean-field", "cascaded"}
    for name, cell in values.items():
        check_spread(cell, figures[name, "elbo"], plain)


def test_muon_after_half_the_steps_is_that_of_its_runs() -> None:
    (cell,) = re.findall(r"difference \((.*?) nats\)", section("multi30k-end", "## With Muon"))
    muon, long = (
        [results_in(f"transformer-{kind}-seed{seed}")["plug_in"] for seed in (0, 1, 2)]
        for kind in ("muon", "long")
    )
    check_spread(cell, muon, long)


@pytest.mark.parametrize(
    ("row", "other"),
    [
        ("less Adam, 10,000 steps, mean [95 % over seeds]", "exact-smoothed"),
        ("less Adam, 20,000 steps", "exact-smoothed-long"),
        ("less the plain network, Muon, 10,000 steps", "transformer-muon"),
    ],
)
def test_one_head_with_muon_is_that_of_its_runs(row: str, other: str) -> None:
    cells = {name: cells for name, *cells in rows_of(section("multi30k-end", "## With Muon"))}
    for name, cell in zip(("exact", "bleu", "chrf"), cells[row], strict=True):
        runs = [
            [results_in(f"{kind}-seed{seed}") for seed in (0, 1, 2)]
            for kind in ("exact-smoothed-muon", other)
        ]
        check_spread(
            cell, *([run[name if name in run else "plug_in"] for run in kind] for kind in runs)
        )


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("optimizer", "kind"), [("Muon", "muon-long"), ("Adam", "long")])
def test_a_head_after_all_steps_is_that_of_its_run(optimizer: str, kind: str, seed: int) -> None:
    run = results_in(f"exact-smoothed-{kind}-seed{seed}")
    cells = [f"{run['exact']:.3f}", *(f"{run[n]:.2f}" for n in ("bleu", "chrf", "paper_bleu"))]
    row = f"| {optimizer}, seed {seed} | {' | '.join(cells)} |"
    assert row in section("multi30k-end", "## With Muon").splitlines()


def test_the_table_of_a_step_is_that_of_its_rows() -> None:
    rows = json.loads((RESULTS / "bench" / "cpu.json").read_text(encoding="utf-8"))["rows"]
    measured = {(row["recipe"], row["precision"], row["row"]): row for row in rows}
    columns = [(name, precision) for name in ("coda", "cascaded") for precision in ("fp32", "bf16")]
    names = {
        "no latents": "no latents",
        "guide, then the model replayed": "guide, replay",
        "latentheads": "ours",
        "latentheads, stock `Trace_ELBO`": "ours, stock",
    }
    cost = Page(ROOT / "docs" / "cost.md")
    (step,) = [section for section in cost.sections if section.startswith("## A step")]
    options = {row[0].strip("*"): row[1:] for row in rows_of(step)}
    for name, ours in names.items():
        for cell, column in zip(options[name], columns, strict=True):
            row = measured[*column, ours]
            figures = [row["ratio"], row["ratio_low"], row["ratio_high"]]
            pairs = zip(numbers(cell), figures, strict=True)
            assert all(among(text, [figure]) for text, figure in pairs), (name, column)


@pytest.mark.parametrize("page", sorted(RESULTS.glob("*/README.md")), ids=lambda it: it.parent.name)
def test_every_page_of_results_names_its_revision(page: Path) -> None:
    assert re.search(r"evisions?\s+[0-9a-f]{7}\b", page.read_text(encoding="utf-8"))


def measured(name: str) -> dict[str, Any]:
    """What a benchmark wrote."""
    return json.loads((RESULTS / "bench" / f"{name}-cpu.json").read_text(encoding="utf-8"))


def rows_of_cost(heading: str) -> dict[str, list[str]]:
    """The rows of the tables of a section of the page of cost, by their first cells."""
    (text,) = (part for part in Page(ROOT / "docs" / "cost.md").sections if heading in part[:40])
    return {row[0]: row[1:] for row in rows_of(text)}


def test_what_a_step_costs_beside_its_arithmetic_is_that_of_the_rows() -> None:
    points = measured("host")["points"]
    rows = rows_of_cost("## Beside the arithmetic")
    assert len(rows) == len(points)
    for (operations, calls, time), point in zip(rows.values(), points, strict=True):
        assert operations == f"{point['operations']:,}"
        assert calls == f"{point['calls']:,}"
        figures = [point["ratio"], point["low"], point["high"]]
        assert all(among(text, [f]) for text, f in zip(numbers(time), figures, strict=False))


def test_what_posteriors_of_blocks_spare_is_that_of_the_rows() -> None:
    text = (ROOT / "docs" / "cost.md").read_text("utf-8")
    (line,) = re.findall(r"^\* (Two blocks of alignments became faster.*?)^$", text, re.M | re.S)
    _, before, after = re.split("In revision", line)
    for sentences, name in ((before, "host-blocks-before"), (after, "host-blocks")):
        point = measured(name)["points"][-1]
        assert point["row"] == "cascaded+alignments"
        assert all(f"{point[key]:,}" in sentences for key in ("operations", "calls"))
        assert is_spread(sentences, [point[key] for key in ("ratio", "low", "high")])


def test_what_sampling_costs_is_that_of_the_rows() -> None:
    given_rows = rows_of_cost("## With length")
    rows = measured("growth")["growth"]["length"]
    plain = {row["size"]["length"]: row for row in rows if row["row"] == "no latents"}
    for cell, length in zip(given_rows["no latents"], (512, 1024), strict=True):
        figures = [plain[length][key] for key in ("ratio", "ratio_low", "ratio_high")]
        pairs = zip(numbers(cell), figures, strict=True)
        assert all(among(text, [figure]) for text, figure in pairs)
    points = {
        (point["row"], point["length"]): point["ms"] for point in measured("length")["points"]
    }
    for length in (512, 1024):
        ours, plains = points["cascaded", length], points["transformer", length]
        *times, ratio = given_rows[f"{length:,}"]
        assert among(ratio, [ours / plains])
        assert [float(time) for time in times] == [round(ours), round(plains)]


def test_the_speed_of_decoding_is_that_of_the_rows() -> None:
    rows = [row for row in measured("decoding")["rows"] if row["row"] == "cache"]
    for beam, how in ((1, "greedy"), (5, "beam 5")):
        speeds = [row["sentences_per_second"] for row in rows if row["beam"] == beam]
        assert rows_of_cost("## Decoding")[how][0] == f"{min(speeds):.0f} to {max(speeds):.0f}"


def spreads(name: str, row: str) -> list[list[float]]:
    """The ratio and quartiles of a row, of every run that a file holds."""
    points = [point for point in measured(name)["points"] if point["row"] == row]
    return [[point[key] for key in ("ratio", "ratio_low", "ratio_high")] for point in points]


def is_spread(cell: str, figures: list[float]) -> bool:
    """Whether a cell has a median and quartiles."""
    pairs = zip(numbers(cell), figures, strict=True)
    return all(among(text, [figure]) for text, figure in pairs)


def test_what_subsets_of_heads_cost_is_that_of_the_rows() -> None:
    rows = rows_of_cost("## Subsets of heads")
    for cells, name in zip(rows.values(), ("gates-before", "gates"), strict=True):
        runs = spreads(name, "bernoulli-heads")
        assert all(is_spread(*pair) for pair in zip(cells, runs, strict=True))


def test_what_heads_above_the_decoder_cost_in_decoding_is_that_of_the_rows() -> None:
    rows = rows_of_cost("## Decoding")
    named = {"one head", "copy", "two blocks", "16 subsets of four heads"}
    assert named <= {row.partition(",")[0] for row in rows}
    for row, cells in rows.items():
        name, _, revision = row.partition(",")
        if name not in named:
            continue
        before = "-before" if "6a154fa" in revision else ""
        file, point = ("decode", name) if "16" not in name else ("decode-gates", "bernoulli-heads")
        for cell, beam in zip(cells, (1, 5), strict=True):
            (figures,) = spreads(f"{file}-{beam}{before}", point)
            assert is_spread(cell, figures), (row, beam)


def test_decoding_beside_transformers_is_that_of_the_rows() -> None:
    rows = rows_of_cost("## Beside transformers")
    assert rows.keys() == {"plain", "one head", "copy", "two blocks"}
    for name, cells in rows.items():
        for cell, beam in zip(cells, (1, 5), strict=True):
            (figures,) = spreads(f"decode-marian-{beam}", name)
            assert is_spread(cell, figures), (name, beam)


def test_what_alignments_cost_in_a_language_model_is_that_of_the_rows() -> None:
    ratios = {point["row"]: point["ratio"] for point in measured("alignments-lm")["points"]}
    matches = re.findall(r"^\| (.*?) \|.*? ([\d.]+) times \|", ALIGNMENTS.read_text(), re.MULTILINE)
    assert len(matches) == len(ratios) - 1  # without the plain network
    for row, figure in matches:
        (ratio,) = (ratio for name, ratio in ratios.items() if name in row.replace("`", ""))
        assert among(figure, [ratio]), (row, ratio)


def test_likelihoods_by_step_are_those_of_their_rows() -> None:
    given_section = section("multi30k-end", "## By step")
    (head,) = re.findall(r"^\| log p of validation after \| (.*) \|$", given_section, re.MULTILINE)
    steps = [int(step.replace(",", "")) for step in head.split(" | ")]
    rows = [row for row in rows_of(given_section) if len(row) == 1 + len(steps)]
    assert len(rows) == 7
    for name, *cells in rows:
        (file,) = re.findall(r"\((.*\.csv)\)", name)
        course = course_of(RESULTS / "multi30k-end" / file)
        for step, figure in zip(steps, cells, strict=True):
            assert not figure or among(figure, [course[step]]), (name, step, figure)


def control_figures(run: str) -> list[float]:
    """Exact log p of validation and test, BLEU and chrF of a run."""
    file = RESULTS / "multi30k-end" / f"{run}.json"
    record = json.loads(file.read_text(encoding="utf-8"))
    valid, test = (
        {row["name"]: row.get("value") for row in record[part]} for part in ("valid", "test")
    )
    return [valid["exact"], *(test[name] for name in ("exact", "bleu", "chrf"))]


def control_difference(seed: int) -> dict[str, float]:
    """The control less the plain network beside it, over sentences."""
    file = RESULTS / "multi30k-end" / f"soft-less-transformer-seed{seed}.json"
    difference: dict[str, float] = json.loads(file.read_text("utf-8"))["systems"][1]["difference"]
    return difference


def test_what_the_control_without_a_latent_has_is_in_its_rows() -> None:
    text = section("multi30k-end", "## The control `soft`")
    pairs = [(f"soft-seed{n}", f"transformer-beside-soft-seed{n}") for n in (0, 1)]
    rows = list(rows_of(text))
    for (_, *cells), run in zip(rows, [run for pair in pairs for run in pair], strict=False):
        for cell, figure in zip(cells, control_figures(run), strict=True):
            assert among(cell, [figure]), (cell, figure)
    differences = [control_difference(seed) for seed in (0, 1)]
    names = ("score", "low", "high")
    for cell, less in zip(rows[4][2].split("; "), differences, strict=True):
        for figure, name in zip(re.findall(r"-?\.\d+", cell), names, strict=True):
            assert among(figure, [less[name]]), (figure, name)
    for column in (2, 3):  # BLEU and chrF
        for cell, (soft, plain) in zip(rows[4][column + 1].split("; "), pairs, strict=True):
            figure = control_figures(soft)[column] - control_figures(plain)[column]
            assert among(cell.split()[0].strip(","), [figure]), (cell, figure)
    below = re.findall(r"(\.\d+) \[(\S+), (\S+)\] (?:nats )?below [^(]*\(p (\.\d+)", text)
    for cells, less in zip(below, differences, strict=True):
        figures = (-less["score"], -less["high"], -less["low"], less["p"])
        for cell, figure in zip(cells, figures, strict=True):
            assert among(cell, [figure]), (cell, figure)
    head, beside = (
        results_in(f"{name}-seed0") for name in ("exact-smoothed", "transformer-beside")
    )
    assert among(".071", [head["exact"] - beside["plug_in"]])
    first = r"is (\S+) nats higher after 500 steps, (\S+) after 1,000,\n"
    courses = re.findall(first + r"(\S+) after 3,000 and (-\.\d+) after", text)
    for pair, figures in zip(pairs, courses, strict=True):
        soft, plain = (course_of(RESULTS / "multi30k-end" / f"{name}.csv") for name in pair)
        for step, figure in zip((500, 1000, 3000, 8000), figures, strict=True):
            assert among(figure, [soft[step] - plain[step]]), (step, figure)


TWICE_AS_LONG = {
    "`transformer`, three seeds": [
        ("transformer-long-seed0", "transformer-beside-seed0"),
        *((f"transformer-long-seed{seed}", f"transformer-seed{seed}") for seed in (1, 2)),
    ],
    "one latent alignment head, exact, three seeds": [
        (f"exact-smoothed-long-seed{seed}", f"exact-smoothed-seed{seed}") for seed in (0, 1, 2)
    ],
}
"""Runs of 20,000 steps, and those of 10,000 with the same seed."""


def test_what_twice_the_steps_gain_is_in_its_rows() -> None:
    given_section = section("multi30k-end", "Trained twice as long")
    rows = {row[0]: row[1:] for row in rows_of(given_section)}
    for recipe, runs in TWICE_AS_LONG.items():
        sides = [list(map(results_in, names)) for names in zip(*runs, strict=True)]
        for index, figure in enumerate(("plug_in", "bleu", "chrf")):
            long, short = ([run[figure] for run in side] for side in sides)
            mean, gain = rows[recipe][2 * index : 2 * index + 2]
            check_spread(mean, [spread(long).mean])
            check_spread(gain, long, short)


def results_in(run: str) -> dict[str, float]:
    """The figures of the test part of a run that was trained to the end."""
    file = RESULTS / "multi30k-end" / f"{run}.json"
    scores = json.loads(file.read_text(encoding="utf-8"))["test"]
    rows = [scores] if isinstance(scores, dict) else [{x["name"]: x["value"]} for x in scores]
    return {name: value for row in rows for name, value in row.items()}


def course_of(file: Path) -> dict[int, float]:
    """A figure of validation by update."""
    with file.open(encoding="utf-8", newline="") as rows:
        return {int(row[0]): float(row[1]) for row in list(csv.reader(rows))[1:]}


def runs_in(study: str, file: str) -> list[dict[str, str]]:
    """The rows of a file beside a study, by the names of its columns."""
    with (RESULTS / study / file).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def section(study: str, heading: str) -> str:
    """What a study says between a heading and the next."""
    text = (RESULTS / study / "README.md").read_text(encoding="utf-8")
    return re.split(r"^##", text.split(f"{heading}\n")[1], flags=re.MULTILINE)[0]


def check_spread(cell: str, values: Sequence[float], *less: Sequence[float]) -> None:
    """Whether a cell has the mean of some values, or of what they are above others by seed.

    Its interval follows where there are several seeds; a whole 0 is exact.
    """
    spread_of_seeds = spread(one - sum(others) for one, *others in zip(values, *less, strict=True))
    figures = [figure for figure in spread_of_seeds if not math.isnan(figure)]
    for text, figure in zip(numbers(cell) or ["0e-9"], figures, strict=True):
        assert among(text, [figure]), (cell, spread_of_seeds)


FIGURES = (("valid", "plug_in"), ("test", "plug_in"), ("test", "bleu"), ("test", "chrf"))
"""Columns of alignments: where they are summed the plug-in law is the exact one."""

SAME = ("mixture", "soft", "chain", "sampled", "iwae", "rws", "plain", "prefix", "tied")
KINDS = {word: word for word in SAME} | {"two heads": "two-heads", "two blocks": "two-blocks"}
KINDS |= {"bound": "elbo", "target": "elbo", "": "exact"}
"""The files of a row of alignments, by the first of these words that the row's name has."""


def kind_of(message: str) -> str:
    """The word of the files of a row of alignments."""
    return next(kind for word, kind in KINDS.items() if word in message)


def runs_of(message: str, files: str) -> dict[int, list[float]]:
    """The figures of the runs that a row of alignments is of, by seed."""
    paths = (RESULTS / "alignments").glob(files.format(kind_of(message)))
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return {run["seed"]: [run[part][figure] for part, figure in FIGURES] for run in runs}


@pytest.mark.parametrize(
    ("heading", "files"),
    [
        ("## Multi30k, the first 600 steps", "multi30k-600-{}-seed*.json"),
        ("### 3,000 steps", "multi30k-3000-{}-seed*.json"),
        ("### Trained by its guide's bound", "multi30k-600-{}-seed*.json"),
        ("### Trained by samples", "multi30k-600-{}-seed*.json"),
        ("### The same bound after 3,000 steps", "multi30k-3000-{}-seed*.json"),
        ("### Two heads, or two blocks", "multi30k-600-{}-seed*.json"),
        ("### Two heads after 3,000 steps", "multi30k-3000-{}-seed*.json"),
        ("### A mixture that points at nothing", "multi30k-600-{}-seed*.json"),
        ("## Multi30k, the first 300 steps", "multi30k-{}.json"),
    ],
)
def test_figures_of_alignments_are_those_of_their_runs(heading: str, files: str) -> None:
    rows = rows_of(section("alignments", heading))
    assert rows
    for name, *cells in rows:
        sides = [runs_of(word, files) for word in name.split(" less ")]
        seeds = set.intersection(*map(set, sides))
        for index, cell in enumerate(cells[: len(FIGURES)]):
            check_spread(cell, *([side[seed][index] for seed in seeds] for side in sides))


def test_entropies_and_gaps_of_alignments_are_those_of_their_runs() -> None:
    rows = rows_of(section("alignments", "### Entropies, information and gaps"))
    assert len(rows) == 17
    for name, steps, *cells in rows:
        files = f"multi30k-{steps.replace(',', '')}-{kind_of(name)}-seed*.json"
        paths = sorted((RESULTS / "alignments").glob(files))
        runs = [json.loads(path.read_text(encoding="utf-8"))["test"] for path in paths]
        columns = ("prior_entropy", "posterior_entropy", "information", "gap", "kl")
        for cell, column in zip(cells, columns, strict=True):
            message = numbers(cell) or ["0.000"] * len(runs)
            for text, run in zip(message, runs, strict=True):
                assert among(text, [run[column]]), (name, column)


READ = {"source": "source", "words before": "prefix", "target": "target", "": ""}
"""What a guide reads, by the first of these words that its row has."""


@pytest.mark.parametrize(
    ("heading", "file"),
    [("### Multi30k", "multi30k-ladder.csv"), ("### The grammar", "grammar-ladder.csv")],
)
def test_gaps_of_guides_are_those_of_their_runs(heading: str, file: str) -> None:
    runs, text = defaultdict(list), section("alignments", heading)
    for run in runs_in("alignments", file):
        figures = [float(run[name]) for name in ("elbo", "kl", "gap")]
        runs[run["model"], run["guide"], run["reads"]].append(figures)
    rows = {}
    for name, of, *cells in rows_of(text):
        model = of or model  # a row without is of the model above
        condition_on = next(READ[word] for word in READ if word in name)
        rows[model.split(",")[0], label(name).split(":")[0], condition_on] = cells
        bound, _, gap = (float([*numbers(cell), "0"][0]) for cell in cells)
        assert bound + gap == pytest.approx(float(numbers(model)[0]), abs=1.5e-4)
    assert set(runs) <= set(rows)
    for guide, computed_run in runs.items():
        for cell, values in zip(rows[guide], zip(*computed_run, strict=True), strict=True):
            check_spread(cell, values)
    ahead = re.findall(r"(\w+)`? is (?:not )?ahead of [^.]*?(-?\.\d+ \[[^]]*\])", text)
    assert len(ahead) == 2
    for name, cell in ahead:
        (model,) = (
            of for of, guide, condition_on in runs if (guide, condition_on) == (name, "target")
        )
        gaps = ([run[2] for run in runs[model, item, "target"]] for item in ("mean-field", name))
        check_spread(cell, *gaps)


MODELS = ("one block of one head", "one block of two heads", "two blocks of one head")


def test_each_gap_on_the_first_page_stands_below_its_model() -> None:
    gaps = defaultdict(list)
    for run in runs_in("alignments", "multi30k-ladder.csv"):
        gaps[run["guide"], run["reads"], run["model"]].append(float(run["gap"]))
    rows = rows_of(SECTIONS["## Results"].partition("Whisper")[0])
    texts = {"the prior": "", "x alone": "source", "x and y": "target"}
    assert len(rows) == 5
    for name, *cells in rows:
        condition_on = next(texts[words] for words in texts if name.endswith(words))
        guide = re.sub("[`*]", "", name).split(",")[0].split(":")[0]
        for cell, model in zip(cells, MODELS, strict=True):
            runs = gaps[guide, condition_on, model]
            assert bool(cell) == bool(runs), (name, model)
            if runs:
                check_spread(cell, runs)


def test_means_and_intervals_of_inflection_are_those_of_its_rows() -> None:
    columns, languages = ("valid", "test", "accuracy", "edit_distance"), ("german", "turkish")
    values = defaultdict(list)
    for run in runs_in("sigmorphon", "runs.csv"):
        for column in columns if run["updates"] == "2000" else ():
            values[run["system"], column, run["language"]].append(float(run[column]))
    rows = rows_of(section("sigmorphon", "## German and Turkish"))
    assert len(rows) == 4 + 4 + 6
    for index, (system, *cells, _) in enumerate(rows[:8]):
        for cell, column in zip(cells, columns, strict=True):
            check_spread(cell, values[system, column, languages[index // 4]])
    for pair, *cells in rows[8:]:
        for cell, index in zip(cells, product(columns[1:], languages), strict=True):
            check_spread(cell, *(values[system, *index] for system in pair.split(" less ")))


def test_gains_of_short_windows_are_those_of_their_rows() -> None:
    values = defaultdict(list)
    for run in runs_in("sigmorphon", "runs.csv"):
        for column in ("test", "accuracy") if run["window"] else ():
            values[run["window"], column, run["system"]].append(float(run[column]))
    rows = rows_of(section("sigmorphon", "## Short windows of the decoder"))
    assert len(rows) == 6 + 2
    for window, *cells in rows[:6]:
        for index, column in enumerate(("test", "accuracy")):
            plain, *aligned = cells[3 * index : 3 * index + 3]
            check_spread(plain, values[window, column, "plain"])
            for cell, system in zip(aligned, ("independent", "chain"), strict=True):
                check_spread(cell, values[window, column, system], values[window, column, "plain"])
    for (_, *cells), column in zip(rows[6:], ("accuracy", "test"), strict=True):
        added = [-figure for figure in values["all", column, "plain"]]
        for window, cell in zip("12345", cells, strict=True):
            gain = values[window, column, "chain"], values[window, column, "plain"]
            check_spread(cell, *gain, values["all", column, "chain"], added)


def test_bounds_of_a_frozen_noisy_model_are_those_of_their_rows() -> None:
    runs = runs_in("grammar-velu", "frozen-mean-field.csv")
    figures = [list(map(float, list(run.values())[1:])) for run in runs]
    rows = rows_of(section("grammar-velu", "## Mean-field guide of a frozen noisy model"))
    assert [[float(cell.strip("*")) for cell in cells] for _, *cells in rows] == figures
    text = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8").replace("\N{MINUS SIGN}", "-")
    statement = " ".join(text.split())
    (bounds,) = re.findall(
        r"ends at (\S+) nats .* at (\S+), and the prior itself at (\S+) ", statement
    )
    for text, number in zip(bounds, (3, 4, 0), strict=True):
        assert among(text, [figures[number][0]]), text


def test_what_bounds_lose_is_that_of_the_runs_that_are_stored() -> None:
    text = section("multi30k-end", "## All recipes, over three seeds")
    files = {"coda-cs": "coda-cs", "no identity path": "coda-less-noise"}
    files |= {"cascaded": "cascaded", "mean-field": "mean-field"}
    rows = [row for row in rows_of(text) if "seed" in row[0]]
    assert len(rows) == len(files)
    for name, *cells in rows:
        (file,) = (file for words, file in files.items() if words in name)
        seeds = re.findall(r"\b[012]\b", name)
        stored = {path.stem[-1] for path in (RESULTS / "multi30k-end").glob(f"{file}-seed*.json")}
        assert stored == set(seeds)
        for index, seed in enumerate(seeds):
            run, plain = (results_in(f"{of}-seed{seed}") for of in (file, "transformer"))
            figures = [run["elbo"], run["iwae"], run["iwae"] - run["elbo"]]
            figures.append(run["iwae"] - plain["plug_in"])
            for cell, figure in zip(cells, figures, strict=True):
                assert among(numbers(cell)[index], [figure]), (name, seed)


STARTS = "### Where a guide starts that leaves out a coupling"
START_COLUMNS = ("start entropy", "start gradient", "start gap", "gap after updates", "gap")


def test_starts_of_guides_are_those_of_their_rows() -> None:
    runs = {}
    for training, seeds in (("frozen", (0, 1, 2)), ("joint", (0, 1))):
        path = RESULTS / "alignments" / f"guide-starts-{training}.json"
        for run in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            if run["seed"] in seeds:
                runs[training, run["start"], run["language"], run["seed"]] = run
    rows = rows_of(section("alignments", STARTS))
    assert [len(row) for row in rows] == 10 * [7] + 6 * [6] + 4 * [3]
    for language, start, *cells in rows[:10]:
        of_seeds = [runs["frozen", start.strip("`"), language, seed] for seed in range(3)]
        for cell, column in zip(cells, START_COLUMNS, strict=True):
            check_spread(cell, [run[column] for run in of_seeds])
    for language, start, *cells in rows[10:16]:
        of_seeds = [runs["joint", start.strip("`"), language, seed] for seed in range(2)]
        figures = [run[column] for column in ("gap", "bound") for run in of_seeds]
        assert all(among(*pair) for pair in zip(cells, ([x] for x in figures), strict=True))
    for pair, *cells in rows[16:]:
        for cell, training in zip(cells, ("frozen", "joint"), strict=True):
            start, other = pair.replace("`", "").split(" less ")
            keys = [key for key in runs if key[:2] == (training, start)]
            bounds = [
                [runs[training, which, *key[2:]]["bound"] for key in keys]
                for which in (start, other)
            ]
            assert bool(cell) == bool(keys)
            if keys:
                check_spread(cell, *bounds)


def test_the_page_of_alignments_says_what_starts_differ_by() -> None:
    text = ALIGNMENTS.read_text(encoding="utf-8").replace("\N{MINUS SIGN}", "-")
    (paragraph,) = re.findall(r"^With prior `cascaded`.*?\n\n", text, re.MULTILINE | re.DOTALL)
    differences = [
        cell for row in rows_of(section("alignments", STARTS))[17:19] for cell in row[1:]
    ]
    assert re.findall(r"-?\.?[\d.]+ \[[^]]*\]", paragraph) == differences


def test_how_much_too_narrow_intervals_over_blocks_are_is_what_was_measured() -> None:
    record = json.loads((RESULTS / "wikitext-2" / "articles.json").read_text("utf-8"))
    (study,) = [
        " ".join(section.split())
        for section in Page(RESULTS / "wikitext-2" / "README.md").sections
        if section.startswith("## Intervals over blocks")
    ]
    over_blocks, over_articles = record["errors"]
    ratio = over_articles / over_blocks
    blocks, articles = f"{record['blocks']:,}", record["articles"]
    held = record["held"] / record["texts"]
    difference, *errors = (
        f"{x:.4f}"[1:] for x in (record["difference"], over_blocks, over_articles)
    )
    for text in (
        f"The difference on test is {difference} nats",
        f"Its standard error is {errors[0]} over {blocks} blocks",
        f"and {errors[1]} over {articles} articles, {ratio:.1f} times as large",
        f"Of {record['texts']:,} texts of as many articles",
        f"holds the difference in {100 * held:.1f} %",
    ):
        assert text in study, text
    page = " ".join(Page(ROOT / "docs" / "comparing.md").prose.split())
    assert f"{articles} articles with {blocks} blocks" in page
    assert f"holds the true difference in {held:.0%}".replace("%", " %") in page
