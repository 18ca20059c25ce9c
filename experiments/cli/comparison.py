"""Recipes compared: a run for each of them and each seed, and how all are trained."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, cast

from latentheads.experiments.cli.startup import name_program

from latentheads.checks import check_items
from latentheads.corpora.corpus import Corpus
from latentheads.data.base import Data
from latentheads.errors import print_message
from latentheads.experiments.cli.command_line import (
    FILE_OPTIONS,
    OPTION,
    SHORT,
    CommandLine,
    override,
    split_words,
)
from latentheads.experiments.cli.errors import collecting_errors
from latentheads.experiments.cli.jobs import (
    RunJob,
    make_slots,
    raise_failures,
    run_jobs,
    run_on_slurm,
)
from latentheads.experiments.cli.options import (
    ProgramOptions,
    check_text,
    load_corpus,
    read_run_settings,
    trainer_of,
)
from latentheads.experiments.cli.trust import select_trusted
from latentheads.latents.registry import DEFAULT_LATENT, LATENTS
from latentheads.options import (
    CLASS,
    Count,
    UnusedOptionError,
    choices_of,
    flatten,
    merge,
    options_of,
)
from latentheads.plain import parse_yaml
from latentheads.runs.folder import Folder
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
    devices: str = ""
    slurm: dict[str, Any] = field(default_factory=dict)
    replaced: ClassVar[Mapping[str, str]] = OF_ONE_RUN

    def __post_init__(self) -> None:
        for name in ("recipes", "seeds"):
            check_items(name, getattr(self, name))
        plain = {n: parse_yaml(v) if isinstance(v, str) else v for n, v in self.slurm.items()}
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


def plan_all(
    options: Mapping[str, Any], line: CommandLine, program: ComparisonOptions, out: Path, prog: str
) -> list[Plan]:
    """Every recipe with every seed, and every value of the options that vary."""
    _check_groups(line.words, program.recipes)
    varied = read_varied(program.vary)
    _check_varied(varied, line, program, prog)
    combinations = [dict(zip(varied, values, strict=True)) for values in product(*varied.values())]
    plans = {}
    for combination in combinations:
        words = [f"--{name}={value}" for name, value in combination.items()]
        overridden, _ = override(dict(options), split_words(words))
        values = {
            recipe: _values_of(overridden, recipe, program.recipes) for recipe in program.recipes
        }
        unused = {
            recipe: _unused_options(values[recipe], line.trusted) for recipe in program.recipes
        }
        in_none = frozenset[str]().union(*unused.values()).intersection(*unused.values())
        for seed, recipe in product(program.seeds, program.recipes):
            own = _without(values[recipe], unused[recipe] - in_none) | {"seed": seed}
            label = " ".join([recipe, *(word.removeprefix("--") for word in words)])
            settings = read_run_settings(own, line, prog)
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
        varied[name] = re.split(r",(?![^(\[{]*[)\]}])", values)
        if not equals or not all(varied[name]) or not OPTION.match(f"--{name}="):
            raise ValueError(
                f"vary must be OPTION=VALUE,VALUE, as train.loss=marginal,sampled; got {item!r}"
            )
        check_items(f"values of {name}", varied[name])
    return varied


def _check_varied(
    varied: Collection[str], line: CommandLine, program: ComparisonOptions, prog: str
) -> None:
    """Raises an error for an option that cannot vary, or that has a value already."""
    given = flatten(line.words)
    for name in varied:
        group = name.partition(".")[0]
        if instead := program.replaced.get(name):
            raise ValueError(f"--vary {name}: {prog} takes --{instead}")
        if name in IN_RECIPES:
            raise ValueError(f"--{name} stands in a recipe's name: write {IN_RECIPES[name]}")
        if name in (*options_of(cast(Any, type(program))), *program.replaced, *FILE_OPTIONS):
            raise ValueError(f"--vary {name}: it is no option of a single run")
        if name in given or f"{name}.{CLASS}" in given:
            raise ValueError(f"--{name} is given beside --vary {name}: drop one")
        for recipe in program.recipes:
            if group in LATENTS and group not in read_latents(read_recipe(recipe)["latents"]):
                raise ValueError(f"--vary {name}: {group} is not latent in recipe {recipe}")


def _values_of(options: Mapping[str, Any], recipe: str, recipes: Sequence[str]) -> dict[str, Any]:
    """The options of a recipe, without those of a latent or a class that it has not."""
    named = read_recipe(recipe)
    latents = read_latents(named["latents"])
    kept = {n: value for n, value in options.items() if n not in LATENTS or n in latents}
    kept = _without_others(kept, _classes_of(recipe), [_classes_of(other) for other in recipes])
    return dict(merge(kept, named))


def _classes_of(recipe: str) -> dict[str, type]:
    """The library's classes that stand in a recipe's name, by their options."""
    named, classes = flatten(read_recipe(recipe)), dict[str, type]()
    for path in IN_RECIPES:
        group, _, option = path.partition(".")
        table = choices_of(options_of(cast(Any, LATENTS[group]))[option].kind) or {}
        if named.get(path) in table:
            classes[path] = table[named[path]]
    return classes


def _without_others(
    options: Mapping[str, Any], own: Mapping[str, type], others: Sequence[Mapping[str, type]]
) -> dict[str, Any]:
    """Options without those that a class has not, but the class of another recipe has."""
    kept = dict(options)
    for path, kind in own.items():
        group, _, option = path.partition(".")
        given = kept.get(group, {}).get(option)
        if isinstance(given, Mapping):
            theirs = {n for classes in others if path in classes for n in options_of(classes[path])}
            foreign = theirs - set(options_of(kind))
            fitting = {name: value for name, value in given.items() if name not in foreign}
            kept[group] = {**kept[group], option: fitting}
    return kept


def _unused_options(values: Mapping[str, Any], trusted: Collection[str]) -> frozenset[str]:
    """Options that act on nothing in a recipe, as a warm-up of noise in one without noise."""
    unused = frozenset[str]()
    while True:
        try:
            Settings.from_nested(_without(values, unused), trusted)
        except UnusedOptionError as reason:
            if reason.path in unused:
                return unused
            unused |= {reason.path}
        except (TypeError, ValueError):  # the error is raised where the run is planned
            return unused
        else:
            return unused


def _without(values: Mapping[str, Any], paths: Collection[str]) -> dict[str, Any]:
    """Nested values without some options."""
    kept = {}
    for name, value in values.items():
        if name in paths:
            continue
        inner = [p.removeprefix(f"{name}.") for p in paths if p.startswith(f"{name}.")]
        kept[name] = _without(value, inner) if inner and isinstance(value, Mapping) else value
    return kept


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


def train_all(plans: Sequence[Plan], options: ComparisonOptions, out: Path) -> None:
    """Trains what is not finished, beside each other or one after the other."""
    slots = make_slots(options.jobs, options.devices)
    _validate_job_options(options)
    open_plans = [plan for plan in plans if plan.load_results(options.overwrite) is None]
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


def _validate_job_options(options: ComparisonOptions) -> None:
    """Validates the options of where runs are trained."""
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise ValueError(
            "torchrun belongs to run.py, whose processes share a run: here use --devices or --jobs"
        )
    if options.slurm and options.devices:
        raise ValueError("devices are of this machine, and slurm chooses its own: drop one of them")


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
    name = recipe.replace(":", ".").replace(os.sep, ".").replace(" ", "-")
    return out / f"{name}-seed{seed}"


def describe_plans(plans: Sequence[Plan]) -> str:
    """The title of a picture of all runs: the corpus, and how many seeds there are."""
    seeds = len({plan.settings.seed for plan in plans})
    corpus = ", ".join(dict.fromkeys(plan.settings.data.name for plan in plans))
    if seeds == 1:
        return f"{corpus}, seed {plans[0].settings.seed}"
    return f"{corpus}, {seeds} seeds"


def take_common(
    options: Mapping[str, Any], line: CommandLine, prog: str, replaced: Mapping[str, str]
) -> dict[str, Any]:
    """The options that all runs share; those of one run are an error, or left out of a file."""
    flat, words, left_out = flatten(options), flatten(line.word_options), {**line.left_out}
    for name, instead in replaced.items():
        if any(word == name or word.startswith(f"{name}.") for word in words):
            belongs = f"--{name} belongs to run.py"
            raise ValueError(belongs + (f": {prog} takes --{instead}" if instead else ""))
        if any(option == name or option.startswith(f"{name}.") for option in flat):
            left_out[name] = line.source_of(name)
    for name, source in left_out.items():
        note = f": {prog} takes --{replaced[name]}" if replaced[name] else ""
        origin = source if source.startswith("preset ") else "--config"
        left_out_note = f"note: {name} of {origin} is left out{note}"
        print_message(f"{name_program(prog)}: {left_out_note}", sys.stderr)
    return {
        name: {key: item for key, item in value.items() if f"{name}.{key}" not in replaced}
        if isinstance(value, Mapping)
        else value
        for name, value in options.items()
        if name not in replaced
    }
