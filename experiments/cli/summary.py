"""The results of a comparison: a row for every run, the summary over seeds, the table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentheads.errors import UnfinishedError
from latentheads.experiments.cli.comparison import Plan
from latentheads.experiments.cli.tables import markdown, packed, quoted
from latentheads.files import write_text
from latentheads.metrics.intervals import interval
from latentheads.metrics.scores import SCORES
from latentheads.runs.sections import lacking

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "cell", "read_all", "summarise", "write_tables"]

SPREAD = ("head_divergence", "perplexity", "average_", "task ")
"""Beginnings of the other columns that have a mean and an interval."""

TRUTH = ("truth", "truth_sentences", "sentences")
"""Columns that depend on the corpus, and not on a recipe."""

FIGURES = ("elbo", "log_likelihood", "kl", "exact", "gap", "iwae", "plug_in", *SCORES)
"""Columns of a part, each of which has a mean and an interval."""

DRAWN = ("iwae", "plug_in")
"""Figures left out where the exact log p is known: the plug-in network is then the exact law."""


def read_all(plans: Sequence[Plan]) -> pd.DataFrame:
    """A row a run.

    Raises:
        UnfinishedError: A run has no results, or its report lacks something.
    """
    import pandas as pd  # takes long to load

    rows = []
    for plan in plans:
        results = plan.find_results()
        if results is None:
            raise UnfinishedError(f"{plan.folder} is not finished")
        if lacks := lacking(results.to_json()):
            raise UnfinishedError(f"the report of {plan.folder} lacks {lacks}")
        rows.append(_row(plan.recipe, results.to_json()))
    return pd.DataFrame(rows)


def _row(label: str, results: dict[str, Any]) -> dict[str, Any]:
    test = results["test"]
    chains = results["head_divergence_by_chain"].items()
    return {
        "recipe": label,
        "seed": results["seed"],
        **_told(test),
        "head_divergence": results["head_divergence"],
        **{f"head_divergence {chain}": value for chain, value in chains},
        **_perplexities(results.get("perplexity", [])),
        **_of_tasks(results),
        "parameters": results["parameters"],
        "tokens_per_second": results["tokens_per_second"],
        **{name: test.get(name) for name in TRUTH},
    }


def _told(found: Mapping[str, Any], names: Iterable[str] = FIGURES) -> dict[str, Any]:
    """The figures that are known; beside the exact log p none that comes of draws."""
    left_out = DRAWN if found.get("exact") is not None else ()
    return {
        name: found[name] for name in names if found.get(name) is not None and name not in left_out
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
    averages = results.get("average", {})
    told = _told(averages, averages).items()
    return {f"average_{name}": value for name, value in told} | {
        f"task {task}: {name}": value
        for task, figures in results.get("tasks", {}).items()
        for name, value in _told(figures).items()
    }


def summarise(runs: pd.DataFrame, recipes: list[str]) -> list[dict[str, Any]]:
    """One row a recipe: mean and interval of each figure, paired difference of the bound."""
    base = runs[runs.recipe == recipes[0]].set_index("seed").elbo
    rows = []
    for recipe in recipes:
        mine = runs[runs.recipe == recipe].set_index("seed")
        row: dict[str, Any] = {"recipe": recipe, "seeds": len(mine)}
        row |= {name: mine[name].iloc[0] for name in TRUTH}
        for name in mine.columns:
            spread = name in FIGURES or name.startswith(SPREAD)
            if spread and not mine[name].isna().any():
                values = [float(value) for value in mine[name]]
                row[name], row[f"{name}_low"], row[f"{name}_high"] = interval(values)
        paired = interval(list(mine.elbo - base))
        row["difference"], row["difference_low"], row["difference_high"] = paired
        row["parameters"] = int(mine.parameters.iloc[0])
        row["tokens_per_second"] = float(mine.tokens_per_second.astype(float).median())
        rows.append(row)
    return rows


COLUMNS = {
    "elbo": "ELBO",
    "log_likelihood": "log-likelihood",
    "kl": "KL",
    "exact": "exact log p",
    "gap": "gap of the guide",
    "iwae": "IWAE",
    "plug_in": "plug-in (no bound)",
    **SCORES,
    "perplexity_exact": "perplexity, exact",
    "perplexity_plug_in": "perplexity, plug-in",
    "perplexity_elbo": "perplexity from the bound",
    "perplexity_iwae": "perplexity from IWAE",
    "head_divergence": "JSD",
    "average_elbo": "ELBO, average of tasks",
    "average_exact": "exact log p, average of tasks",
    "average_plug_in": "plug-in, average of tasks",
    **{f"average_{name}": f"{title}, average of tasks" for name, title in SCORES.items()},
    "difference": "ELBO less first row",
}


def cell(row: dict[str, Any], name: str, place: int = 0) -> str:
    """A mean with its interval; nothing where there is none, or a row is compared with itself."""
    if name not in row or (name in ("difference", "p") and place == 0):
        return ""
    if name == "p":
        return ", ".join(f"{p:.3f}" for p in row[name])
    few = name.startswith(("head_divergence", "perplexity")) or name.endswith(tuple(SCORES))
    digits = 2 if few else 4
    mean = f"{row[name]:.{digits}f}"
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return mean if math.isnan(low) else f"{mean} [{low:.{digits}f}, {high:.{digits}f}]"


def cell_of_terminal(row: dict[str, Any], name: str, place: int = 0) -> str:
    """The same in less room: a mean, and half of its interval."""
    said = cell(row, name, place)
    if "[" not in said:
        return said
    mean = said.partition(" ")[0]
    digits = len(mean.partition(".")[2])
    return f"{mean} ±{(row[f'{name}_high'] - row[f'{name}_low']) / 2:.{digits}f}"


def write_tables(
    runs: pd.DataFrame,
    rows: Sequence[dict[str, Any]],
    table: Callable[[Sequence[dict[str, Any]], Callable[..., str]], list[list[str]]],
    names: int,
    out: Path,
) -> str:
    """Writes every run, and the summary twice; returns what is said of them.

    Args:
        runs: One row a run.
        rows: The summary.
        table: Lays its rows out, each cell as it is told.
        names: The first columns of that, which say whose a row is.
        out: Where.
    """
    import pandas as pd  # takes long to load

    write_text(out / "runs.csv", runs.to_csv(index=False))
    write_text(out / "table.csv", pd.DataFrame(rows).to_csv(index=False))
    write_text(out / "table.md", markdown(quoted(table(rows, cell))))
    title = "Test part, nats per target token; mean over seeds ± half of its 95 % interval."
    return f"{title}\n{packed(table(rows, cell_of_terminal), names)}written to {out}"
