"""The results of a comparison: a row for every run, the summary over seeds, the table."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentheads.data.base import Data
from latentheads.errors import UnfinishedError
from latentheads.experiments.cli.tables import PERPLEXITIES, markdown, packed, quoted
from latentheads.experiments.comparison.recipes import Plan
from latentheads.files import read_json, write_text
from latentheads.metrics.compared import COMPARED, METRICS
from latentheads.metrics.scores import SCORES, format_perplexity, is_below_prior
from latentheads.metrics.seeds import DIFFERENCES, is_of_text, spread, tabulate
from latentheads.runs.folder import TEXTS, read_results
from latentheads.runs.results import lacking

if TYPE_CHECKING:
    import pandas as pd


def read_all(plans: Sequence[Plan]) -> pd.DataFrame:
    """A row a run.

    Raises:
        UnfinishedError: The report of a run is not complete.
        ValueError: The text of the corpus has changed from one run to another.
    """
    results_by_recipe = []
    for plan in plans:
        results = read_results(plan.folder)
        assert results is not None, "what is not finished has been named before"
        if missing := lacking(results.to_json()):
            raise UnfinishedError(f"the report of {plan.folder} has no {missing}")
        results_by_recipe.append((plan.recipe, results))
    check_texts(plans)
    return tabulate(results_by_recipe).assign(token_digest=[*map(_digest_of_tokens, plans)])


def _digest_of_tokens(plan: Plan) -> str | None:
    """A digest of a language model's test tokens: with other unknown words they are others."""
    path = plan.folder / TEXTS
    is_text_alone = not (plan.folder / "test.references.txt").exists()
    return read_json(path)["test"] if is_text_alone and path.exists() else None


def check_texts(plans: Iterable[Plan]) -> None:
    """Raises an error for runs of one corpus whose text has changed between them."""
    first_runs: dict[Data, tuple[Path, Any]] = {}
    for plan in plans:
        if not (path := plan.folder / TEXTS).exists():
            continue
        texts = read_json(path)
        first, its = first_runs.setdefault(plan.settings.data, (plan.folder, texts))
        if changed := [name for name in its if its[name] != texts.get(name)]:
            raise ValueError(
                f"{first} and {plan.folder} are of different texts: that of {', '.join(changed)} "
                "has changed between them; choose another out or --overwrite"
            )


WIDEST = 100
"""Columns of a line in a terminal."""

ROUNDING = 1e-12
"""Widest interval of values that are equal but for rounding."""

OF_OWN_MODELS = (
    "Each row is of a model of its own. A difference of ELBOs is then no difference of tightness: "
    "the models differ, too. Models are compared by exact log p; where two have none, by IWAE, a "
    "tighter bound of equal K; a bound below the exact log p of another model shows nothing. "
    "Guides are compared on one model, with --train_only guide --start RUN."
)
"""What is said where bounds of several models stand in one table."""

BELOW_PRIOR = "Bounds below that of their model's own prior, guide tied"
"""What is said of rows whose guide has a larger gap than the prior."""

OF_ONE_MODEL = (
    "All rows bound one model; the seeds are of the guide, and no interval has in it how models of "
    "other seeds differ."
)
"""What is said of guides of one model."""

GOES_ON = (
    " A guide that the run of --start has itself goes on from there, the others begin: "
    "--start_with model lets each begin."
)

OWN_PLUG_IN = (
    "A network without noise is its own plug-in network: in that column it has its exact log p."
)
"""The note below a table whose column of what is no bound has exact values, too."""

OTHER_TEXT = "Tested on another text than the first row, whose figures are not comparable with its"
"""The note on rows of another corpus, or of other tokens of it."""

COLUMNS = {
    **{name: SCORES[name].heading for name in COMPARED},
    **{f"perplexity_{name}": title.removesuffix("_{k}") for name, title in PERPLEXITIES.items()},
    "head_divergence": "JSD",
    **{
        f"average_{name}": f"{SCORES[name].heading}, average of tasks"
        for name in ("elbo", "exact", "plug_in", *METRICS)
    },
}
COLUMNS |= {
    name: f"{COLUMNS[score].removesuffix(', %')} less first row"
    for name, score in DIFFERENCES.items()
}


def cell(row: dict[str, Any], name: str, index: int = 0) -> str:
    """A mean with its interval; nothing where there is none, or a row is compared with itself.

    Equal values of all seeds, as of a frozen model and guide exact, have no interval.
    """
    if name not in row or (index == 0 and (name == "p" or name in DIFFERENCES)):
        return ""
    if name == "p":
        return ", ".join(f"{p:.3f}" for p in row[name])
    ends = (row[name], row[f"{name}_low"], row[f"{name}_high"])
    if name.startswith("perplexity"):
        mean, low, high = map(format_perplexity, ends)
    else:
        digits = 2 if name.startswith("head_divergence") or name.endswith(METRICS) else 4
        mean, low, high = (f"{end:z.{digits}f}" for end in ends)  # z: no zero is below 0
    has_spread = ends[2] - ends[1] > ROUNDING  # false for NaN
    return f"{mean} [{low}, {high}]" if has_spread else mean


