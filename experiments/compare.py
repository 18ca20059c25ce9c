"""Compares recipes: the same data order and noise seeds, several seeds, one table, one figure.

python experiments/compare.py --recipes coda-cs,mean-field,autoregressive,cascaded --seeds 0,1,2
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import latentheads.experiments.cli.startup  # noqa: F401

from latentheads.console import show_progress
from latentheads.experiments.cli.errors import error_handling, rerun_command
from latentheads.experiments.cli.options import read_program
from latentheads.experiments.cli.pages import print_and_write
from latentheads.experiments.comparison.recipes import (
    ComparisonOptions,
    Plan,
    describe_plans,
    plan_all,
    run_folder,
    train_all,
)
from latentheads.experiments.comparison.summary import (
    COLUMNS,
    footer,
    has_one_model,
    read_all,
    write_tables,
)
from latentheads.experiments.comparison.systems import compare, describe_tests, read_run
from latentheads.files import write_text
from latentheads.metrics.scores import SCORES, primary_score
from latentheads.metrics.seeds import DIFFERENCES, summarise
from latentheads.runs.folder import read_metrics

if TYPE_CHECKING:
    import pandas as pd

DESCRIPTION = (
    "Trains several recipes with several seeds, and compares their bounds.\n\n"
    "    python experiments/compare.py --recipes coda-cs,cascaded --seeds 0,1,2 --out runs/both\n\n"
    "With --train_only guide --start RUN guides are compared on the model of that run, which "
    "stays as it is. "
    "Data order and noise seeds are the same. Writes table.csv, table.md and elbos.png: mean "
    "over seeds, 95 % interval, and of bound, exact log p or IWAE, and scores the difference to "
    "the first recipe where both have the figure, paired by seed; curves.png, the bound over "
    "training; of alignments also gaps.png, the gap of each guide to the exact posterior; of "
    "translations also "
    "significance.csv, the paired bootstrap of their scores (BLEU and chrF, with accuracy where it "
    "is asked for, or WER and CER) with the first recipe's of the same seed. All other options are "
    "those of run.py. A finished run in the folder is used again if its configuration is the same."
)


def significance(runs: pd.DataFrame, out: Path) -> pd.DataFrame:
    """Paired bootstrap of every translation of one text with the first recipe's of the same seed.

    Translations of other references are compared with nothing, and have their scores alone.
    """
    import pandas as pd  # slow to import

    rows = []
    by_seed = runs.groupby("seed", sort=False)
    for seed, seed_runs in show_progress(by_seed, "comparing translations", "seed"):
        labels = list(seed_runs.recipe)
        systems = [read_run(run_folder(out, label, int(seed))) for label in labels]
        of_first = [system for system in systems if system.references == systems[0].references]
        estimates = iter(compare(of_first))
        for label, system in zip(labels, systems, strict=True):
            scores = next(estimates) if system in of_first else compare([system])[0]
            for name, estimate in scores.items():
                rows.append({"recipe": label, "seed": seed, "metric": name, **asdict(estimate)})
    return pd.DataFrame(rows)


def _count_tests(rows: Sequence[dict[str, Any]], score: str | None) -> str:
    """What the p values of a table are, and how many of them there are."""
    number = sum(len(row["p"]) for row in rows[1:] if "p" in row)
    if score is None or not number:
        return ""
    return f" {describe_tests(number, COLUMNS[score].removesuffix(', %'))}."


def _describe_untested(tests: pd.DataFrame, score: str | None) -> str:
    """Why a test of the score that stands for all has no p; empty if each has one."""
    reasons = tests.untested[(tests.metric == score) & (tests.untested != "")].unique()
    title = COLUMNS[score].removesuffix(", %") if score else ""
    return "".join(f" No p of {title} where {reason}." for reason in reasons)


def table(
    rows: Sequence[dict[str, Any]], format_cell: Callable[[dict[str, Any], str, int], str]
) -> list[list[str]]:
    """The summary in nats per target token, headings first; ``format_cell`` formats a cell."""
    titles = dict(_name_columns(rows[0]))
    shown = {name: title for name, title in titles.items() if _has_value(name, rows)}
    lines = [["recipe", "seeds", *shown.values(), "parameters"]]
    for index, row in enumerate(rows):
        cells = [format_cell(row, name, index) for name in shown]
        lines.append([row["recipe"], str(row["seeds"]), *cells, f"{row['parameters']:,}"])
    return lines


def _has_value(name: str, rows: Sequence[dict[str, Any]]) -> bool:
    """Whether a row has a figure; the first one has no difference to another."""
    return any(name in row for row in (rows[1:] if name in DIFFERENCES else rows))


def _name_columns(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The figures and their titles: p behind the score that stands for all, which ends the row."""
    score = primary_score(row)
    for name, title in COLUMNS.items():
        yield name, title
        if name == score:
            yield "p", f"p of {title.removesuffix(', %')}, a seed each"
    for name in row:
        if score and name.startswith("task ") and name.endswith(f": {score}"):
            task = name.removeprefix("task ").removesuffix(f": {score}")
            yield name, SCORES[score].heading_of(task)


