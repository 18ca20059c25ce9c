"""Scores of runs over seeds: means with intervals, and differences that are paired by seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from latentheads.checks import check_choice, check_list, check_not_empty
from latentheads.errors import shown
from latentheads.metrics.compared import COMPARED, METRICS
from latentheads.metrics.scores import SCORES, Scores, describe

if TYPE_CHECKING:
    import pandas as pd

    from latentheads.runs.results import Perplexity, Results

INTERVALS = ("head_divergence", "perplexity", "average_", "task ")
"""Prefixes of the other columns that have a mean and an interval."""

EQUAL = ("exact", "iwae", "plug_in")
"""Scores that equal the bound of a network without noise."""

TRUTH = ("truth", "truth_sentences", "sentences")
"""Columns that depend on the corpus, and not on a recipe."""

TOKENS = ("tokens", "token_digest")
"""Columns of how a text is cut into tokens; the second where the caller of ``summarise`` has it."""

TEXT = ("corpus", "sentences", "truth", *TOKENS)
"""Columns in which runs that are tested on one text agree; on another, no figure is comparable."""

DIGITS = 6
"""To how many digits the true log p of one text is the same on every machine."""

DIFFERENCES = {"difference": "elbo"} | {
    f"difference_{name}": name for name in ("exact", "iwae", *METRICS)
}
"""The score that each difference to the first recipe is of."""


class Spread(NamedTuple):
    """A mean over seeds, and its 95 % interval of Student's t."""

    mean: float
    low: float
    high: float


def spread(values: Iterable[float]) -> Spread:
    """The mean of a score over seeds, and its interval.

    Two recipes with one seed share the order of the data and the noise. So compare them by the
    spread of their differences, taken seed by seed.

    Example:
        >>> plain, aligned = [-1.70, -1.68, -1.69], [-1.56, -1.55, -1.54]
        >>> [round(end, 3) for end in spread([b - a for a, b in zip(plain, aligned)])]
        [0.14, 0.115, 0.165]
    """
    numbers = [float(value) for value in values]
    check_not_empty("values", numbers)
    mean = math.fsum(numbers) / len(numbers)
    if len(numbers) < 2:
        return Spread(mean, math.nan, math.nan)
    from scipy import stats  # slow to import

    half = float(stats.t.ppf(0.975, len(numbers) - 1) * stats.sem(numbers))
    return Spread(mean, mean - half, mean + half)


def tabulate(runs: Iterable[tuple[str, Results]]) -> pd.DataFrame:
    """A row a run, of its test part.

    Beside runs with noise, a network without it has the columns of theirs that would repeat its
    exact log p, such as IWAE: all are equal.

    Args:
        runs: The recipe of each run, and its results, such as ``run.results``.
    """
    import pandas as pd  # slow to import

    rows, deterministic = [], []
    for recipe, results in runs:
        if not hasattr(results, "kl_how"):  # of a run without a report they are None
            raise ValueError(
                f"{recipe}: results must be a finished run.results, got {shown(results)}"
            )
        rows.append(_row(recipe, results))
        if {*results.kl_how.values()} <= {"fixed"}:
            deterministic.append(rows[-1])
    columns = dict.fromkeys(name for row in rows for name in row)
    for row in deterministic:
        row |= {
            name: row[bound]
            for name in columns
            for score in EQUAL
            if name.endswith(score) and (bound := f"{name.removesuffix(score)}elbo") in row
        }
    return pd.DataFrame(rows)


def _row(recipe: str, results: Results) -> dict[str, Any]:
    by_type = results.head_divergence_by_attention_type.items()
    return {
        "recipe": recipe,
        "seed": results.seed,
        "corpus": results.corpus,
        **_compared(results.test),
        "head_divergence": results.head_divergence,
        **{f"head_divergence {attention_type}": value for attention_type, value in by_type},
        **_perplexities(results.perplexity),
        **_of_tasks(results),
        "parameters": results.parameters,
        "tokens_per_second": results.tokens_per_second,
        **{name: results.test.get(name) for name in (*TRUTH, "tokens", "iwae_k")},
    }


def _compared(scores: Scores, names: Iterable[str] = COMPARED) -> dict[str, Any]:
    """The scores that have a mean over seeds; beside the exact log p none that estimates it."""
    return {
        name: scores[name]
        for name in names
        if scores.get(name) is not None and scores.get(describe(name).estimates) is None
    }


def _perplexities(perplexities: Sequence[Perplexity]) -> dict[str, Any]:
    """Perplexities by word: of the test part in the last way named, then every one."""
    last = perplexities[-1].word if perplexities else {}
    return {f"perplexity_{name}": value for name, value in _not_estimated(last).items()} | {
        f"perplexity of {perplexity.part} by {perplexity.mode}: {name}": value
        for perplexity in perplexities
        for name, value in _not_estimated(perplexity.word).items()
    }


def _not_estimated(perplexities: Mapping[str, Any]) -> dict[str, Any]:
    """Perplexities; beside the exact one none that estimates it."""
    return {
        name: value
        for name, value in perplexities.items()
        if perplexities.get(SCORES[name].estimates) is None
    }


