"""Recipes compared: a run for each of them and each seed, and how all are trained."""

from __future__ import annotations

import json
import os
import sys
from argparse import SUPPRESS
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from jsonargparse import Namespace

from latentheads.checks import check_distinct, parse_integers
from latentheads.corpora import Corpus
from latentheads.corpora.from_options import make_corpus
from latentheads.errors import print_message
from latentheads.experiments.cli.cluster import ClusterRun, run_on_cluster
from latentheads.experiments.cli.errors import collecting_errors
from latentheads.experiments.cli.jobs import (
    LOG_FILE,
    RunJob,
    make_slots,
    parse_shard,
    raise_failures,
    run_jobs,
)
from latentheads.experiments.cli.options import (
    Extend,
    Parser,
    idle_options,
    read_settings,
    refuse_idle,
    trainer_of,
)
from latentheads.runs.build import changed_parts
from latentheads.runs.folder import TEXTS, Folder
from latentheads.runs.recipes import ALIGNED, split_law
from latentheads.runs.results import Results
from latentheads.runs.settings import Settings
from latentheads.runs.trainer import name_trusted
from latentheads.selection.strategies import STRATEGIES

__all__ = [
    "Plan",
    "check_comparison",
    "describe_options",
    "describe_plans",
    "extend",
    "plan_all",
    "run_folder",
    "train_all",
    "warn_unused",
]

RECIPES = ",".join(guide + ALIGNED for guide in ("tied", "mean-field", "cascaded", "exact"))


OF_ONE_RUN = {
    "--recipe": "--recipes",
    "--guide": "--recipes",
    "--prior": "--recipes",
    "--seed": "--seeds",
    "--heads": "--head_numbers",
}
"""The option of several runs that stands for an option of a single run."""


def extend(parser: Parser) -> None:
    """Adds the options of a comparison; those of a single run are not shown."""
    single = ("recipe", "guide", "prior", "seed", "select", "tensorboard", "verbose")
    out = "folder of all runs (default: runs/compare)"
    describe_options(parser, out=out, **dict.fromkeys(single, SUPPRESS))
    parser.add_argument(
        "--recipes",
        type=str,
        default=RECIPES,
        help="recipes, GUIDE+alignments, or prior+guide, as independent+my_module:MyGuide, or "
        "my_module:MyGuide+alignments for a guide of your own, with "
        f"a selection strategy if wanted ({', '.join('+' + law for law in STRATEGIES)}), comma "
        "between; the first is the base",
    )
    parser.add_argument("--seeds", type=str, default="0,1,2", help="seeds, comma between")
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="runs beside each other, a process each, the processor's threads shared out; each "
        f"writes what it says to {LOG_FILE} in its folder",
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


def describe_options(parser: Parser, **said: str) -> None:
    """Replaces the help of some options.

    Args:
        parser: The parser that has them.
        **said: The new help of each, by its name.
    """
    for action in parser._actions:
        action.help = said.get(action.dest, action.help)


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
        """The results of the run, if it is finished.

        Raises:
            ValueError: The folder holds something else, fewer updates than these too, or cannot be
                written.
        """
        trusted = name_trusted(self.settings, self.options.trust)
        found = Folder(self.folder, self.settings.to_yaml(), overwrite, trusted)
        # its rate would fall twice, beside runs whose rate falls once
        if (steps := found.previous_steps) is not None:
            raise ValueError(
                f"{self.folder} is a run of {steps:,} updates, and a comparison gives it no "
                "more: choose another out or --overwrite"
            )
        return found.results

    def check_text(self, corpus: Corpus) -> None:
        """Refuses a finished run whose text has changed since.

        Raises:
            ValueError: It names the parts that have.
        """
        if changed := changed_parts(self.folder / TEXTS, corpus):
            raise ValueError(
                f"{self.folder} is of another text: that of {', '.join(changed)} has changed "
                "since; choose another out or --overwrite"
            )


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
    said = {recipe: _words_of(words, recipe, recipes) for recipe in recipes}
    return [
        Plan(recipe, *_plan(said[recipe], recipe, seed, out, prog, extend))
        for seed in seeds
        for recipe in recipes
    ]


def _words_of(words: list[str], recipe: str, recipes: list[str]) -> list[str]:
    """The command line of a recipe: the number of blocks is of recipes of alignments alone.

    Where none is of alignments, it stands above the heads of them all.
    """
    others = any(map(_is_aligned, recipes)) and not _is_aligned(recipe)
    return [*words, "--alignments=0"] if others else words


def _is_aligned(recipe: str) -> bool:
    """Whether a recipe is of alignments by its name."""
    return split_law(recipe)[0].endswith(ALIGNED)


