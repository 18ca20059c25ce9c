"""Run folders that a stranger made: planted code, bombs, figures that ask for all memory.

Opening a run folder runs none of its code, reads no file but its own, changes nothing, and ends
within bounds. A canary stands beside every folder; only foreign code removes it.
"""

from __future__ import annotations

import json
import os
import pickle
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import yaml
from safetensors.torch import load_file, save_file

from latentheads.training import checkpoints
from tests.attack.process import Ended, Limits
from tests.attack.trial import Arena, Trial, TrialError, check
from tests.attack.using import use_run

__all__ = ["hostiles"]

BOUNDS = Limits(memory=6 * 10**9, work=30)
MOST = 2 * 10**9
"""Bytes that a program may hold while it opens a folder of a tiny run."""

SECRET = "c0ffee of another file"
OPENERS = ("translate", "analyse", "prune", "start")
"""The programs that build a run's guide and prior."""

MODULE = """
import os
os.path.exists({canary!r}) and os.remove({canary!r})
from latentheads.guides.cascaded import Cascaded
from latentheads.latents.logits.priors import Independent
class Evil(Cascaded): pass
class EvilPrior(Independent): pass
"""
"""A module that works as a guide or a prior, so that nothing but a refusal stops it."""

SHADOWS = ("accelerate", "datasets", "guides", "numpy", "sitecustomize", "tokenizers", "yaml")


def hostiles(arena: Arena) -> Iterator[Trial]:
    """Every hostile folder, opened by every program that it is meant for."""
    for name, classes in CLASSES.items():
        for program in OPENERS:
            yield _trial(f"{name}, {program}", _plant_class, classes, program)
    for program in OPENERS:
        yield _trial(f"modules beside the run, {program}", _plant_shadows, program)
        yield _trial(f"an undamaged folder stays as it is, {program}", _keep_folder, program)
    for name, text in (TAGS | KEYS).items():
        yield _trial(f"config.yaml with {name}", _plant_text, text)
    for name, make in BOMBS.items():
        for program in ("translate", "start", "run"):
            yield _trial(f"config.yaml with {name}, {program}", _bomb, "config.yaml", make, program)
    for file, programs in JSON_READERS.items():
        for name, make in DEEP.items():
            for program in programs:
                yield _trial(f"{file} with {name}, {program}", _bomb, file, make, program)
    for name, change in VOCABULARIES.items():
        yield _trial(f"a vocabulary with {name}", _bend_vocabulary, change)
    for name, forge in WEIGHTS.items():
        for program in ("translate", "run"):
            yield _trial(f"weights with {name}, {program}", _forge_weights, forge, program)


def _trial(name: str, run: Callable[..., None], *given: Any) -> Trial:
    return Trial("hostile", name, partial(_guard, partial(run, *given)))


def _guard(run: Callable[[Arena, Path, Random], None], arena: Arena, rng: Random) -> None:
    """Does a trial beside a canary."""
    with arena.scratch() as folder:
        canary = folder / "canary"
        canary.write_text("alive")
        try:
            run(arena, folder, rng)
        finally:
            if not canary.exists():
                raise TrialError("planted code", "it ran")


def _bounded(ended: Ended) -> Ended:
    check(ended)
    if ended.memory > MOST:
        message = f"{ended.program} held {ended.memory / 1e9:.1f} GB"
        raise TrialError("other", message)
    return ended


def _refused(ended: Ended, what: str) -> None:
    """What is foreign must be refused, not passed over."""
    if _bounded(ended).status == 0:
        raise TrialError("other", f"{ended.program} takes {what} without a word")


# Planted code


def _command(canary: Path) -> dict[str, Any]:
    return {"command": f"rm {canary}", "args": ["rm", str(canary)], "source": f"rm {canary}"}


def _prior(name: str) -> dict[str, Any]:
    return {"latents": "alignments+logits", "logits": {"prior": {"class": name}}}


