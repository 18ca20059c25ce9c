"""Recipes compared: a run for each of them and each seed, and how all are trained."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from latentheads.checks import check_items
from latentheads.console import print_message
from latentheads.corpora.corpus import Corpus
from latentheads.data.base import Data
from latentheads.experiments.cli.command_line import (
    OPTION,
    SHORT,
    CommandLine,
    check_replaced,
    override,
    split_words,
    without_options,
)
from latentheads.experiments.cli.errors import collecting_errors
from latentheads.experiments.cli.options import (
    ProgramOptions,
    check_text,
    load_corpus,
    read_run_settings,
    trainer_of,
)
from latentheads.experiments.cli.outputs import check_no_run
from latentheads.experiments.cli.trust import select_trusted
from latentheads.experiments.comparison.jobs import (
    RunJob,
    make_slots,
    raise_failures,
    run_jobs,
    run_on_slurm,
)
from latentheads.latents.registry import DEFAULT_LATENT, LATENTS
from latentheads.options import CLASS, Count, Size, UnusedOptionError, flatten, merge
from latentheads.plain import parse_yaml
from latentheads.runs.folder import Folder
from latentheads.runs.recipes import read_recipe
from latentheads.runs.settings import Settings
from latentheads.runs.trainer import name_trusted

IN_RECIPES = {
    "selection.strategy": "RECIPE+STRATEGY",
    "logits.prior": "PRIOR+GUIDE",
}
"""Options that a recipe names, and how."""

RECIPES = ",".join(
    f"{guide}+{DEFAULT_LATENT}" for guide in ("tied", "mean-field", "cascaded", "exact")
)

OF_ONE_RUN = {
    **dict.fromkeys(("recipe", "guide", "latents"), "recipes"),
    "seed": "seeds",
    "trackers": "",
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
        vary: An option of run.py and its values, as train.loss=marginal,sampled: a run of each
            recipe and seed with each value. Given twice, each value of one with each of the other.
        jobs: Runs beside each other, a process each, the processor's threads shared out; each
            writes its output to log.txt in its folder.
        devices: Numbers of GPUs, comma between: a run on each at once, or more with jobs.
        slurm: Runs on the nodes of a Slurm cluster, at most --jobs of them at once, with options of
            sbatch in submitit's words, as --slurm.partition gpu --slurm.time 600, in minutes.
    """

    out: str = "runs/compare"
    recipes: tuple[str, ...] = tuple(RECIPES.split(","))
    seeds: tuple[int, ...] = (0, 1, 2)
    vary: str = ""
    jobs: Count = 1
    devices: tuple[Size, ...] = ()
    slurm: dict[str, Any] = field(default_factory=dict)
    replaced: ClassVar[Mapping[str, str]] = OF_ONE_RUN

    def __post_init__(self) -> None:
        for name in ("recipes", "seeds"):
            check_items(name, getattr(self, name))
        plain = {
            name: parse_yaml(value) if isinstance(value, str) else value
            for name, value in self.slurm.items()
        }
        object.__setattr__(self, "slurm", plain)