def train_all(plans: Sequence[Plan], options: Namespace, out: Path) -> bool:
    """Trains what is not finished, beside each other or one after the other.

    Args:
        plans: The runs.
        options: Those of the comparison.
        out: Its folder.

    Returns:
        Whether all of them were its work: a shard has some alone.
    """
    places = make_slots(options.jobs, options.devices)
    _refuse_idle_places(options)
    part, parts = parse_shard(options.shard or "1/1")
    mine = [plan for place, plan in enumerate(plans) if place % parts == part - 1]
    open_plans = [plan for plan in mine if plan.find_results(options.overwrite) is None]
    if parts > 1:
        print_message(f"shard {options.shard}: {len(mine)} of {len(plans)} runs", sys.stdout)
    jobs = [_job_of(plan, out) for plan in open_plans]
    if not jobs:
        return parts == 1
    if options.launcher != "here":
        runs, wanted = list(map(ClusterRun, jobs)), options.launcher_options
        run_on_cluster(runs, options.launcher, len(places), wanted, out / "nodes")
    elif len(places) > 1 or options.devices:
        run_jobs(jobs, places)
    else:
        finished = [plan for plan in plans if plan.find_results(options.overwrite) is not None]
        _train_in_turn(open_plans, finished, out)
    return parts == 1


def _train_in_turn(plans: Sequence[Plan], finished: Sequence[Plan], out: Path) -> None:
    """Trains one run after the other; one that fails keeps no later one from running.

    Raises:
        ValueError: The first one cannot be made, and so perhaps none; or the text of those that are
            finished has changed since.
        UnfinishedError: Some have failed; it names them, and why.
    """
    corpus = make_corpus(plans[0].settings.data, tell=partial(print_message, file=sys.stdout))
    for plan in finished:
        plan.check_text(corpus)
    failed = list[str]()
    for plan in plans:
        mistakes = () if plan is plans[0] else (ValueError,)
        with collecting_errors(failed, _name(plan, out), mistakes):
            trainer = trainer_of(plan.settings, plan.options, corpus)
            print_message(f"seed {plan.settings.seed}: {trainer.headline()}", sys.stdout)
            with collecting_errors(failed, _name(plan, out), (ValueError,)):
                trainer.fit()
    raise_failures(failed, len(plans))


def _name(plan: Plan, out: Path) -> str:
    """What a run is called: its folder below that of all."""
    return str(plan.folder.relative_to(out))


def _refuse_idle_places(options: Namespace) -> None:
    """Refuses options of where runs are trained that do not go together."""
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise ValueError(
            "torchrun belongs to run.py, whose processes share a run: here use --devices or --jobs"
        )
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


def _job_of(plan: Plan, out: Path) -> RunJob:
    """The command line of a run; on a GPU that is named it may not take the processor instead."""
    options = plan.options
    device = "cuda" if options.devices else options.device
    words = ["--device", device, "--trust", name_trusted(plan.settings, options.trust)]
    words += [f"--{name}={_word(options[name])}" for name in ("overwrite", "tensorboard")]
    return RunJob(_name(plan, out), plan.folder, plan.settings.to_yaml(), words)


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
    if _is_aligned(recipe) and not settings.alignment.blocks:
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


def describe_plans(plans: Sequence[Plan]) -> str:
    """The title of a picture of all runs: the corpus, and how many seeds there are."""
    seeds = len({plan.settings.seed for plan in plans})
    (corpus, *_) = dict.fromkeys(plan.settings.data.name for plan in plans)
    if seeds == 1:
        return f"{corpus}, seed {plans[0].settings.seed}"
    return f"{corpus}, {seeds} seeds"


def _refusal(option: str, prog: str) -> str:
    """The line that refuses an option of a single run."""
    instead = OF_ONE_RUN.get(option)
    return f"{option} belongs to run.py" + (f": {prog} takes {instead}" if instead else "")


def warn_unused(options: Namespace, prog: str) -> None:
    """Says which options of a single run stand in a file, where they act on nothing.

    Args:
        options: All options.
        prog: The program's name.
    """
    for name, shown in (("guide", "recipe or guide"), ("seed", "seed")):
        if options[name]:
            said = f"{shown} of a file acts on nothing here: {prog} takes {OF_ONE_RUN['--' + name]}"
            print_message(f"{prog}: note: {said}", sys.stderr)


def check_comparison(
    words: Sequence[str],
    recipes: Sequence[str],
    seeds: str,
    prog: str,
    more: Sequence[str] = (),
    extend: Extend = extend,
) -> None:
    """Refuses options of a single run, options of no recipe, and what is named twice.

    Args:
        words: The command line.
        recipes: The recipes.
        seeds: The seeds, comma between.
        prog: The program's name.
        more: Further options that are refused.
        extend: As for :func:`plan_all`.
    """
    own = {"--recipe", "--guide", "--prior", "--seed", "--tensorboard", "--verbose", *more}
    given = {word.partition("=")[0] for word in words}
    if taken := own & given:
        raise ValueError(_refusal(min(taken), prog))
    if "--select" in given:
        raise ValueError("--select stands in a recipe's name: write RECIPE+LAW, as coda+subset")
    check_distinct("recipes", recipes)
    check_distinct("seeds", parse_integers("seeds", seeds))
    every = [idle_options([*words, *_pair(recipe)], prog, extend)[0] for recipe in recipes]
    common = set.intersection(*map(set, every))
    refuse_idle({name: need for name, need in every[0].items() if name in common}, words, prog)
