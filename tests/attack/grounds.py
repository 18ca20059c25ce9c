"""The run folders that the attack works on, and whether a run ended as it should."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Collection
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import torch

from latentheads.training import checkpoints
from tests.attack.process import Moment, start
from tests.attack.trial import Arena, Ground, TrialError, check

__all__ = ["PLANS", "check_same_end", "make_ground", "open_arena", "same_weights"]

TINY = (
    *("--network.width=8", "--network.feed_forward=8", "--network.heads=2", "--network.layers=1"),
    *(
        "--train.tokens=128",
        "--num_samples=2",
        "--train.steps=16",
        "--train.report_every=4",
        "--device=cpu",
    ),
)
GRAMMAR = ("--data.sentences=60", "--data.held_out=8")
PAIRS = ("--data=pairs", "--data.folder={text}", "--data.source=de", "--data.target=en")
"""Pairs of the folder of text, which has a third side."""
PLANS: dict[str, tuple[str, ...]] = {
    "finished": (
        *("--guide=cascaded", "--network.dropout=0.2", "--loss.kl_warmup=9"),
        *("--train.average=2", "--train.keep=2", "--train.checkpoint_every=1"),
    ),
    "sampled": (
        "--recipe=mean-field",
        "--loss.kl=sampled",
        "--train.accumulate=2",
        "--train.checkpoint_every=3",
    ),
    "patient": (
        "--recipe=coda",
        "--train.optimizer=nag",
        "--train.learning_rate=0.01",
        "--train.patience=2",
    ),
    "selecting": (
        "--recipe=transformer+bernoulli",
        "--data.tasks.names=velu,tamir",
        "--selection.strategy.gradient.least_temperature=.5",
    ),
    "gated": ("--recipe=transformer+gates", "--gates.heads=3", "--gates.heads.rate=.01"),
    "prose": ("--data=grammar-text", "--recipe=coda-cs", "--train.checkpoint_every=2"),
    "subwords": (
        *(*PAIRS, "--data.vocab_size=290"),
        "--recipe=transformer",
        "--decode.num_beams=2",
    ),
}
"""Runs that end undisturbed, by name."""

CLOCKS = ("tokens_per_second", "sentences_per_second")
WEIGHTS = ("last", "best", "average")


def open_arena(top: Path) -> Arena:
    """Makes the folder of an attack, or takes up the one that is there."""
    top.mkdir(parents=True, exist_ok=True)
    _write_text(top / "text")
    return Arena(top.resolve(), make_ground)


@cache
def make_ground(top: Path, name: str) -> Ground:
    """Makes a run that is attacked, or takes the one that is there.

    Args:
        top: The folder of the attack.
        name: That of a plan, or ``half`` for one that was killed half-way.
    """
    index, facts = top / "grounds" / name, top / "grounds" / f"{name}.json"
    index.parent.mkdir(parents=True, exist_ok=True)
    plan = PLANS["finished" if name == "half" else name]
    few = () if plan[0] == "--data=pairs" else GRAMMAR
    words = tuple(word.format(text=top / "text") for word in (*TINY, *few, *plan))
    with index.with_suffix(".lock").open("w") as held:  # trials at a time make it once
        fcntl.flock(held, fcntl.LOCK_EX)
        if not facts.exists():
            shutil.rmtree(index, ignore_errors=True)
            whole = make_ground(top, "finished") if name == "half" else None
            facts.write_text(json.dumps(_train(index, words, whole)))
    return Ground(index, words, **json.loads(facts.read_text()))


def _train(scratch: Path, words: tuple[str, ...], whole: Ground | None) -> dict[str, Any]:
    """Trains a run, to its end or until it is half of another."""
    moment = None if whole is None else Moment(act=round(0.55 * whole.acts))
    words = (*words, f"--out={scratch}")
    ended = start("run", *words, folder=scratch.parent, watched=scratch, moment=moment)
    check(ended, 0 if whole is None else -9)
    names = {path.name for path in scratch.rglob("*.*")}
    assert whole is None or ("best.safetensors" in names and "results.json" not in names), names
    return {"seconds": ended.seconds, "acts": ended.acts}


def _write_text(folder: Path) -> None:
    """A folder of text for translation and for a language model, the same every time."""
    rng, words = Random(0), ("the", "a", "old", "dog", "cat", "sees", "sleeps", "ça", "😀", ".")
    folder.mkdir(exist_ok=True)
    for part, number in (("train", 60), ("valid", 8), ("test", 8)):
        for side in ("de", "en", "txt"):
            lines = [" ".join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(number)]
            (folder / f"{part}.{side}").write_text("".join(f"{line}\n" for line in lines))


def check_same_end(whole: Ground, out: Path, spared: Collection[str] = ()) -> None:
    """Holds a run against one that ended undisturbed: the weights bit for bit, and the results.

    Args:
        whole: The undisturbed one.
        out: The other's folder.
        spared: Files that need not be the same.

    Raises:
        TrialError: They differ, or the run has no results.
    """
    for name in WEIGHTS:
        mine, theirs = (path / "checkpoints" / f"{name}.safetensors" for path in (out, whole.path))
        if theirs.exists() and mine.name not in spared and not same_weights(mine, theirs):
            raise TrialError("lost training", f"{mine.name} is not that of the undisturbed run")
    for name, read in (("results.json", json.loads), ("metrics.jsonl", _lines)):
        if name in spared:
            continue
        try:
            mine, theirs = (
                _without_clocks(read((path / name).read_text())) for path in (out, whole.path)
            )
        except (OSError, ValueError) as reason:
            raise TrialError("lost training", f"{name} cannot be read: {reason}") from reason
        if mine != theirs:
            raise TrialError("lost training", f"{name} is not that of the undisturbed run")


def same_weights(mine: Path, theirs: Path) -> bool:
    """Whether two checkpoints hold the same tensors, bit for bit, of the same step."""
    try:
        one, facts = checkpoints.load(mine)
    except ValueError:
        return False
    two, others = checkpoints.load(theirs)
    same = one.keys() == two.keys() and facts["step"] == others["step"]
    return same and all(torch.equal(one[name], two[name]) for name in two)


def _lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def _without_clocks(value: Any) -> Any:
    """JSON without what differs from one run to the next of the same."""
    if isinstance(value, dict):
        return {k: _without_clocks(v) for k, v in value.items() if k not in CLOCKS}
    if isinstance(value, list):  # a score is a row with a name
        value = [row for row in value if not (isinstance(row, dict) and row.get("name") in CLOCKS)]
    return [_without_clocks(item) for item in value] if isinstance(value, list) else value