def cell_of_terminal(row: dict[str, Any], name: str, index: int = 0) -> str:
    """The same in less room: a mean, and half of its interval, from the end that is not cut."""
    text = cell(row, name, index)
    if "[" not in text:
        return text
    mean = text.partition(" ")[0]
    half = max(row[f"{name}_high"] - row[name], row[name] - row[f"{name}_low"])
    if name.startswith("perplexity"):
        return f"{mean} ±{format_perplexity(half)}"
    return f"{mean} ±{half:.{len(mean.partition('.')[2])}f}"


Group = tuple[Sequence[Plan], Sequence[dict[str, Any]], "pd.DataFrame"]
"""Runs that are compared with each other: their plans, the rows of their summary, a row a run."""


def footer(groups: Sequence[Group]) -> str:
    """What rows may be compared by, and which of them may not."""
    plans = [plan for group, _, _ in groups for plan in group]
    rows = [row for _, of_group, _ in groups for row in of_group]
    notes = [_describe_models(plans)] if len(rows) > 1 else []
    for group in groups:
        notes += [_name_below_prior(*group), _name_other_texts(group[1])]
    if any("plug_in" in row and "exact" in row for row in rows):
        notes.append(OWN_PLUG_IN)
    return " ".join(filter(None, notes))


def has_one_model(plans: Sequence[Plan]) -> bool:
    """Whether all rows bound the log p of one model with the same weights."""
    frozen = all(plan.settings.train_only == "guide" for plan in plans)
    return frozen and len({plan.settings.start for plan in plans}) == 1


def _describe_models(plans: Sequence[Plan]) -> str:
    """What the rows may be compared by."""
    if not has_one_model(plans):
        return OF_OWN_MODELS
    return OF_ONE_MODEL + (GOES_ON if plans[0].settings.start_with == "all" else "")


def _name_below_prior(
    plans: Sequence[Plan], rows: Sequence[dict[str, Any]], runs: pd.DataFrame
) -> str:
    """Names the rows whose guide loses more than its model's prior would."""
    tied = {plan.recipe for plan in plans if plan.settings.pair.guide_class.is_tied}
    priors = [row for row in rows if row["recipe"] in tied and has_one_model(plans)]
    below = []
    for row in rows:
        prior = next((prior for prior in priors if is_of_text(row, prior)), None)
        if not is_below_prior(row, None if prior is None else prior["elbo"]):
            continue
        if prior is not None and "gap" not in row:  # sampled bounds: by more than their spread
            own, other = (
                runs[runs.recipe == recipe].set_index("seed").elbo
                for recipe in (row["recipe"], prior["recipe"])
            )
            if spread((own - other).dropna()).high >= 0:
                continue
        below.append(_name(row))
    names = ", ".join(below)
    return f"{BELOW_PRIOR}: {names}." if names else ""


def _name_other_texts(rows: Sequence[dict[str, Any]]) -> str:
    """Names the rows that are not comparable with the first."""
    names = ", ".join(_name(row) for row in rows if not is_of_text(row, rows[0]))
    return f"{OTHER_TEXT}: {names}." if names else ""


def _name(row: Mapping[str, Any]) -> str:
    """The recipe of a row; in a sweep, with its number of heads."""
    return f"{row['recipe']} ({row['heads']} heads)" if "heads" in row else row["recipe"]


def write_tables(
    runs: pd.DataFrame,
    rows: Sequence[dict[str, Any]],
    table: Callable[[Sequence[dict[str, Any]], Callable[..., str]], list[list[str]]],
    names: int,
    out: Path,
    note: str = "",
) -> str:
    """Writes every run, and the summary twice; returns the printed table.

    Args:
        runs: One row a run.
        rows: The summary.
        table: Arranges the rows in cells with a cell formatter.
        names: Number of first columns, which identify a row.
        out: The output folder.
        note: A note below the table.
    """
    import pandas as pd  # slow to import

    write_text(out / "runs.csv", runs.to_csv(index=False))
    write_text(out / "table.csv", pd.DataFrame(rows).to_csv(index=False))
    below = f"\n{note}\n" if note else ""
    write_text(out / "table.md", markdown(quoted(table(rows, cell))) + below)
    text = packed(table(rows, cell_of_terminal), names)
    spread = "; mean over seeds ± half of its 95 % interval" * ("±" in text)
    title = f"Test part, nats per target token{spread}."
    text += "".join(f"{line}\n" for line in textwrap.wrap(note, WIDEST))
    return f"{title}\n{text}written to {out}"
