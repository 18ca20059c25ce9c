"""Compares recipes: the same data order and noise seeds, several seeds, one table, one figure.

python experiments/compare.py --recipes coda-cs,mean-field,autoregressive,cascaded --seeds 0,1,2
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from command import Parser, read_settings
from data import make_corpus
from experiment import Run
from folder import Folder
from pictures import draw_elbos
from scipy import stats
from score import compare, read_run
from settings import Settings
from words import split_law, without

from latentheads.selecting import LAWS

DESCRIPTION = (
    "Trains several recipes with several seeds on one corpus, the same data order and the same "
    "noise seeds, and writes table.csv, table.md and elbos.png: mean over seeds, 95 % interval, "
    "and the paired difference to the first recipe; of translations also significance.csv, the "
    "paired bootstrap of BLEU and chrF with the first recipe's of the same seed. All other options "
    "are those of run.py. A finished run in the folder is used again if its configuration is the "
    "same."
)
OF_DRAWS = ("--candidates", "--temperature", "--least_temperature")
"""Options that only recipes with a law of selection that draws take; others are run without."""
RECIPES = "coda-cs,mean-field,autoregressive,cascaded"
SPREAD = ("head_divergence", "perplexity", "average_", "task ")
"""What the other columns begin with that have a mean and an interval."""

FIGURES = (
    *("elbo", "log_likelihood", "kl", "iwae", "plug_in"),
    *("bleu", "chrf", "paper_bleu", "rouge1", "rouge2", "rouge_l"),
)


def extend(parser: Parser) -> None:
    """Adds the options of a comparison."""
    parser.add_argument(
        "--recipes",
        type=str,
        default=RECIPES,
        help="recipes or prior+guide, as independent+my_module:MyGuide, with a law of "
        f"selection if wanted ({', '.join('+' + law for law in LAWS)}), comma between; the first "
        "is the base",
    )
    parser.add_argument("--seeds", type=str, default="0,1,2", help="seeds, comma between")


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and 95 % interval of Student's t; the interval is NaN for a single value."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan, math.nan
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return mean, mean - half, mean + half


def run_all(
    words: list[str], recipes: list[str], seeds: list[int], out: Path, prog: str = "compare.py"
) -> pd.DataFrame:
    """Runs every recipe with every seed, or reads what a finished run wrote."""
    plans = [
        (recipe, _plan(words, recipe, seed, out, prog)) for seed in seeds for recipe in recipes
    ]
    corpus = make_corpus(plans[0][1].data, tell=print)
    rows = []
    for label, plan in plans:
        results = Folder(plan.out, plan.text, plan.overwrite).results
        if results is None:
            run = Run(plan, corpus)
            print(run.headline(), f"seed {plan.seed}", flush=True)
            run.train()
            results = run.finish()
        rows.append(_row(label, results))
    return pd.DataFrame(rows)


def significance(runs: pd.DataFrame, out: Path) -> pd.DataFrame:
    """Paired bootstrap of every translation with the first recipe's of the same seed."""
    rows = []
    for seed, mine in runs.groupby("seed", sort=False):
        labels = list(mine.recipe)
        systems = [read_run(run_folder(out, label, int(seed))) for label in labels]
        for label, found in zip(labels, compare(systems), strict=True):
            for name, estimate in (("bleu", found.bleu), ("chrf", found.chrf)):
                figures = {**asdict(estimate), "low": estimate.low, "high": estimate.high}
                rows.append({"recipe": label, "seed": seed, "metric": name, **figures})
    return pd.DataFrame(rows)


def run_folder(out: Path, recipe: str, seed: int) -> Path:
    """Where a run of a comparison lies."""
    return out / f"{recipe.replace(':', '.')}-seed{seed}"


def _plan(words: list[str], recipe: str, seed: int, out: Path, prog: str) -> Settings:
    name, law = split_law(recipe)
    prior, plus, guide = name.partition("+")
    pair = ["--prior", prior, "--guide", guide] if plus else ["--recipe", name]
    pair += ["--select", law or "none"]
    foreign = [*OF_DRAWS] if law in (None, "static") else []
    foreign += [] if law == "static" else ["--families"]
    words = without(words, foreign)
    own = [*pair, "--seed", str(seed), "--out", str(run_folder(out, recipe, seed))]
    return read_settings([*words, *own], prog, DESCRIPTION, extend)[0]


def _row(label: str, results: dict[str, Any]) -> dict[str, Any]:
    test = results["test"]
    figures = {name: test[name] for name in FIGURES if test.get(name) is not None}
    chains = results["head_divergence_by_chain"].items()
    return {
        "recipe": label,
        "seed": results["seed"],
        **figures,
        "head_divergence": results["head_divergence"],
        **{f"head_divergence {chain}": value for chain, value in chains},
        **_perplexities(results.get("perplexity", [])),
        **_of_tasks(results),
        "parameters": results["parameters"],
        "tokens_per_second": results["tokens_per_second"],
        "truth": test["truth"],
    }


def _perplexities(found: list[dict[str, Any]]) -> dict[str, float]:
    """Perplexities by word: of the test part in the last way named, then every one."""
    short = [
        (f"perplexity_{name}", value) for one in found[-1:] for name, value in one["word"].items()
    ]
    return dict(short) | {
        f"perplexity of {one['part']} by {one['mode']}: {name}": value
        for one in found
        for name, value in one["word"].items()
    }


def _of_tasks(results: dict[str, Any]) -> dict[str, float]:
    """The averages over tasks, then the figures of every task."""
    averages = results.get("average", {}).items()
    return {f"average_{name}": value for name, value in averages} | {
        f"task {task}: {name}": figures[name]
        for task, figures in results.get("tasks", {}).items()
        for name in FIGURES
        if figures.get(name) is not None
    }


