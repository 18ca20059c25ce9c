"""Sweeps the number of heads at constant width: recipes against heads, one table, one figure.

python experiments/sweep.py --recipes transformer,coda --head_numbers 4,8,16,32 --width 128
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import compare
import pandas as pd
from command import Parser, read_settings
from pictures import draw_sweep
from words import without

DESCRIPTION = (
    "Trains several recipes with several numbers of heads at constant width: the more heads, "
    "the narrower each, and all attend at the same cost. Data order and noise seeds are the "
    "same. Writes table.csv, table.md and heads.png, as the paper's table 3 and figure 3: mean "
    "over seeds and 95 % interval. Parameters are printed, since a fusion over H heads grows as "
    "H^2 (24 H^2 a block for coda-released). All other options are those of run.py. A finished "
    "run in the folder is used again if its configuration is the same."
)
NUMBERS = "4,8,16,32"


def extend(parser: Parser) -> None:
    """Adds the options of a sweep."""
    compare.extend(parser)
    parser.set_defaults(recipes="transformer,coda", seeds="0")
    parser.add_argument(
        "--head_numbers", type=str, default=NUMBERS, help="heads of every block, comma between"
    )


def sweep(
    words: list[str], recipes: list[str], heads: list[int], seeds: list[int], out: Path
) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """Trains everything; gives every run, and a summary a recipe and number of heads."""
    runs, rows = [], []
    for number in heads:
        own = [*words, "--heads", str(number)]
        found = compare.run_all(own, recipes, seeds, out / f"heads-{number}", "sweep.py")
        runs.append(found.assign(heads=number))
        rows += [{**row, "heads": number} for row in compare.summarise(found, recipes)]
    order = [(recipe, number) for recipe in recipes for number in heads]
    rows.sort(key=lambda row: order.index((row["recipe"], row["heads"])))
    return pd.concat(runs), rows


COLUMNS = ("elbo", "plug_in", "bleu", "perplexity_plug_in", "perplexity_elbo", "head_divergence")


def markdown(rows: list[dict[str, Any]]) -> str:
    """The summary as a Markdown table, ``mean [low, high]``, nats a target token."""
    shown = [name for name in COLUMNS if any(name in row for row in rows)]
    titles = " | ".join(compare.COLUMNS[name] for name in shown)
    lines = [f"| recipe | heads | parameters | {titles} |", "|---|" + "---:|" * (len(shown) + 2)]
    for row in rows:
        cells = " | ".join(compare.cell(row, name) for name in shown)
        lines.append(f"| `{row['recipe']}` | {row['heads']} | {row['parameters']:,} | {cells} |")
    return "\n".join(lines) + "\n"


def numbers(text: str, width: int) -> list[int]:
    """The numbers of heads."""
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(
            f"head_numbers must be whole numbers with commas between, got {text!r}"
        ) from None
    for number in found:
        if number < 1 or width % number:
            raise ValueError(f"head_numbers must divide the width {width}, got {number}")
    if len(set(found)) < len(found):
        raise ValueError(f"head_numbers must differ from each other, got {text}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    settings, options = read_settings(words, "sweep.py", DESCRIPTION, extend)
    recipes = options.recipes.split(",")
    out = Path(options.out or "runs/sweep")
    try:
        compare.check_words(words, recipes, options.seeds, ("--heads",), "sweep.py")
        heads = numbers(options.head_numbers, settings.network.width)
        plain = without(words, ("--head_numbers", "--recipes", "--seeds"))
        seeds = compare.seed_numbers(options.seeds)
        runs, rows = sweep(plain, recipes, heads, seeds, out)
    except ValueError as mistake:
        print(f"sweep.py: error: {mistake}", file=sys.stderr)
        return 2
    except (FloatingPointError, OSError) as trouble:
        print(f"sweep.py: error: {trouble}; finished runs are in {out}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"sweep.py: stopped; finished runs are in {out}", file=sys.stderr)
        return 130
    runs.to_csv(out / "runs.csv", index=False)
    pd.DataFrame(rows).to_csv(out / "table.csv", index=False)
    (out / "table.md").write_text(markdown(rows), encoding="utf-8")
    draw_sweep(rows, out / "heads.png")
    print("Test part, nats per target token; mean over seeds [95 % interval].")
    print(markdown(rows), end="")
    print(f"written to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