CLASSES: dict[str, dict[str, Any]] = {
    "a guide in a module of the folder": {"guide": {"class": "planted.Evil"}},
    "a guide by module:Class": {"guide": {"class": "planted:Evil"}},
    "a guide in a word": {"guide": "planted:Evil"},
    "a prior in a module of the folder": _prior("planted.EvilPrior"),
    "a recipe of the folder's own": {"recipe": "planted:EvilPrior+planted:Evil"},
    "os:system for a guide": {"guide": {"class": "os:system"}},
    "os.system for a prior": _prior("os.system"),
    "os:system for data": {"data": {"class": "os:system"}},
    "os:system for a schedule": {"train": {"schedule": {"class": "os:system"}}},
    "subprocess.Popen for a guide": {"guide": {"class": "subprocess.Popen"}},
    "exec for a guide": {"guide": {"class": "builtins.exec"}},
    "a class for an option of the guide": {
        "guide": {"class": "cascaded", "hidden": {"class": "planted.Evil"}}
    },
}


def _plant_class(
    options: Mapping[str, Any], program: str, arena: Arena, scratch: Path, rng: Random
) -> None:
    """A class for config.yaml to name, in a module that could be imported."""
    run = arena.copy("finished", scratch / "run")
    module = MODULE.format(canary=str(scratch / "canary"))
    for folder in (run, scratch):
        (folder / "planted.py").write_text(module)
    _edit(
        run, options if "planted" in str(options) else _arm(options, _command(scratch / "canary"))
    )
    modules = rng.choice([run, scratch])
    ended = use_run(program, arena, "finished", run, modules=modules, limits=BOUNDS)
    _refused(ended, "the class")


def _arm(message: Any, commands: Mapping[str, Any]) -> Any:
    """Gives classes options that do harm to who calls them."""
    if not isinstance(message, Mapping):
        return message
    more = commands if "class" in message else {}
    return {**more, **{name: _arm(value, commands) for name, value in message.items()}}


def _edit(run: Path, changed: Mapping[str, Any]) -> None:
    """Changes what a folder's configuration says."""
    path = run / "config.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | dict(changed)))


def _plant_shadows(program: str, arena: Arena, scratch: Path, rng: Random) -> None:
    """Modules that bear the names of what the programs import, where one is started."""
    run = arena.copy("finished", scratch / "run")
    for name in SHADOWS:
        (run / f"{name}.py").write_text(MODULE.format(canary=str(scratch / "canary")))
    ended = use_run(program, arena, "finished", run, folder=run, limits=BOUNDS, fresh=True)
    if _bounded(ended).status:
        raise TrialError("other", f"{program} fails beside foreign files: {ended.error[-300:]}")


def _keep_folder(program: str, arena: Arena, scratch: Path, rng: Random) -> None:
    """Reading is not writing."""
    run = arena.copy("finished", scratch / "run")
    before = _stamps(run)
    if _bounded(use_run(program, arena, "finished", run, limits=BOUNDS)).status:
        raise TrialError("other", f"{program} refuses an undamaged folder")
    if _stamps(run) != before:
        raise TrialError("other", f"{program} changed the folder")


