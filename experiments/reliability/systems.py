"""Systems: the committees that can be made of some runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from latentheads.corpora import batches
from latentheads.corpora.batches import TOKENS
from latentheads.runs.folder import unlike_names
from latentheads.runs.run import Run
from latentheads.uncertainty.ensembles import (
    DeepEnsemble,
    Ensemble,
    HeadSamples,
    MCDropout,
    NoisyEnsemble,
    SingleModel,
    has_dropout,
)

__all__ = ["KINDS", "PASSES", "Group", "System", "group_runs", "make_systems"]

KINDS = {
    "alone": "one pass, heads at their prior's location, alignments summed",
    "dropout": "passes with dropout on",
    "heads": "draws of the heads from their prior, each held along a sentence",
    "both": "the two together",
    "noise": "the control: a network that was trained without noise gets some",
    "ensemble": "runs that differ in their seed alone",
}
"""Kinds of systems."""

NEEDS = {
    "alone": "a run",
    "dropout": "a network with dropout",
    "heads": "heads with noise",
    "both": "dropout, and heads with noise",
    "noise": "heads that are sites and have no noise",
    "ensemble": "two runs or more that differ in their seed alone",
}
"""What a kind cannot be made without."""

PASSES = ("dropout", "heads", "both", "noise")
"""The kinds that take several passes of one network."""

PROBED = 4
"""Sentences that tell whether a network has dropout."""


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed alone.

    Attributes:
        name: What they are called.
        runs: One for each seed.
    """

    name: str
    runs: list[Run]


@dataclass(frozen=True)
class System:
    """Committees of one kind, one of each run of a group, or of all together.

    Attributes:
        name: What it is called.
        kind: One of ``KINDS``.
        committees: One a run; of an ensemble one alone.
        writers: Which committees write the same, by a name: a pass with dropout judges what the
            network alone writes.
    """

    name: str
    kind: str
    ensembles: list[Ensemble]
    writers: list[str]


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Puts runs of the same settings but for the seed together, in the order they are given in.

    Those that have lost heads stand with those that have as many left.

    Raises:
        ValueError: Two of a group have the same seed.
    """
    names = unlike_names([run.path for run in runs])
    found: dict[tuple[str, int | None], list[tuple[str, Run]]] = {}
    for name, run in zip(names, runs, strict=True):
        left = None if run.heads is None else sum(map(len, run.heads.values()))
        group = found.setdefault((replace(run.settings, seed=0).to_yaml(), left), [])
        for _, other in group:
            if other.settings.seed == run.settings.seed:
                raise ValueError(
                    f"{other.path} and {run.path} are of the same settings and seed "
                    f"{run.settings.seed}: give one of them"
                )
        group.append((name, run))
    stems = [_cut_seeds(dict(each)) for each in found.values()]
    firsts = [each[0][0] for each in found.values()]
    chosen = stems if len(set(stems)) == len(stems) else firsts
    pairs = zip(chosen, found.values(), strict=True)
    return [Group(name, [run for _, run in each]) for name, each in pairs]


def _cut_seeds(runs: Mapping[str, Run]) -> str:
    """What the names of runs have in common but for their seeds; a lone number may be no seed."""
    run, *others = runs.values()
    number = r"(seed)?\d+" if others else f"seed{run.settings.seed}"
    stems = {re.sub(rf"[-_]?{number}$", "", Path(name).as_posix()) for name in runs}
    first, *more = sorted(stems)
    return first if first and not more else next(iter(runs))


def make_systems(
    groups: Sequence[Group], kinds: Sequence[str], members: int, noise: float
) -> list[System]:
    """Makes every system that the runs allow.

    Args:
        groups: The runs.
        kinds: Those of ``KINDS`` that are wanted.
        members: Passes of each committee but of networks alone and ensembles.
        noise: Standard deviation of the control's noise; 0: there is no control.

    Raises:
        ValueError: No run allows a kind.
    """
    found: list[System] = []
    for group in groups:
        found += _systems_of(group, kinds, members, noise)
    if not found:
        wanted = "; ".join(f"{kind} needs {NEEDS[kind]}" for kind in kinds)
        raise ValueError(f"systems: the runs allow none of these: {wanted}")
    return found


Make = Callable[[Run], Ensemble]


def _systems_of(group: Group, kinds: Sequence[str], members: int, noise: float) -> Iterator[System]:
    first = group.runs[0]
    few = next(batches(first.corpus.test.first(PROBED), TOKENS))
    drop, draw = has_dropout(first.model, few, first.guide), first.model.samples_heads
    makers: dict[str, tuple[bool, str, Make]] = {
        "alone": (True, "", lambda run: SingleModel(run.model, run.guide)),
        "dropout": (drop, "dropout", lambda run: MCDropout(run.model, run.guide, members)),
        "heads": (draw, "heads", lambda run: HeadSamples(run.model, run.guide, members)),
        "both": (
            drop and draw,
            "heads and dropout",
            lambda run: MCDropout(run.model, run.guide, members, heads=True),
        ),
        "noise": (
            noise > 0 and not draw and bool(first.model.blocks),
            f"noise {noise:g}",
            lambda run: NoisyEnsemble(run.model, run.guide, members, noise),
        ),
    }
    for kind, (allowed, ending, make) in makers.items():
        if kind in kinds and allowed:
            name = f"{group.name}, {ending}" if ending else group.name
            writer = "alone" if kind in ("alone", "dropout", "both") else name
            writers = [f"{run.path} {writer}" for run in group.runs]
            yield System(name, kind, [make(run) for run in group.runs], writers)
    if "ensemble" in kinds and len(group.runs) > 1:
        ensemble = DeepEnsemble([r.model for r in group.runs], [r.guide for r in group.runs])
        name = f"{group.name}, {ensemble.members} seeds"
        yield System(name, "ensemble", [ensemble], [name])
