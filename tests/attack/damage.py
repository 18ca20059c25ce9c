"""Run folders whose files are damaged, one file at a time, and then used as if nothing had been.

A program may refuse, in one line, or do its work. A run whose weights are whole must finish as
if undisturbed; one that is refused must finish once the file is put right again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

from latentheads.training import checkpoints
from tests.attack.grounds import check_same_end, same_weights
from tests.attack.trial import Arena, Ground, Trial, TrialError, check
from tests.attack.using import use_run

__all__ = ["damages"]

Change = Callable[[Path, Random], object]
READERS = {
    "finished": ("translate", "analyse", "score", "prune", "start"),
    "half": ("translate",),
    "prose": ("generate", "analyse"),
}
"""The programs that read a ground, besides run.py, which goes on with it."""
READ = (
    *("config.yaml", "results.json", "vocabulary.json", "processor.json"),
    *("best", "average", "test.references.txt"),
)
"""What the files begin with that they read."""


def damages(arena: Arena) -> Iterator[Trial]:
    """Every file of every ground, each with every damage, each used by every program."""
    for ground, readers in READERS.items():
        top = arena.ground(ground).path
        for path in sorted(path for path in top.rglob("*") if path.is_file()):
            file = path.relative_to(top)
            for damage, change in CONTENTS.items():
                for program in ("run", *(readers if file.name.startswith(READ) else ())):
                    name = f"{ground}/{file} {damage}, then {program}"
                    use = partial(_go_on if program == "run" else _read, program)
                    yield Trial("damage", name, partial(_damage, ground, file, change, use))


def _cut(path: Path, rng: Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data) + 1)])


def _flip(path: Path, rng: Random) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def _blank(path: Path, rng: Random) -> None:
    """Zeros for a stretch, as a disk leaves them where the power failed."""
    data = bytearray(path.read_bytes())
    begin = rng.randrange(len(data) + 1)
    data[begin : begin + 512] = bytes(len(data[begin : begin + 512]))
    path.write_bytes(data)


CONTENTS: dict[str, Change] = {
    "emptied": lambda path, rng: path.write_bytes(b""),
    "cut": _cut,
    "cut at its end": lambda path, rng: path.write_bytes(path.read_bytes()[:-3]),
    "with a flipped bit": _flip,
    "blanked in part": _blank,
    "replaced by {}": lambda path, rng: path.write_text("{}"),
    "replaced by noise": lambda path, rng: path.write_bytes(rng.randbytes(999)),
    "removed": lambda path, rng: path.unlink(),
}


def _damage(
    ground: str,
    file: Path,
    change: Change,
    use: Callable[..., None],
    arena: Arena,
    rng: Random,
) -> None:
    with arena.scratch() as folder:
        run = arena.copy(ground, folder / "run")
        change(run / file, rng)
        use(arena, ground, run, file)


def _go_on(program: str, arena: Arena, ground: str, run: Path, file: Path) -> None:
    """The same command again: it finishes, or is refused and finishes when the file is back."""
    whole = _whole(arena, ground)
    damaged = _bytes_of(run / file)
    done = check(use_run("run", arena, ground, run))
    # a digest with a flipped bit is that of another text
    vital = file.suffix == ".safetensors" or file.name in ("config.yaml", "corpus.json")
    if done.status and not vital:
        raise TrialError("lost training", f"its weights are whole: {done.error.strip()[-300:]}")
    if done.status:
        _put_right(run / file, arena.ground(ground).path / file)
        again = check(use_run("run", arena, ground, run))
        if again.status:
            raise TrialError("lost training", f"put right, yet: {again.error.strip()[-300:]}")
        check_same_end(whole, run)
        return
    if file.name == "results.json":
        _check_results(run / file, whole.path / file)
    untouched = damaged is not None and _bytes_of(run / file) == damaged
    if untouched and file.suffix == ".safetensors" and ground == "half":
        _refuse_unnoticed(run / file, whole.path / file)
    spared = {file.name, "results.json"} if untouched else set()
    if damaged is None and file.name == "last.safetensors" and ground != "half":
        spared.add(file.name)  # a finished run prints its results without it
    if file.name.startswith(("best", "step-", "average")):
        spared |= {"best.safetensors", "average.safetensors", "results.json"}
    check_same_end(whole, run, spared | ({"metrics.jsonl"} if file.suffix == ".jsonl" else set()))


def _check_results(path: Path, right: Path) -> None:
    """What is broken is made again; a figure that changed is nobody's to see."""
    mine, theirs = json.loads(path.read_text()), json.loads(right.read_text())
    if not isinstance(mine, dict) or mine.keys() != theirs.keys():
        raise TrialError("lost training", "its results are broken and were not made again")


def _whole(arena: Arena, ground: str) -> Ground:
    """The undisturbed run that a ground is to become."""
    return arena.ground("finished" if ground == "half" else ground)


def _bytes_of(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _put_right(path: Path, right: Path) -> None:
    """Puts a file back as it was before the damage."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    shutil.copy2(right, path)


def _refuse_unnoticed(path: Path, right: Path) -> None:
    """Weights that load, and are not what was saved, were used by a run that noticed nothing."""
    try:
        checkpoints.load(path)
    except ValueError:
        return
    if right.exists() and not same_weights(path, right):
        raise TrialError("lost training", f"{path.name} is damaged, and nobody noticed")


def _read(program: str, arena: Arena, ground: str, run: Path, file: Path) -> None:
    """Another program: it refuses, or does what it does with the undamaged folder."""
    done = check(use_run(program, arena, ground, run))
    if done.status == 0 and file.suffix == ".safetensors" and program in ("translate", "generate"):
        with arena.scratch() as folder:
            expected = use_run(program, arena, ground, arena.copy(ground, folder / "run"))
        if done.out != expected.out:
            raise TrialError("lost training", f"{program} writes something else, with status 0")