def _stamps(run: Path) -> list[tuple[str, int, int]]:
    paths = [path for path in run.rglob("*") if path.name != ".lock"]
    return sorted((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths)


TAGS = {
    "a call in a tag": 'seed: !!python/object/apply:os.system ["rm canary ../canary"]\n',
    "a class in a tag": "guide: !!python/name:planted.Evil\n",
    "a module in a tag": "guide: !!python/module:planted\n",
}
KEYS = {
    "another file": "config: ../other.yaml\n",
    "other files": "config: [../other.yaml]\n",
    "another file inside the guide": "guide: {config: ../other.yaml}\n",
    "another file for the guide": "guide: ../other.yaml\n",
    "a preset": "preset: ../other.yaml\n",
    "a question": "print_config: true\n",
    "a call for help": "guide.help: planted.Evil\n",
    "an option that there is not": "trust: true\n",
}
"""Lines of a configuration that run something or read another file."""


def _plant_text(text: str, arena: Arena, scratch: Path, rng: Random) -> None:
    run = arena.copy("finished", scratch / "run")
    for folder in (run, scratch):
        (folder / "planted.py").write_text(MODULE.format(canary=str(scratch / "canary")))
    (scratch / "other.yaml").write_text(f"{SECRET}: [{SECRET}]\n")
    config = yaml.safe_load((run / "config.yaml").read_text())
    config.pop(text.partition(":")[0], None)
    (run / "config.yaml").write_text(yaml.safe_dump(config) + text)
    ended = use_run("translate", arena, "finished", run, limits=BOUNDS)
    _refused(ended, text.strip())
    if SECRET in ended.out + ended.error:
        raise TrialError("other", "another file was read")


# Bombs


def _aliases() -> str:
    lines = [f"a: &a [{', '.join('x' * 9)}]"]
    for one, two in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{two}: &{two} [{', '.join([f'*{one}'] * 9)}]")
    return "\n".join(lines) + "\n"


BOMBS: dict[str, Callable[[], str | bytes]] = {
    "nine by nine aliases": _aliases,
    "nine by nine aliases for the guide": lambda: _aliases() + "guide: *i\n",
    "a list that holds itself": lambda: "a: &a [*a]\n",
    "a mapping that holds itself": lambda: "a: &a {b: *a}\n",
    "a guide that holds itself": lambda: "guide: &a {class: x, hidden: *a}\n",
    "a merge with itself": lambda: "a: &a\n  <<: *a\n",
    "5,000 brackets": lambda: "a: " + "[" * 5_000 + "]" * 5_000,
    "200,000 open brackets": lambda: "[" * 200_000,
    "3,000 levels": lambda: "".join(f"{' ' * level}a:\n" for level in range(3_000)),
    "a scalar of 40 MB": lambda: "a: " + "x" * 40_000_000,
    "a million keys": lambda: "".join(f"k{number}: 1\n" for number in range(1_000_000)),
    "a number of 100,000 digits": lambda: "seed: " + "9" * 100_000,
    "an infinite width": lambda: "network: {width: .inf}\n",
    "two documents": lambda: "seed: 8\n---\nseed: 8\n",
    "UTF-16": lambda: "seed: 8\n".encode("utf-16"),
    "a NUL byte": lambda: b"seed: 8\0\n",
    "a key that is a list": lambda: "? [a, b]\n: 1\n",
    "a key that is a number": lambda: "1: 1\n",
}
DEEP: dict[str, Callable[[], str | bytes]] = {
    "100,000 brackets": lambda: "[" * 100_000 + "]" * 100_000,
    "100,000 braces": lambda: '{"a":' * 100_000 + "1" + "}" * 100_000,
    "a number of 100,000 digits": lambda: '{"target": ' + "9" * 100_000 + "}",
    "a string of 40 MB": lambda: json.dumps({"target": "x" * 40_000_000}),
    "half a surrogate": lambda: '{"target": {"kind": "words", "words": ["\\ud800"]}}',
    "no number": lambda: '{"target": NaN, "source": -Infinity}',
}
JSON_READERS = {
    "vocabulary.json": ("translate", "run"),
    "processor.json": ("translate",),
    "results.json": ("score", "start", "run"),
    "heads.json": ("translate", "run"),
    "metrics.jsonl": ("run",),
}


def _bomb(
    file: str,
    make: Callable[[], str | bytes],
    program: str,
    arena: Arena,
    scratch: Path,
    rng: Random,
) -> None:
    """Puts a bomb in the place of a file."""
    ground = "half" if program == "run" and file != "results.json" else "finished"
    run, bomb = arena.copy(ground, scratch / "run"), make()
    (run / file).write_bytes(bomb if isinstance(bomb, bytes) else bomb.encode())
    _bounded(use_run(program, arena, ground, run, limits=BOUNDS))


# Vocabularies


def _set(*path: str, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(options: dict[str, Any]) -> None:
        *above, last = path
        for name in above:
            options = options[name]
        options[last] = to

    return change


FIXED = {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": None}
PADDING = {**FIXED, "pad_id": 0, "pad_type_id": 0, "pad_token": "x"}
SLOW = {"type": "Replace", "pattern": {"Regex": "(a|aa)+$"}, "content": "b"}
LONG = {"type": "Replace", "pattern": {"String": " "}, "content": "x" * 10**7}
CUT = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
SINGLE = [{"SpecialToken": {"id": "x", "type_id": 0}}]
MANY = {"type": "TemplateProcessing", "single": SINGLE, "pair": [], "special_tokens": {}}
VOCABULARIES: dict[str, Callable[[dict[str, Any]], None]] = {
    "paddings of 1e9": _set("tokenizer", "padding", to=PADDING),
    "a truncation": _set("tokenizer", "truncation", to=CUT),
    "a slow pattern": _set("tokenizer", "normalizer", to=SLOW),
    "a long replacement": _set("tokenizer", "normalizer", to=LONG),
    "a template": _set("tokenizer", "post_processor", to=MANY),
    "chance": _set("tokenizer", "model", "dropout", to=0.5),
    "wrong merges": _set("tokenizer", "model", "merges", to=[["x", "y"]] * 9),
    "a place of 1e9": _set("tokenizer", "model", "vocab", "zzz", to=10**9),
    "a place below 0": _set("tokenizer", "model", "vocab", "zzz", to=-1),
    "a million types": lambda message: _set("tokenizer", "model", "vocab", to=_types(10**6))(
        message
    ),
    "100 vocabularies inside": lambda message: message.update(_nested(100)),
    "10,000 vocabularies inside": lambda message: message.update(_nested(10_000)),
}


def _types(number: int) -> dict[str, int]:
    return {f"w{index}": index for index in range(number)}


def _nested(levels: int) -> dict[str, Any]:
    options: dict[str, Any] = {"kind": "words", "words": ["a"]}
    for _ in range(levels):
        options = {"kind": "tagged", "tags": [], "plain": options}
    return options


def _bend_vocabulary(
    change: Callable[[dict[str, Any]], None], arena: Arena, scratch: Path, rng: Random
) -> None:
    """Changes the vocabulary of a run on text: it translates as before, or refuses."""
    run = arena.copy("subwords", scratch / "run")
    text = b"a" * 40 + b"c\nthe old dog\n"
    given: dict[str, Any] = {"text": text, "limits": BOUNDS}
    expected = _bounded(use_run("translate", arena, "subwords", run, **given))
    record = json.loads((run / "vocabulary.json").read_text())
    change(record["joint"])
    (run / "vocabulary.json").write_text(_dumps(record))
    ended = _bounded(use_run("translate", arena, "subwords", run, **given))
    if ended.status == 0 and ended.out != expected.out:
        raise TrialError("other", "translates in another way, without a word")


def _dumps(options: dict[str, Any]) -> str:
    """JSON of any depth."""
    depth, inner = 0, options["joint"]
    while isinstance(inner, dict) and inner.get("kind") == "tagged":
        depth, inner = depth + 1, inner["plain"]
    begin, end = '{"kind": "tagged", "tags": [], "plain": ', "}"
    return '{"joint": ' + begin * depth + json.dumps(inner) + end * depth + "}"


# Weights


def _header(text: str, length: int | None = None) -> Callable[[Path], object]:
    data = text.encode()
    whole = struct.pack("<Q", len(data) if length is None else length) + data
    return lambda path: path.write_bytes(whole)


def _facts(make: Callable[[], str]) -> Callable[[Path], object]:
    def forge(path: Path) -> None:
        save_file(load_file(path), path, {"format": checkpoints.FORMAT, "facts": make()})

    return forge


class _Pickled:
    """Removes canaries where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("rm -f canary ../canary",)


HUGE = '{"model.x":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}'
WEIGHTS: dict[str, Callable[[Path], object]] = {
    "a pickle": lambda path: path.write_bytes(pickle.dumps(_Pickled())),
    "a header of 2^63 bytes": _header("{}", 2**63),
    "a header of 99 MB": _header("{}", 99_000_000),
    "tensors of 4 TB": _header(HUGE),
    "a deep header": _header('{"a":' * 100_000 + "1" + "}" * 100_000),
    "deep facts": _facts(lambda: "[" * 100_000 + "]" * 100_000),
    "facts that are no JSON": _facts(lambda: "step"),
    "facts that are a list": _facts(lambda: "[]"),
    "facts of 20 MB": _facts(lambda: json.dumps({"step": "x" * 20_000_000})),
    "a step of 5,000 digits": _facts(lambda: '{"step": ' + "9" * 5_000 + "}"),
}


def _forge_weights(
    forge: Callable[[Path], object], program: str, arena: Arena, scratch: Path, rng: Random
) -> None:
    """Weights that no run has written are refused."""
    ground = "half" if program == "run" else "finished"
    run = arena.copy(ground, scratch / "run")
    for path in (run / "checkpoints").glob("*.safetensors"):
        forge(path)
    _refused(use_run(program, arena, ground, run, folder=run, limits=BOUNDS), "the weights")
