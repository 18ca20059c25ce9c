"""Recipes compared: every run, its row, the summary over seeds, the table."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jsonargparse import Namespace

from latentheads.checks import distinct
from latentheads.corpora.options import make_corpus
from latentheads.errors import UnfinishedError
from latentheads.experiments.cli.cluster import ClusterRun, run_on_cluster
from latentheads.experiments.cli.jobs import LOG, Job, find_places, run_jobs, take_shard
from latentheads.experiments.cli.options import (
    Extend,
    Parser,
    idle_options,
    read_settings,
    refuse_idle,
    trainer_of,
)
from latentheads.files import write_text
from latentheads.metrics.scores import SCORES
from latentheads.runs.folder import Folder
from latentheads.runs.recipes import ALIGNED, split_law
from latentheads.runs.report import lacking
from latentheads.runs.results import Results
from latentheads.runs.settings import Settings
from latentheads.runs.trainer import name_trusted
from latentheads.selection.laws import LAWS

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "COLUMNS",
    "Plan",
    "cell",
    "cell_of_terminal",
    "check_words",
    "describe_plans",
    "extend",
    "plan_all",
    "read_all",
    "run_folder",
    "summarise",
    "train_all",
    "write_tables",
]

RECIPES = ",".join(guide + ALIGNED for guide in ("tied", "mean-field", "cascaded", "exact"))
SPREAD = ("head_divergence", "perplexity", "average_", "task ")
"""What the other columns begin with that have a mean and an interval."""

TRUTH = ("truth", "truth_sentences", "sentences")
"""What the corpus says of the test part, and not a recipe."""

FIGURES = ("elbo", "log_likelihood", "kl", "exact", "gap", "iwae", "plug_in", *SCORES)

DRAWN = ("iwae", "plug_in")
"""What says nothing where the exact log p is known."""


def extend(parser: Parser) -> None:
    """Adds the options of a comparison."""
    parser.add_argument(
        "--recipes",
        type=str,
        default=RECIPES,
        help="recipes, GUIDE+alignments, or prior+guide, as independent+my_module:MyGuide, or "
        "my_module:MyGuide+alignments for a guide of your own, with "
        f"a law of selection if wanted ({', '.join('+' + law for law in LAWS)}), comma between; "
        "the first is the base",
    )
    parser.add_argument("--seeds", type=str, default="0,1,2", help="seeds, comma between")
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="runs beside each other, a process each, the processor's threads shared out; each "
        f"writes what it says to {LOG} in its folder",
    )
    parser.add_argument(
        "--devices",
        type=str,
        default="",
        help="numbers of GPUs, comma between: a run on each at once, or more with --jobs",
    )
    parser.add_argument(
        "--launcher",
        type=Literal["here", "local", "slurm"],
        default="here",
        help="where jobs run: here; or through submitit on a Slurm cluster, whose folders this "
        "machine shares, at most --jobs of them at once; or local, all at once on this machine as "
        "a cluster would run them",
    )
    parser.add_argument(
        "--launcher_options",
        type=dict[str, Any],
        default={},
        help="what a cluster is asked for, in submitit's words, as '{slurm_partition: gpu, "
        "timeout_min: 600, gpus_per_node: 1}'",
    )
    parser.add_argument(
        "--shard",
        type=str,
        default="",
        help="I/N: trains the I-th of N parts of the runs, and writes no table; the same command "
        "without it writes the table when all are done",
    )


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and 95 % interval of Student's t; the interval is NaN for a single value."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan, math.nan
    from scipy import stats  # takes long to load

    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return mean, mean - half, mean + half


@dataclass(frozen=True)
class Plan:
    """A run of a comparison.

    Attributes:
        recipe: Its recipe, as the comparison names it.
        settings: Its settings.
        options: The options of its command line.
    """

    recipe: str
    settings: Settings
    options: Namespace

    @property
    def folder(self) -> Path:
        """Where it is written."""
        return Path(self.options.out)

    def find_results(self, overwrite: bool = False) -> Results | None:
        """What it wrote, if it is finished.

        Raises:
            ValueError: The folder holds something else, or cannot be written.
        """
        return Folder(self.folder, self.settings.to_yaml(), overwrite).results


def plan_all(
    words: list[str],
    recipes: list[str],
    seeds: list[int],
    out: Path,
    prog: str,
    extend: Extend = extend,
) -> list[Plan]:
    """Every recipe with every seed.

    Args:
        words: The command line.
        recipes: The recipes.
        seeds: The seeds.
        out: The folder of all runs.
        prog: The program's name.
        extend: Adds its own options, which a file of options may hold too.
    """
    return [
        Plan(recipe, *_plan(words, recipe, seed, out, prog, extend))
        for seed in seeds
        for recipe in recipes
    ]


def train_all(plans: Sequence[Plan], options: Namespace, out: Path) -> bool:
    """Trains what is not finished, beside each other or one after the other.

    Args:
        plans: The runs.
        options: Those of the comparison.
        out: Its folder.

    Returns:
        Whether all of them were its work: a shard has some alone.
    """
    places = find_places(options.jobs, options.devices)
    _refuse_idle_places(options)
    part, parts = take_shard(options.shard or "1/1")
    mine = [plan for place, plan in enumerate(plans) if place % parts == part - 1]
    open_plans = [plan for plan in mine if plan.find_results(options.overwrite) is None]
    if parts > 1:
        print(f"shard {options.shard}: {len(mine)} of {len(plans)} runs", flush=True)
    jobs = [_job_of(plan, out) for plan in open_plans]
    if not jobs:
        return parts == 1
    if options.launcher != "here":
        runs, wanted = list(map(ClusterRun, jobs)), options.launcher_options
        run_on_cluster(runs, options.launcher, len(places), wanted, out / "nodes")
    elif len(places) > 1 or options.devices:
        run_jobs(jobs, places)
    else:
        corpus = make_corpus(open_plans[0].settings.data, tell=print)
        for plan in open_plans:
            trainer = trainer_of(plan.settings, plan.options, corpus)
            print(trainer.headline(), f"seed {plan.settings.seed}", flush=True)
            trainer.fit()
    return parts == 1


def _refuse_idle_places(options: Namespace) -> None:
    """Refuses what does not go together in saying where runs are trained."""
    if options.shard and options.report:
        raise ValueError("report acts on nothing beside shard, which makes no table: drop one")
    if options.shard and options.overwrite:
        raise ValueError("overwrite beside shard: the table's command would train all anew")
    if options.launcher == "here" and options.launcher_options:
        raise ValueError("launcher_options acts on nothing here: it needs launcher slurm or local")
    if options.launcher != "here" and options.devices:
        raise ValueError(
            f"devices are of this machine: launcher {options.launcher} chooses its own"
        )
    if options.devices and options.device == "cpu":
        raise ValueError("devices are GPUs, and device is cpu: drop one of them")


def _job_of(plan: Plan, out: Path) -> Job:
    """The command line of a run; on a GPU that is named it may not take the processor instead."""
    options = plan.options
    device = "cuda" if options.devices else options.device
    words = ["--device", device, "--trust", name_trusted(plan.settings, options.trust)]
    words += [f"--{name}={_word(options[name])}" for name in ("overwrite", "tensorboard")]
    name = str(plan.folder.relative_to(out))
    return Job(name, plan.folder, plan.settings.to_yaml(), words)


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


def run_folder(out: Path, recipe: str, seed: int) -> Path:
    """Where a run of a comparison lies."""
    return out / f"{recipe.replace(':', '.')}-seed{seed}"


def _plan(
    words: list[str], recipe: str, seed: int, out: Path, prog: str, extend: Extend = extend
) -> tuple[Settings, Namespace]:
    """The settings and options of a recipe; what acts on another alone stays at its default."""
    pair = _pair(recipe)
    idle, plain = idle_options([*words, *pair], prog, extend)
    spared = [f"--{name}={_word(plain[name])}" for name in idle]
    own = [*pair, "--seed", str(seed), "--out", str(run_folder(out, recipe, seed))]
    settings, options = read_settings([*words, *spared, *own], prog, "", extend)
    if split_law(recipe)[0].endswith(ALIGNED) and not settings.alignment.blocks:
        raise ValueError(f"recipe {recipe!r}: this guide has no posterior of alignments")
    return settings, options


def _pair(recipe: str) -> list[str]:
    """The words of a single run that stand for a recipe of a comparison."""
    name, law = split_law(recipe)
    prior, plus, guide = name.partition("+")
    if name.endswith(ALIGNED) and (":" in prior or "." in prior):  # one's own has no name
        pair = ["--guide", prior]
    elif not plus or name.endswith(ALIGNED):
        pair = ["--recipe", name]
    else:
        pair = ["--prior", prior, "--guide", guide]
    return [*pair, "--select", law or "none"]


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _row(label: str, results: dict[str, Any]) -> dict[str, Any]:
    test = results["test"]
    figures = {name: test[name] for name in FIGURES if test.get(name) is not None}
    if "exact" in figures:  # no draw is needed, and the plug-in network is the exact law
        figures = {name: value for name, value in figures.items() if name not in DRAWN}
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
        **{name: test.get(name) for name in TRUTH},
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


def describe_plans(plans: Sequence[Plan]) -> str:
    """What stands above a picture of all runs: the corpus, and how many seeds there are."""
    seeds = len({plan.settings.seed for plan in plans})
    (corpus, *_) = dict.fromkeys(plan.settings.data.name for plan in plans)
    if seeds == 1:
        return f"{corpus}, seed {plans[0].settings.seed}"
    return f"{corpus}, {seeds} seeds"


def check_words(
    words: Sequence[str],
    recipes: Sequence[str],
    seeds: str,
    prog: str,
    more: Sequence[str] = (),
    extend: Extend = extend,
) -> None:
    """Refuses options of a single run, of no recipe at all, and what is named twice.

    Args:
        words: The command line.
        recipes: The recipes.
        seeds: The seeds, comma between.
        prog: The program's name.
        more: Further options that are refused.
        extend: As for :func:`plan_all`.
    """
    own = {"--recipe", "--guide", "--prior", "--seed", "--tensorboard", *more}
    given = {word.partition("=")[0] for word in words}
    if taken := own & given:
        raise ValueError(f"{min(taken)} belongs to run.py: {prog} takes --recipes and --seeds")
    if "--select" in given:
        raise ValueError("--select stands in a recipe's name: write RECIPE+LAW, as coda+subset")
    distinct("recipes", recipes)
    distinct("seeds", seeds.split(","))
    every = [idle_options([*words, *_pair(recipe)], prog, extend)[0] for recipe in recipes]
    common = set.intersection(*map(set, every))
    refuse_idle({name: need for name, need in every[0].items() if name in common}, words, prog)


def write_tables(
    runs: pd.DataFrame, rows: Sequence[dict[str, Any]], table: str, printed: str, out: Path
) -> None:
    """Writes every run, and the summary twice; prints the summary.

    Args:
        runs: One row a run.
        rows: The summary.
        table: The same as Markdown.
        printed: The same for a terminal.
        out: Where.
    """
    import pandas as pd  # takes long to load

    write_text(out / "runs.csv", runs.to_csv(index=False))
    write_text(out / "table.csv", pd.DataFrame(rows).to_csv(index=False))
    write_text(out / "table.md", table)
    print("Test part, nats per target token; mean over seeds ± half of its 95 % interval.")
    print(printed, end="")
    print(f"written to {out}")
