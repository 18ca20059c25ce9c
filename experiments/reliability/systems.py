"""Systems: the ensembles that can be made from some runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from latentheads.contrib.uncertainty.ensembles import (
    DeepEnsemble,
    Ensemble,
    HeadSamples,
    MCDropout,
    NoisyEnsemble,
    SingleModel,
    has_dropout,
)
from latentheads.corpora.batches import TOKENS, batches
from latentheads.runs.folder import distinct_names
from latentheads.runs.run import Run

KINDS = {
    "alone": "one pass, heads at their prior's location, alignments marginalised",
    "dropout": "passes with dropout enabled (MC dropout)",
    "heads": "samples of the heads from their prior, each fixed for a sentence",
    "both": "dropout and samples of the heads",
    "noise": "a control: noise in the heads of a network trained without",
    "ensemble": "deep ensemble of runs that differ only in their seed",
}
"""Kinds of systems."""

REQUIREMENTS = {
    "alone": "a run",
    "dropout": "a network with dropout",
    "heads": "heads with noise",
    "both": "dropout, and heads with noise",
    "noise": "heads that are sites and have no noise",
    "ensemble": "two or more runs that differ only in their seed",
}
"""The requirements of each kind."""

PASSES = ("dropout", "heads", "both", "noise")
"""The kinds that take several passes of one network."""

DROPOUT_TEST_SENTENCES = 4
"""Sentences for the test of whether a network has dropout."""


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed."""

    name: str
    runs: list[Run]


@dataclass(frozen=True)
class System:
    """Ensembles of one kind: one for each run of a group, or one of all runs.

    Attributes:
        name: The name of the system.
        kind: One of ``KINDS``.
        ensembles: One for each run; a single deep ensemble.
        translators: For each ensemble a key of its translations. Ensembles of equal keys have the
            same translations, as MC dropout scores those of the network without dropout.
    """

    name: str
    kind: str
    ensembles: list[Ensemble]
    translators: list[str]


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Groups runs whose settings differ only in the seed, in order.

    Pruned runs are grouped by their number of heads too.

    Raises:
        ValueError: Two of a group have the same seed.
    """
    names = distinct_names([run.path for run in runs])
    groups: dict[tuple[str, int | None], list[tuple[str, Run]]] = {}
    for name, run in zip(names, runs, strict=True):
        num_heads = None if run.heads is None else sum(map(len, run.heads.values()))
        group = groups.setdefault((replace(run.settings, seed=0).to_yaml(), num_heads), [])
        for _, other in group:
            if other.settings.seed == run.settings.seed:
                raise ValueError(
                    f"{other.path} and {run.path} have the same settings and seed "
                    f"{run.settings.seed}: give one of them"
                )
        group.append((name, run))
    stems = [_strip_seeds(dict(members)) for members in groups.values()]
    firsts = [members[0][0] for members in groups.values()]
    group_names = stems if len(set(stems)) == len(stems) else firsts
    pairs = zip(group_names, groups.values(), strict=True)
    return [Group(name, [run for _, run in members]) for name, members in pairs]


def _strip_seeds(runs: Mapping[str, Run]) -> str:
    """The common name of runs without their seeds; the number of a single run may not be a seed."""
    run, *others = runs.values()
    number = r"(seed)?\d+" if others else f"seed{run.settings.seed}"
    stems = {re.sub(rf"[-_]?{number}$", "", Path(name).as_posix()) for name in runs}
    first, *more = sorted(stems)
    return first if first and not more else next(iter(runs))


def make_systems(
    groups: Sequence[Group], kinds: Sequence[str], members: int, noise: float
) -> list[System]:
    """Makes the systems that the runs allow."""
    systems: list[System] = []
    for group in groups:
        systems += _systems_of(group, kinds, members, noise)
    if not systems:
        requirements = "; ".join(f"{kind} needs {REQUIREMENTS[kind]}" for kind in kinds)
        raise ValueError(f"systems: the runs allow none of these: {requirements}")
    return systems


MakeEnsemble = Callable[[Run], Ensemble]


def _systems_of(group: Group, kinds: Sequence[str], members: int, noise: float) -> Iterator[System]:
    first = group.runs[0]
    batch = next(batches(first.corpus.test.first(DROPOUT_TEST_SENTENCES), TOKENS, shuffle=False))
    dropout, sampled = has_dropout(first.model, batch, first.guide), first.model.samples_heads
    makers: dict[str, tuple[bool, str, MakeEnsemble]] = {
        "alone": (True, "", lambda run: SingleModel(run.model, run.guide)),
        "dropout": (dropout, "dropout", lambda run: MCDropout(run.model, run.guide, members)),
        "heads": (sampled, "heads", lambda run: HeadSamples(run.model, run.guide, members)),
        "both": (
            dropout and sampled,
            "heads and dropout",
            lambda run: MCDropout(run.model, run.guide, members, heads=True),
        ),
        "noise": (
            noise > 0 and not sampled and bool(first.model.blocks),
            f"noise {noise:g}",
            lambda run: NoisyEnsemble(run.model, run.guide, members, noise),
        ),
    }
    for kind, (allowed, suffix, make) in makers.items():
        if kind in kinds and allowed:
            name = f"{group.name}, {suffix}" if suffix else group.name
            translator = "alone" if kind in ("alone", "dropout", "both") else name
            translators = [f"{run.path} {translator}" for run in group.runs]
            yield System(name, kind, [make(run) for run in group.runs], translators)
    if "ensemble" in kinds and len(group.runs) > 1:
        ensemble = DeepEnsemble([r.model for r in group.runs], [r.guide for r in group.runs])
        name = f"{group.name}, {ensemble.members} seeds"
        yield System(name, "ensemble", [ensemble], [name])