def draw(plans: Sequence[Plan], rows: list[dict[str, Any]], out: Path) -> None:
    """Draws the bounds of all recipes, and how they came about."""
    from latentheads.contrib.plot import (  # slow to import
        draw_curves,
        draw_gaps,
        draw_recipes,
        save,
    )

    what = describe_plans(plans)
    several = len(plans) > len(rows)
    mean = ": mean and 95 % interval" if several else ""
    one_model = has_one_model(plans)
    of_models = "one model; the seeds are of the guide" if one_model else ""
    if not one_model and len(rows) > 1:
        of_models = "each row is of a model of its own"
    title = f"{what}{mean}\n{of_models}"
    save(draw_recipes(rows, title, one_model=one_model), out / "elbos.png")
    (out / "gaps.png").unlink(missing_ok=True)  # of other recipes, compared here before
    if gap_rows := [row for row in rows if "gap" in row]:
        save(draw_gaps({"": gap_rows}, title), out / "gaps.png")
    histories = {
        row["recipe"]: [read_metrics(p.folder) for p in plans if p.recipe == row["recipe"]]
        for row in rows
    }
    mean = "; a line is their mean, its band their range" if several else ""
    save(draw_curves(histories, f"{what}{mean}"), out / "curves.png")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    common, line, options = read_program(arguments, "compare.py", DESCRIPTION, ComparisonOptions)
    out = Path(options.out)
    kept = f"{rerun_command(options.overwrite)} goes on; what is finished is in {out}"
    with error_handling("compare.py", kept, kept, user_errors=(ValueError,)):
        plans = plan_all(common, line, options, out, "compare.py")
        train_all(plans, options, out)
        runs = read_all(plans)
        rows = summarise(runs, list(dict.fromkeys(plan.recipe for plan in plans)))
    score = primary_score(rows[0])
    with error_handling("compare.py", kept, kept, user_errors=(ValueError,)):
        tests = significance(runs, out) if score else None
    with error_handling("compare.py", kept, kept, user_errors=()):
        (out / "significance.csv").unlink(missing_ok=True)  # of other runs, compared here before
        if tests is not None:
            write_text(out / "significance.csv", tests.to_csv(index=False))
            for row in rows:
                recipe_tests = tests[(tests.recipe == row["recipe"]) & (tests.metric == score)]
                row["p"] = [float(p) for p in recipe_tests.p.dropna()]
        draw(plans, rows, out)
        note = footer([(plans, rows, runs)]) + _count_tests(rows, score)
        if tests is not None:
            note += _describe_untested(tests, score)
        text = write_tables(runs, rows, table, 2, out, note.strip())
        trained = [(plan.folder, plan.settings) for plan in plans]
        print_and_write("compare.py", text, trained, options, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
