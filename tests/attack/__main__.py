"""Attacks the programs, and prints what failed and a table.

python -m tests.attack --only damage --tries 50 --seed 1
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random

from tests.attack.damage import damages
from tests.attack.grounds import open_arena
from tests.attack.kills import kills
from tests.attack.process import ROOT, import_programs
from tests.attack.trial import FAULTS, Arena, Trial, TrialError

KINDS: dict[str, Callable[[Arena], Iterator[Trial]]] = {"kills": kills, "damage": damages}
KILLS = 133
"""Kills have no end of their own."""
QUICK = {
    "kills": ("finished killed, 1",),
    "damage": ("half/checkpoints/last.safetensors cut, then run",),
}
"""What the suite does: a trial of every sort, and no more, since the whole is slow."""
SOURCES = ("latentheads", "models", "guides", "experiments", "tests/attack")


@dataclass(frozen=True)
class Verdict:
    """What became of a trial.

    Attributes:
        kind: The trial's.
        name: The trial's.
        fault: What the program did wrong; None: nothing.
        said: What there is to see of it.
    """

    kind: str
    name: str
    fault: str | None = None
    said: str = ""


def make_parser() -> argparse.ArgumentParser:
    """Builds the command line."""
    parser = argparse.ArgumentParser("python -m tests.attack", description=__doc__)
    text = ",".join(KINDS)
    parser.add_argument("--only", default=text, metavar="KIND", help=f"some of {text}")
    parser.add_argument(
        "--tries", type=int, metavar="N", help=f"of each kind; default: all, of kills {KILLS}"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the trials, and of each one")
    parser.add_argument("--quick", action="store_true", help="only what the suite does")
    parser.add_argument("--case", default="", metavar="TEXT", help="only trials named so")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="trials at a time")
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "runs" / "attack",
        help="keeps runs and verdicts: the same command goes on where it was stopped",
    )
    return parser


def choose_trials(
    arena: Arena, kinds: Sequence[str], tries: int | None, seed: int, case: str
) -> list[Trial]:
    """The trials of some kinds, in an order that the seed gives.

    Args:
        arena: Where they take place.
        kinds: The kinds.
        tries: How many of each; None: all.
        seed: Of the order.
        case: What a name must hold.
    """
    chosen: list[Trial] = []
    for kind in kinds:
        named = (trial for trial in KINDS[kind](arena) if case in trial.name)
        actual = list(islice(named, tries or KILLS)) if kind == "kills" else list(named)
        if kind != "kills":
            Random(seed).shuffle(actual)
        chosen += actual[:tries]
    return chosen


def choose_quick(arena: Arena, names: Mapping[str, Sequence[str]]) -> list[Trial]:
    """The trials of some names, each kind's in its own order.

    Raises:
        ValueError: A kind ends before all of its names have come.
    """
    chosen: list[Trial] = []
    for kind, wanted in names.items():
        left = set(wanted)
        for trial in KINDS[kind](arena) if left else ():
            if trial.name in left:
                left.remove(trial.name)
                chosen.append(trial)
            if not left:
                break
        if left:
            raise ValueError(f"{kind} has no trial {min(left)!r}")
    return chosen


def attempt(arena: Arena, trial: Trial, seed: int) -> Verdict:
    """Does a trial, with random numbers of its own."""
    try:
        trial.run(arena, Random(f"{seed} {trial.kind} {trial.name}"))
    except TrialError as failure:
        return Verdict(trial.kind, trial.name, failure.fault, str(failure))
    return Verdict(trial.kind, trial.name)


def attempt_all(arena: Arena, trials: Sequence[Trial], seed: int, jobs: int) -> Iterator[Verdict]:
    """Does trials, some at a time, in processes that are forked from this one.

    A trial is a closure, which a fork inherits and nothing else can hand over: hence its place.
    """
    TRIALS[:] = [partial(attempt, arena, trial, seed) for trial in trials]
    with multiprocessing.get_context("fork").Pool(jobs) as workers:
        yield from workers.imap_unordered(_attempt_one, range(len(trials)))


TRIALS: list[Callable[[], Verdict]] = []


def _attempt_one(index: int) -> Verdict:
    return TRIALS[index]()


def table(verdicts: Sequence[Verdict]) -> str:
    """Counts by kind."""
    heads = ("kind", "tries", "passed", *(f"{fault}s".replace("codes", "code") for fault in FAULTS))
    rows = [heads]
    for kind in dict.fromkeys(verdict.kind for verdict in verdicts):
        mine = [verdict.fault for verdict in verdicts if verdict.kind == kind]
        counts = (len(mine), *(mine.count(fault) for fault in (None, *FAULTS)))
        rows.append((kind, *map(str, counts)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; the status is 1 where anything failed."""
    parser = make_parser()
    given = parser.parse_args(arguments)
    kinds = given.only.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"unknown kind {min(unknown)!r}: choose from {', '.join(KINDS)}")
    import_programs()
    _forget_other_code(given.out)
    arena, path = open_arena(given.out), given.out / f"seed-{given.seed}.jsonl"
    if given.quick:
        trials = choose_quick(arena, QUICK)
    else:
        trials = choose_trials(arena, kinds, given.tries, given.seed, given.case)
    given_verdicts = _read_verdicts(path)
    verdicts = [
        given_verdicts[item]
        for trial in trials
        if (item := (trial.kind, trial.name)) in given_verdicts
    ]
    waiting = [trial for trial in trials if (trial.kind, trial.name) not in given_verdicts]
    print(f"seed {given.seed}: {len(trials):,} trials, {len(verdicts):,} done before", flush=True)
    for old in verdicts:
        _tell(old, given.seed)
    with path.open("a", encoding="utf-8") as file:
        for verdict in attempt_all(arena, waiting, given.seed, given.jobs):
            verdicts.append(verdict)
            print(json.dumps(asdict(verdict)), file=file, flush=True)
            _tell(verdict, given.seed)
    print(table(sorted(verdicts, key=lambda verdict: [*KINDS].index(verdict.kind))))
    return int(any(verdict.fault for verdict in verdicts))


def _tell(verdict: Verdict, seed: int) -> None:
    """Prints what failed, and how to do it again."""
    if verdict.fault is not None:
        case = f"--only {verdict.kind} --case {shlex.quote(verdict.name)} --seed {seed}"
        case += " --tries 1" if verdict.kind == "kills" else ""  # "killed, 7" is in "killed, 70"
        print(f"{verdict.kind}: {verdict.fault}: {verdict.name}: {verdict.said}\n    {case}")
        sys.stdout.flush()


def _read_verdicts(path: Path) -> dict[tuple[str, str], Verdict]:
    """What is known from before; a line that was cut short is not."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    verdicts = [Verdict(**json.loads(line)) for line in lines if line.endswith("}")]
    return {(verdict.kind, verdict.name): verdict for verdict in verdicts}


def _forget_other_code(top: Path) -> None:
    """Leaves nothing of an attack on other code."""
    mark, now = top / "sources", _digest_sources()
    if mark.exists() and mark.read_text() != now:
        shutil.rmtree(top)
    top.mkdir(parents=True, exist_ok=True)
    mark.write_text(now)


def _digest_sources() -> str:
    """Tells the code that is attacked, and that attacks, from other code."""
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(os.fsencode(path.relative_to(ROOT)) + path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
