"""Sweeps the number of heads at constant width: recipes against heads, one table, one figure.

python experiments/sweep.py --recipes transformer,coda --head_numbers 4,8,16,32 --network.width 128
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import latentheads.experiments.cli.startup  # noqa: F401

from latentheads.checks import check_items
from latentheads.experiments.cli.errors import error_handling, rerun_command
from latentheads.experiments.cli.options import read_program
from latentheads.experiments.cli.pages import print_and_write
from latentheads.experiments.comparison.recipes import (
    OF_ONE_RUN,
    ComparisonOptions,
    Plan,
    describe_plans,
    plan_all,
    train_all,
)
from latentheads.experiments.comparison.summary import (
    COLUMNS,
    check_texts,
    footer,
    read_all,
    write_tables,
)
from latentheads.metrics.scores import PRIMARY_SCORES
from latentheads.metrics.seeds import DIFFERENCES, summarise

if TYPE_CHECKING:
    import pandas as pd

DESCRIPTION = (
    "Trains several recipes with several numbers of heads at constant width.\n\n"
    "    python experiments/sweep.py --recipes transformer,coda --head_numbers 4,8,16\n\n"
    "More heads are narrower, so the cost of attention is constant. Data order and noise seeds are "
    "the same. Writes table.csv, table.md and heads.png, as the paper's table 3 and figure 3: mean "
    "over seeds, 95 % interval, and differences to the first recipe of as many heads, paired by "
    "seed. Numbers of parameters are printed, since a fusion over H heads "
    "has O(H^2) parameters (24 H^2 per block for coda-released). All other options are those of "
    "run.py. A finished run in the folder is reused if its configuration is the same."
)


@dataclass(frozen=True)
class SweepOptions(ComparisonOptions):
    """Options of a sweep.

    Attributes:
        head_numbers: Heads of every block, comma between.
    """

    out: str = "runs/sweep"
    recipes: tuple[str, ...] = ("transformer", "coda")
    seeds: tuple[int, ...] = (0,)
    head_numbers: tuple[int, ...] = (4, 8, 16, 32)
    replaced: ClassVar[Mapping[str, str]] = {**OF_ONE_RUN, "network.heads": "head_numbers"}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_items("head_numbers", self.head_numbers)


def read_sweep(
    plans: dict[int, list[Plan]], recipes: list[str]
) -> tuple[pd.DataFrame, list[dict[str, Any]], str]:
    """Reads all runs; summarises them by recipe and number of heads, with a note."""
    import pandas as pd  # slow to import

    groups = []
    check_texts(plan for of_number in plans.values() for plan in of_number)
    for number, of_number in plans.items():
        runs = read_all(of_number)
        rows = [{**row, "heads": number} for row in summarise(runs, recipes)]
        groups.append((of_number, rows, runs.assign(heads=number)))
    by_recipe = zip(*(rows for _, rows, _ in groups), strict=True)
    return (
        pd.concat([runs for _, _, runs in groups]),
        [row for rows in by_recipe for row in rows],
        footer(groups),
    )


TABLE_FIGURES = (
    *("elbo", "iwae", "exact", "plug_in", *PRIMARY_SCORES),
    *("perplexity_exact", "perplexity_plug_in", "perplexity_elbo"),
    "head_divergence",
)
"""The columns of the table, if available; behind them the differences of these scores."""


def table(
    rows: Sequence[dict[str, Any]], format_cell: Callable[[dict[str, Any], str, int], str]
) -> list[list[str]]:
    """The rows of the table in nats per target token, titles first."""
    differences = [name for name, score in DIFFERENCES.items() if score in TABLE_FIGURES]
    others = [row for row in rows if row["recipe"] != rows[0]["recipe"]]
    shown = [name for name in TABLE_FIGURES if any(name in row for row in rows)]
    shown += [name for name in differences if any(name in row for row in others)]
    titles = (COLUMNS[name].replace("first row", "first recipe") for name in shown)
    lines = [["recipe", "heads", "seeds", "parameters", *titles]]
    for row in rows:
        index = 0 if row["recipe"] == rows[0]["recipe"] else 1  # the first has no difference
        sizes = [str(row["heads"]), str(row["seeds"]), f"{row['parameters']:,}"]
        lines.append([row["recipe"], *sizes, *(format_cell(row, name, index) for name in shown)])
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    common, line, options = read_program(arguments, "sweep.py", DESCRIPTION, SweepOptions)
    out = Path(options.out)
    hint = f"{rerun_command(options.overwrite)} goes on; what is finished is in {out}"
    with error_handling("sweep.py", hint, hint, user_errors=(ValueError,)):
        network = common.get("network", {})
        plans = {
            number: plan_all(
                common | {"network": network | {"heads": number}},
                line,
                options,
                out / f"heads-{number}",
                "sweep.py",
            )
            for number in options.head_numbers
        }
        all_plans = [plan for of_number in plans.values() for plan in of_number]
        train_all(all_plans, options, out)
        runs, rows, note = read_sweep(plans, list(dict.fromkeys(plan.recipe for plan in all_plans)))
    with error_handling("sweep.py", hint, hint, user_errors=()):
        from latentheads.contrib.plot import draw_sweep, save  # slow to import

        description = describe_plans(all_plans)
        mean = ": mean and 95 % interval" if len(all_plans) > len(rows) else ""
        save(draw_sweep(rows, f"{description}{mean}"), out / "heads.png")
        tables = write_tables(runs, rows, table, 3, out, note)
        trained = [(plan.folder, plan.settings) for plan in all_plans]
        print_and_write("sweep.py", tables, trained, options, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