def summarise(runs: pd.DataFrame, recipes: list[str]) -> list[dict[str, Any]]:
    """One row a recipe: mean and interval of each figure, paired difference of the bound."""
    base = runs[runs.recipe == recipes[0]].set_index("seed").elbo
    rows = []
    for recipe in recipes:
        mine = runs[runs.recipe == recipe].set_index("seed")
        row: dict[str, Any] = {"recipe": recipe, "seeds": len(mine), "truth": mine.truth.iloc[0]}
        for name in mine.columns:
            if name in FIGURES or name.startswith(SPREAD):
                values = [float(value) for value in mine[name]]
                row[name], row[f"{name}_low"], row[f"{name}_high"] = interval(values)
        paired = interval(list(mine.elbo - base))
        row["difference"], row["difference_low"], row["difference_high"] = paired
        row["parameters"] = int(mine.parameters.iloc[0])
        row["tokens_per_second"] = float(mine.tokens_per_second.median())
        rows.append(row)
    return rows


COLUMNS = {
    "elbo": "ELBO",
    "log_likelihood": "log-likelihood",
    "kl": "KL",
    "iwae": "IWAE",
    "plug_in": "plug-in (no bound)",
    "bleu": "BLEU",
    "p": "p of BLEU, a seed each",
    "chrf": "chrF",
    "paper_bleu": "BLEU by the papers' protocol",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rouge_l": "ROUGE-L",
    "perplexity_plug_in": "perplexity, plug-in",
    "perplexity_elbo": "perplexity from the bound",
    "perplexity_iwae": "perplexity from IWAE",
    "head_divergence": "JSD",
    "average_elbo": "ELBO, average of tasks",
    "average_plug_in": "plug-in, average of tasks",
    "average_bleu": "BLEU, average of tasks",
    "average_chrf": "chrF, average of tasks",
    "difference": "ELBO less first row",
}


def markdown(rows: list[dict[str, Any]]) -> str:
    """The summary as a Markdown table, ``mean [low, high]``, nats a target token."""
    own = [name for name in rows[0] if name.startswith("task ") and name.endswith(": bleu")]
    titles = COLUMNS | {name: f"BLEU of {name[5:-6]}" for name in own}
    shown = {name: title for name, title in titles.items() if name in rows[0]}
    lines = ["| recipe | seeds | " + " | ".join(shown.values()) + " | parameters |"]
    lines.append("|---|" + "---:|" * (len(shown) + 2))
    for place, row in enumerate(rows):
        cells = [cell(row, name, place) for name in shown]
        ends = f"{row['parameters']:,}"
        lines.append(f"| `{row['recipe']}` | {row['seeds']} | {' | '.join(cells)} | {ends} |")
    return "\n".join(lines) + "\n"


def cell(row: dict[str, Any], name: str, place: int = 0) -> str:
    """A mean with its interval; nothing where the first row is compared with itself."""
    if name in ("difference", "p") and place == 0:
        return ""
    if name == "p":
        return ", ".join(f"{p:.3f}" for p in row[name])
    few = name.startswith(("head_divergence", "perplexity", "rouge")) or name.endswith(
        ("bleu", "chrf")
    )
    digits = 2 if few else 4
    mean = f"{row[name]:.{digits}f}"
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return mean if math.isnan(low) else f"{mean} [{low:.{digits}f}, {high:.{digits}f}]"


def seed_numbers(text: str) -> list[int]:
    """The seeds that a word names."""
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(f"seeds must be whole numbers with commas between, got {text!r}") from None


def check_words(
    words: Sequence[str],
    recipes: Sequence[str],
    seeds: str,
    more: Sequence[str] = (),
    prog: str = "compare.py",
) -> None:
    """Refuses options of a single run, and what is named twice.

    Args:
        words: The command line.
        recipes: The recipes.
        seeds: The seeds, comma between.
        more: Further options that are refused.
        prog: The program's name.
    """
    own = {"--recipe", "--guide", "--prior", "--seed", "--tensorboard", *more}
    taken = own & {word.partition("=")[0] for word in words}
    if taken:
        raise ValueError(f"{min(taken)} belongs to run.py: {prog} takes --recipes and --seeds")
    for name, given in (("recipes", recipes), ("seeds", seeds.split(","))):
        if len(set(given)) < len(given):
            raise ValueError(f"{name} must differ from each other, got {','.join(given)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    own = without(words, (*OF_DRAWS, "--families"))
    _, options = read_settings(own, "compare.py", DESCRIPTION, extend)
    recipes = options.recipes.split(",")
    out = Path(options.out or "runs/compare")
    try:
        check_words(words, recipes, options.seeds)
        runs = run_all(words, recipes, seed_numbers(options.seeds), out)
    except ValueError as mistake:
        print(f"compare.py: error: {mistake}", file=sys.stderr)
        return 2
    except (FloatingPointError, OSError) as trouble:
        print(f"compare.py: error: {trouble}; finished runs are in {out}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"compare.py: stopped; finished runs are in {out}", file=sys.stderr)
        return 130
    rows = summarise(runs, recipes)
    if "bleu" in runs:
        tests = significance(runs, out)
        tests.to_csv(out / "significance.csv", index=False)
        for row in rows:
            mine = tests[(tests.recipe == row["recipe"]) & (tests.metric == "bleu")]
            row["p"] = [float(p) for p in mine.p.dropna()]
    runs.to_csv(out / "runs.csv", index=False)
    pd.DataFrame(rows).to_csv(out / "table.csv", index=False)
    (out / "table.md").write_text(markdown(rows), encoding="utf-8")
    draw_elbos(rows, out / "elbos.png")
    print("Test part, nats per target token; mean over seeds [95 % interval].")
    print(markdown(rows), end="")
    print(f"written to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
