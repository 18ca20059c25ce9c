"""Recipes compared: a run for each of them and each seed, and how all are trained."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from latentheads.checks import check_items
from latentheads.corpora import Corpus
from latentheads.errors import print_message
from latentheads.experiments.cli.cluster import ClusterRun, run_on_cluster
from latentheads.experiments.cli.command_line import CommandLine
from latentheads.experiments.cli.errors import collecting_errors
from latentheads.experiments.cli.jobs import (
    RunJob,
    make_slots,
    parse_shard,
    raise_failures,
    run_jobs,
)
from latentheads.experiments.cli.options import ProgramOptions, read_run_settings, trainer_of
from latentheads.experiments.cli.trust import select_trusted
from latentheads.files import parse_yaml
from latentheads.latents.registry import DEFAULT_LATENT, LATENTS
from latentheads.options import CLASS, flatten, merge
from latentheads.runs.build import changed_parts
from latentheads.runs.folder import TEXTS, Folder
from latentheads.runs.recipes import read_recipe
from latentheads.runs.results import Results
from latentheads.runs.settings import Settings, read_latents
from latentheads.runs.trainer import name_trusted

IN_RECIPES = {"selection.strategy": "RECIPE+STRATEGY", "logits.prior": "PRIOR+GUIDE"}
"""Options that a recipe names, and how."""

RECIPES = ",".join(
    f"{guide}+{DEFAULT_LATENT}" for guide in ("tied", "mean-field", "cascaded", "exact")
)

OF_ONE_RUN = {
    **dict.fromkeys(("recipe", "guide", "latents"), "recipes"),
    "seed": "seeds",
    "tensorboard": "",
    "verbose": "",
}
"""The option of several runs that stands for an option of a single run."""


@dataclass(frozen=True)
class ComparisonOptions(ProgramOptions):
    """Options of a program that trains several runs.

    Attributes:
        out: Folder of all runs.
        recipes: Recipes, GUIDE+alignments, or PRIOR+GUIDE, as independent+my_module:MyGuide, with a
            selection strategy behind a further + if wanted, comma between; the first is the base.
        seeds: Seeds, comma between.
        jobs: Runs beside each other, a process each, the processor's threads shared out; each
            writes its output to log.txt in its folder.
        devices: Numbers of GPUs, comma between: a run on each at once, or more with jobs.
        launcher: Where jobs run: here; or through submitit on a Slurm cluster, whose folders this
            machine shares, at most --jobs of them at once; or local, all at once on this machine as
            a cluster would run them.
        launcher_options: Resources of a cluster, in submitit's words, as
            --launcher_options.slurm_partition gpu --launcher_options.timeout_min 600.
        shard: I/N, to train the I-th of N parts of the runs, and write no table; the same command
            without it writes the table when all are done.
    """

    out: str = "runs/compare"
    recipes: tuple[str, ...] = tuple(RECIPES.split(","))
    seeds: tuple[int, ...] = (0, 1, 2)
    jobs: int = 1
    devices: str = ""
    launcher: Literal["here", "local", "slurm"] = "here"
    launcher_options: dict[str, Any] = field(default_factory=dict)
    shard: str = ""
    replaced: ClassVar[Mapping[str, str]] = OF_ONE_RUN

    def __post_init__(self) -> None:
        for name in ("recipes", "seeds"):
            check_items(name, getattr(self, name))
        plain = {
            n: parse_yaml(v) if isinstance(v, str) else v for n, v in self.launcher_options.items()
        }
        object.__setattr__(self, "launcher_options", plain)


@dataclass(frozen=True)
class Plan:
    """A run of a comparison."""

    recipe: str
    settings: Settings
    options: ProgramOptions

    @property
    def folder(self) -> Path:
        """Where it is written."""
        return Path(self.options.out)

    def load_results(self, overwrite: bool = False) -> Results | None:
        """The results of the run, if it is finished.

        Raises:
            ValueError: The folder holds something else, fewer steps than these too, or cannot be
                written.
        """
        trusted = name_trusted(self.settings, self.options.trust)
        folder = Folder(self.folder, self.settings.to_yaml(), overwrite, trusted)
        # its learning rate would fall twice, beside runs whose rate falls once
        if (steps := folder.previous_steps) is not None:
            raise ValueError(
                f"{self.folder} is a run of {steps:,} steps, and a comparison gives it no more: "
                "choose another out or --overwrite"
            )
        return folder.results

    def check_text(self, corpus: Corpus) -> None:
        """Raises an error for a finished run whose text has changed since."""
        if changed := changed_parts(self.folder / TEXTS, corpus):
            raise ValueError(
                f"{self.folder} is of another text: that of {', '.join(changed)} has changed "
                "since; choose another out or --overwrite"
            )


def plan_all(
    options: Mapping[str, Any], line: CommandLine, program: ComparisonOptions, out: Path, prog: str
) -> list[Plan]:
    """Every recipe with every seed."""
    _check_groups(line.words, program.recipes)
    return [
        _plan(options, line, program, recipe, seed, out, prog)
        for seed in program.seeds
        for recipe in program.recipes
    ]


def _plan(
    options: Mapping[str, Any],
    line: CommandLine,
    program: ComparisonOptions,
    recipe: str,
    seed: int,
    out: Path,
    prog: str,
) -> Plan:
    """The run of a recipe; the group of a latent that it has not is that of another recipe."""
    named = read_recipe(recipe)
    latents = read_latents(named["latents"])
    kept = {n: value for n, value in options.items() if n not in LATENTS or n in latents}
    settings = read_run_settings(merge(kept, named) | {"seed": seed}, line, prog)
    folder = str(run_folder(out, recipe, seed))
    return Plan(recipe, settings, replace(program, out=folder))


def _check_groups(options: Mapping[str, Any], recipes: Sequence[str]) -> None:
    """Raises an error for options of a latent that no recipe has."""
    latents = {name for recipe in recipes for name in read_latents(read_recipe(recipe)["latents"])}
    for name in LATENTS:
        if name in options and name not in latents:
            raise ValueError(f"--{name} is latent in none of the recipes {', '.join(recipes)}")
    flat = flatten(options)
    for name, form in IN_RECIPES.items():
        if name in flat or f"{name}.{CLASS}" in flat:
            raise ValueError(f"--{name} stands in a recipe's name: write --recipes {form}")


def train_all(plans: Sequence[Plan], options: ComparisonOptions, out: Path) -> bool:
    """Trains what is not finished, beside each other or one after the other.

    Returns:
        Whether all of them were its work: a shard has some alone.
    """
    slots = make_slots(options.jobs, options.devices)
    _validate_launch_options(options)
    part, parts = parse_shard(options.shard or "1/1")
    shard_plans = [plan for index, plan in enumerate(plans) if index % parts == part - 1]
    open_plans = [plan for plan in shard_plans if plan.load_results(options.overwrite) is None]
    if parts > 1:
        print_message(f"shard {options.shard}: {len(shard_plans)} of {len(plans)} runs", sys.stdout)
    jobs = [_job_of(plan, out) for plan in open_plans]
    if not jobs:
        return parts == 1
    if options.launcher != "here":
        runs, wanted = list(map(ClusterRun, jobs)), options.launcher_options
        run_on_cluster(runs, options.launcher, len(slots), wanted, out / "nodes")
    elif len(slots) > 1 or options.devices:
        run_jobs(jobs, slots)
    else:
        finished = [plan for plan in plans if plan.load_results(options.overwrite) is not None]
        _train_in_turn(open_plans, finished, out)
    return parts == 1


def _train_in_turn(plans: Sequence[Plan], finished: Sequence[Plan], out: Path) -> None:
    """Trains one run after the other; one that fails keeps no later one from running.

    Raises:
        ValueError: The first one cannot be made, and so perhaps none; or the text of those that are
            finished has changed since.
        UnfinishedError: Some have failed; it names them, and why.
    """
    corpus = plans[0].settings.data.load(partial(print_message, file=sys.stdout))
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


def _validate_launch_options(options: ComparisonOptions) -> None:
    """Validates the options of where runs are trained."""
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise ValueError(
            "torchrun belongs to run.py, whose processes share a run: here use --devices or --jobs"
        )
    if options.shard and options.report:
        raise ValueError("report has no effect beside shard, which makes no table: drop one")
    if options.shard and options.overwrite:
        raise ValueError("overwrite beside shard: the table's command would train all anew")
    if options.launcher == "here" and options.launcher_options:
        raise ValueError("launcher_options has no effect here: it needs launcher slurm or local")
    if options.launcher != "here" and options.devices:
        raise ValueError(
            f"devices are of this machine: launcher {options.launcher} chooses its own"
        )
    if options.devices and options.device == "cpu":
        raise ValueError("devices are GPUs, and device is cpu: drop one of them")


def _job_of(plan: Plan, out: Path) -> RunJob:
    """The command line of a run; on a GPU that is named it may not take the processor instead."""
    options = plan.options
    device = "cuda" if getattr(options, "devices", "") else options.device
    words = ["--device", device, f"--overwrite={str(options.overwrite).lower()}"]
    settings = plan.settings
    runs = [settings.start] if settings.start else []
    trusted = name_trusted(settings, options.trust)
    if named := select_trusted(trusted, settings.to_options(), runs):
        words += ["--trust", named]
    return RunJob(_name(plan, out), plan.folder, plan.settings.to_yaml(), words)


def run_folder(out: Path, recipe: str, seed: int) -> Path:
    """Where a run of a comparison lies."""
    return out / f"{recipe.replace(':', '.')}-seed{seed}"


def describe_plans(plans: Sequence[Plan]) -> str:
    """The title of a picture of all runs: the corpus, and how many seeds there are."""
    seeds = len({plan.settings.seed for plan in plans})
    (corpus, *_) = dict.fromkeys(plan.settings.data.name for plan in plans)
    if seeds == 1:
        return f"{corpus}, seed {plans[0].settings.seed}"
    return f"{corpus}, {seeds} seeds"


def take_common(
    options: Mapping[str, Any], line: CommandLine, prog: str, replaced: Mapping[str, str]
) -> dict[str, Any]:
    """The options that all runs share; those of one run are an error, or left out of a file."""
    flat, words, left_out = flatten(options), flatten(line.word_options), [*line.left_out]
    for name, instead in replaced.items():
        if any(word == name or word.startswith(f"{name}.") for word in words):
            belongs = f"--{name} belongs to run.py"
            raise ValueError(belongs + (f": {prog} takes --{instead}" if instead else ""))
        if any(option == name or option.startswith(f"{name}.") for option in flat):
            left_out.append(name)
    for name in dict.fromkeys(left_out):
        note = f": {prog} takes --{replaced[name]}" if replaced[name] else ""
        print_message(f"{prog}: note: {name} of a file is left out{note}", sys.stderr)
    return {
        name: {key: item for key, item in value.items() if f"{name}.{key}" not in replaced}
        if isinstance(value, Mapping)
        else value
        for name, value in options.items()
        if name not in replaced
    }