def _of_tasks(results: Results) -> dict[str, Any]:
    """The averages over tasks, then the scores of every task."""
    averages = _compared(results.average, results.average).items()
    return {f"average_{name}": value for name, value in averages} | {
        f"task {task}: {name}": value
        for task, scores in results.tasks.items()
        for name, value in _compared(scores).items()
    }


def summarise(runs: pd.DataFrame, recipes: Sequence[str]) -> list[dict[str, Any]]:
    """One row a recipe: mean and interval of each score, differences to the first paired by seed.

    A score has a difference to the first recipe if all runs of both have it and both are tested on
    one text; it is over the seeds that both have. If the text is cut into other tokens, metrics of
    the output have a difference, and nats per token have none. IWAE has one if both recipes have
    as many samples and neither has an exact log p: that a bound is lower than the exact log p of
    another model shows nothing.

    Raises:
        ValueError: There is no run of a recipe, or there are two of a recipe and seed.
    """
    check_not_empty("runs", runs)
    check_list("recipes", recipes)
    check_not_empty("recipes", recipes)
    for recipe in recipes:
        check_choice("recipe", recipe, sorted(set(runs.recipe)))
    runs = runs[runs.recipe.isin(recipes)]
    if len(duplicates := runs[runs.duplicated(["recipe", "seed"])]):
        duplicate = duplicates.iloc[0]
        raise ValueError(
            f"recipe {duplicate.recipe!r} has two runs of seed {duplicate.seed}: "
            "a run counts once, and one of other options needs a name of its own as its recipe"
        )
    base = runs[runs.recipe == recipes[0]].set_index("seed")
    rows: list[dict[str, Any]] = []
    for recipe in recipes:
        recipe_runs = runs[runs.recipe == recipe].set_index("seed")
        row: dict[str, Any] = {"recipe": recipe, "seeds": len(recipe_runs)}
        of_text = [name for name in dict.fromkeys((*TRUTH, *TEXT)) if name in recipe_runs]
        row |= {name: recipe_runs[name].tolist()[0] for name in of_text}
        for name in recipe_runs.columns:
            is_compared = name in COMPARED or name.startswith(INTERVALS)
            if is_compared and _have(recipe_runs, name):
                row |= spread_columns(name, recipe_runs[name])
        first = rows[0] if rows else row
        for name, figure in DIFFERENCES.items():
            of_one_text = is_of_text(row, first, figure in METRICS)
            if not (of_one_text and _have_both(base, recipe_runs, figure)):
                continue
            differences = (recipe_runs[figure] - base[figure]).dropna()
            row |= spread_columns(name, differences) if len(differences) else {}
        row["parameters"] = int(recipe_runs.parameters.iloc[0])
        speeds = recipe_runs.tokens_per_second.astype(float).dropna()
        row["tokens_per_second"] = float(speeds.median()) if len(speeds) else math.nan
        rows.append(row)
    return rows


def _have(runs: pd.DataFrame, figure: str) -> bool:
    """Whether all of some runs have a figure."""
    return figure in runs and not runs[figure].isna().any()


def _have_both(first: pd.DataFrame, second: pd.DataFrame, figure: str) -> bool:
    """Whether all runs of two recipes have a figure, in a form whose difference has a meaning."""
    if not (_have(first, figure) and _have(second, figure)):
        return False
    if figure != "iwae":
        return True
    num_samples = {*first.get("iwae_k", []), *second.get("iwae_k", [])}
    return len(num_samples) == 1 and not (_have(first, "exact") or _have(second, "exact"))


def is_of_text(
    row: Mapping[str, Any], first: Mapping[str, Any], other_tokens: bool = False
) -> bool:
    """Whether a row of a summary is of the text of another, and its figures comparable.

    Args:
        row: The row.
        first: The other.
        other_tokens: The text may be cut into other tokens: scores are comparable then.
    """
    names = [name for name in TEXT if not (other_tokens and name in TOKENS)]
    return all(_rounded(row.get(name)) == _rounded(first.get(name)) for name in names)


def _rounded(value: Any) -> Any:
    """A value to compare; None for NaN, which is how a table writes that there is none."""
    if not isinstance(value, float):
        return value
    return None if math.isnan(value) else round(value, DIGITS)


def spread_columns(name: str, values: Iterable[float]) -> dict[str, float]:
    """The three columns of a figure: its mean under its own name, and the ends of its interval.

    An interval of Student's t is cut where the scale of the figure ends, as at 0 and 100 for BLEU.
    """
    mean, low, high = spread(values)
    least, most = _scale_of(name)
    if least <= mean <= most:  # an estimate of 0 may be below it, and is left as it is
        low, high = np.clip([low, high], least, most).tolist()  # keeps NaN
    return {name: mean, f"{name}_low": low, f"{name}_high": high}


def _scale_of(name: str) -> tuple[float, float]:
    """The ends of the scale of a column; none for a difference."""
    if name.startswith("perplexity"):
        return 1.0, math.inf
    if name.startswith("head_divergence"):
        return 0.0, math.inf
    info = describe(name.removeprefix("average_").rpartition(": ")[2])
    return info.least, info.most