@dataclass(frozen=True)
class Plan:
    """A run of a comparison.

    Attributes:
        recipe: Its recipe, with the values of options that vary: what its row is called.
        settings: Its settings.
        options: The options of the program.
    """

    recipe: str
    settings: Settings
    options: ComparisonOptions

    @property
    def folder(self) -> Path:
        """Where it is written."""
        return Path(self.options.out)

    def is_finished(self, overwrite: bool = False) -> bool:
        """Whether its run has its report already.

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
        return folder.results is not None


def plan_all(
    options: Mapping[str, Any], line: CommandLine, program: ComparisonOptions, out: Path, prog: str
) -> list[Plan]:
    """Every recipe with every seed, and every value of the options that vary.

    An option that acts on nothing in a recipe is left out there, if it acts on something in others,
    and so is a latent of a file that the recipe has not.
    """
    varied = read_varied(program.vary)
    _check_varied(varied, line, program)
    plans = {}
    for values in product(*varied.values()):
        words = [f"--{name}={value}" for name, value in zip(varied, values, strict=True)]
        overridden, own_words = override(dict(options), split_words(words))
        varied_line = replace(line, sources=[*line.sources, ("", own_words)])
        named = {recipe: dict(merge(overridden, read_recipe(recipe))) for recipe in program.recipes}
        unused = {recipe: _unused_options(named[recipe], line.trusted) for recipe in named}
        for seed, recipe in product(program.seeds, program.recipes):
            left_out = {
                path
                for path in unused[recipe]
                if any(_has(path, unused[other]) for other in unused)
                or (path in LATENTS and path not in line.words)
            }
            for path in left_out:
                if any(f"{name}.".startswith(f"{path}.") for name in varied):
                    raise ValueError(f"--vary: {path} acts on nothing in recipe {recipe}")
            own = without_options(named[recipe], left_out) | {"seed": seed}
            label = " ".join([recipe, *(word.removeprefix("--") for word in words)])
            settings = read_run_settings(own, varied_line, prog)
            folder = str(run_folder(out, label, seed))
            plans[seed, recipe, label] = Plan(label, settings, replace(program, out=folder))
    order = product(program.seeds, program.recipes)
    return [plan for pair in order for key, plan in plans.items() if key[:2] == pair]


def read_varied(text: str) -> dict[str, list[str]]:
    """The values of each option that varies.

    Args:
        text: ``OPTION=VALUE,VALUE``, blanks between options; a comma within brackets is of a value.
    """
    varied: dict[str, list[str]] = {}
    for item in text.split():
        short, equals, values = item.partition("=")
        name = SHORT.get(short, short)
        varied[name] = _split_values(values)
        if not equals or not all(varied[name]) or not OPTION.match(f"--{name}="):
            raise ValueError(
                f"vary must be OPTION=VALUE,VALUE, as train.loss=marginal,sampled; got {item!r}"
            )
        check_items(f"values of {name}", varied[name])
    return varied


def _split_values(text: str) -> list[str]:
    """Splits at the commas that stand outside of brackets."""
    values, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            values.append("")
        else:
            values[-1] += character
    return values


def _check_varied(varied: Collection[str], line: CommandLine, program: ComparisonOptions) -> None:
    """Raises an error for an option that recipes name, or that has a value beside those to vary."""
    check_replaced(dict.fromkeys(varied), program.replaced)
    if own := [name for name in varied if name in vars(program)]:
        raise ValueError(f"--vary {own[0]}: it is no option of a run, give --{own[0]} itself")
    given = {name.removesuffix(f".{CLASS}") for name in flatten(line.words)}
    for name in (*given, *varied):
        if form := IN_RECIPES.get(name):
            raise ValueError(f"--{name} stands in a recipe's name: write --recipes {form}")
        if name in given and name in varied:
            raise ValueError(f"--{name} is given beside --vary {name}: drop one")


def _has(path: str, unused: Collection[str]) -> bool:
    """Whether a recipe has an option, of which some act on nothing."""
    return not any(f"{path}.".startswith(f"{other}.") for other in unused)


def _unused_options(values: Mapping[str, Any], trusted: Collection[str]) -> frozenset[str]:
    """Options that act on nothing in a recipe, as a warm-up of noise in one without noise."""
    unused = frozenset[str]()
    while True:
        try:
            Settings.from_nested(without_options(values, unused), trusted)
        except UnusedOptionError as reason:
            if reason.path in unused:
                return unused
            unused |= {reason.path}
        except (TypeError, ValueError):  # the error is raised where the run is planned
            return unused
        else:
            return unused


def train_all(plans: Sequence[Plan], options: ComparisonOptions, out: Path) -> None:
    """Trains what is not finished, beside each other or one after the other."""
    check_no_run(out)
    slots = make_slots(options.jobs, options.devices)
    if options.slurm and options.devices:
        raise ValueError("devices are of this machine, and slurm chooses its own: drop one of them")
    open_plans = [plan for plan in plans if not plan.is_finished(options.overwrite)]
    load = cache(load_corpus)
    for plan in plans:
        if plan not in open_plans:
            check_text(plan.folder, plan.settings.data, load)
    jobs = [_job_of(plan, out) for plan in open_plans]
    if not jobs:
        return
    if options.slurm:
        run_on_slurm(jobs, len(slots), options.slurm, out / "nodes")
    elif len(slots) > 1 or options.devices:
        run_jobs(jobs, slots)
    else:
        _train_in_turn(open_plans, load, out)


def _train_in_turn(plans: Sequence[Plan], load: Callable[[Data], Corpus], out: Path) -> None:
    """Trains one run after the other; one that fails keeps no later one from running.

    Raises:
        ValueError: The first one cannot be made, and so perhaps none.
        UnfinishedError: Some have failed; it names them, and why.
    """
    for plan in plans:  # a text that cannot be read is named before anything is trained
        load(plan.settings.data)
    failed = list[str]()
    for plan in plans:
        mistakes = () if plan is plans[0] else (ValueError,)
        with collecting_errors(failed, _name(plan, out), mistakes):
            corpus = load(plan.settings.data)
            trainer = trainer_of(plan.settings, plan.options, corpus)
            print_message(f"seed {plan.settings.seed}: {trainer.headline()}", sys.stdout)
            with collecting_errors(failed, _name(plan, out), (ValueError,)):
                trainer.fit()
    raise_failures(failed, len(plans))


def _name(plan: Plan, out: Path) -> str:
    """What a run is called: its folder below that of all."""
    return str(plan.folder.relative_to(out))


def _job_of(plan: Plan, out: Path) -> RunJob:
    """The command line of a run; on a GPU that is named it may not take the processor instead."""
    options = plan.options
    device = "cuda" if options.devices else options.device
    words = ["--device", device, f"--overwrite={str(options.overwrite).lower()}"]
    settings = plan.settings
    runs = [settings.start] if settings.start else []
    trusted = name_trusted(settings, options.trust)
    if named := select_trusted(trusted, settings.to_options(), runs):
        words += ["--trust", named]
    return RunJob(_name(plan, out), plan.folder, plan.settings.to_yaml(), words)


def run_folder(out: Path, recipe: str, seed: int) -> Path:
    """Where a run of a comparison lies."""
    name = recipe.replace(":", ".").replace(os.sep, ".").replace(" ", "-")
    return out / f"{name}-seed{seed}"


def describe_plans(plans: Sequence[Plan]) -> str:
    """The title of a picture of all runs: the corpus, and how many seeds there are."""
    seeds = len({plan.settings.seed for plan in plans})
    corpus = ", ".join(dict.fromkeys(plan.settings.data.name for plan in plans))
    if seeds == 1:
        return f"{corpus}, seed {plans[0].settings.seed}"
    return f"{corpus}, {seeds} seeds"
