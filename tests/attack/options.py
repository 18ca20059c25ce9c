"""Every option of every program with absurd values: refused in one line, or taken."""

from __future__ import annotations

import inspect
import re
import signal
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from random import Random

from latentheads.guides import GUIDES
from latentheads.models import PRIORS
from tests.attack.grounds import PAIRS
from tests.attack.process import BENCHES, Limits, Moment, start
from tests.attack.trial import Arena, Trial, check

__all__ = ["options"]

NAME = re.compile(r"^ +(?:-\w, )?(--[A-Za-z_][\w.]*\w)\b(?!\[)", re.MULTILINE)
"""An option in the text of ``--help``."""
NO_VALUES = ("--help", "--print_config")

ABSURD = {
    "-1": "-1",
    "0": "0",
    "1": "1",
    "3": "3",
    "1e9": "1000000000",
    "1e40": "1" + "0" * 40,
    "-1e9": "-1000000000",
    "half": "0.5",
    "tiny": "1e-300",
    "large": "1e300",
    "NaN": "nan",
    "inf": "inf",
    "-inf": "-inf",
    "nothing": "",
    "a space": " ",
    "a word": "x",
    "true": "true",
    "null": "null",
    "a list": "[1, 2]",
    "numbers": "1,2",
    "commas": ",,",
    "a mapping": "{a: 1}",
    "an open brace": "{",
    "a tag": "!!python/name:os.system",
    "no UTF-8": "\udcff",
    "a newline": "a\nb",
    "5,000 letters": "x" * 5_000,
    "3,000 signs": "-" * 3_000 + "1",
    "3,000 brackets": "(" * 3_000,
    "a folder": "{folder}",
    "a file": "{file}",
    "no such file": "{folder}/gone/gone",
    "a device": "/dev/null",
    "a place of the system": "/proc/self/mem",
}
"""Values by what they are; folder and file are the trial's own."""

WORK = ("1e9", "1e40", "inf", "large")
"""Values that may ask for work without end: it goes on, says so and ends at Ctrl-C."""
AMOUNTS = (
    *("steps", "sentences", "held_out", "samples", "number", "length", "draws", "seeds"),
    *("rounds", "warmup", "timed", "batch", "tokens", "head_numbers", "beam", "layers"),
)
"""Options that are an amount of work."""
PATIENCE = 20.0
"""Seconds after which Ctrl-C is sent."""

BOUNDS = Limits(work=45)
QUICK = (
    "--network.width=8",
    "--network.feed_forward=8",
    "--network.heads=2",
    "--network.layers=1",
    "--train.tokens=64",
    "--samples=2",
)
BRIEF = (*QUICK, "--train.steps=2", "--train.report_every=2", "--device=cpu")
SHORT = (*BRIEF, "--data.sentences=20", "--data.held_out=4")
LOGITS = (*SHORT, "--latents=logits")
BENCH = ("--quick", "--rounds=1", "--warmup=1", "--threads=1")
LENGTHS = (*BENCH[1:], "--length=4", "--width=8", "--feed_forward=8", "--heads=2", "--layers=1")
TRAINING = ("run", "compare", "sweep")
"""Programs whose help names their options in groups."""


def options(arena: Arena) -> Iterator[Trial]:
    """Every option of every program: with every value, or with some where run.py has it too."""
    names: set[str] = set()
    for context, (program, words) in _contexts().items():
        for option in _options_of(arena, program, words):
            again = program in TRAINING and option in names
            names.add(option)
            for value in Random(f"{context} {option}").sample([*ABSURD], 2) if again else ABSURD:
                name = f"{context} {option} {value}"
                yield Trial("options", name, partial(_try, program, words, option, value))


def _contexts() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Programs with words that make them do something small, by a name for both."""
    several = (*SHORT, "--seeds=0", "--recipes=transformer")
    small = ("{finished}", "--sentences=4", "--out={folder}/out")
    return {
        "run": ("run", SHORT),
        "run on text": ("run", (*BRIEF, *PAIRS, "--data.vocab_size=290")),
        "run on prose": (
            "run",
            (
                *BRIEF,
                *("--data=running-text", "--data.folder={text}"),
                *("--data.block=8", "--data.unit=subword"),
            ),
        ),
        "run with tasks": ("run", (*SHORT, "--data.tasks=velu,tamir", "--recipe=coda+group")),
        "run with gates": ("run", (*SHORT, "--recipe=transformer+gates")),
        "run with n-grams": (
            "run",
            (*SHORT, "--network.mixers=encoder=ngram", "--guide=mean-field"),
        ),
        **{f"run --guide {name}": ("run", (*_beside(name), f"--guide={name}")) for name in GUIDES},
        **{
            f"run --logits.prior {name}": ("run", (*LOGITS, f"--logits.prior={name}"))
            for name in PRIORS
        },
        "compare": ("compare", several),
        "sweep": ("sweep", (*several, "--head_numbers=2")),
        "translate": ("translate", ("{finished}",)),
        "generate": ("generate", ("{prose}", "--prompt=the", "--length=4")),
        "score": ("score", ("{finished}", "{finished}", "--resamples=9")),
        "analyse": ("analyse", (*small, "--relevance=0")),
        "prune": ("prune", (*small, "--keep_heads=4", "--timed=2")),
        **{name: (name, BENCH) for name in BENCHES[:2]},
        **{name: (name, LENGTHS) for name in BENCHES[2:]},
    }


def _beside(guide: str) -> tuple[str, ...]:
    """The options of a short run that a guide can bound."""
    return (*SHORT, "--alignments.blocks=1") if guide == "exact" else SHORT


def _options_of(arena: Arena, program: str, words: tuple[str, ...]) -> list[str]:
    """The options of a program; those of the guide or the prior alone where words end in one."""
    for kind, table in (("guide", GUIDES), ("logits.prior", PRIORS)):
        for name, actual in table.items():
            if words[-1] == f"--{kind}={name}":
                own = [
                    parameter
                    for parameter in inspect.signature(actual).parameters
                    if parameter != "model"
                ]
                return [f"--{kind}.{item}" for item in own]
    return _read_help(arena.top, program)


@cache
def _read_help(top: Path, program: str) -> list[str]:
    word = "--help=all" if program in TRAINING else "--help"
    message = check(start(program, word, folder=top), 0).out
    return [name for name in dict.fromkeys(NAME.findall(message)) if name not in NO_VALUES]


def _try(
    program: str, words: tuple[str, ...], option: str, value: str, arena: Arena, rng: Random
) -> None:
    with arena.scratch() as folder:
        (folder / "file").write_text("mine\n")
        (folder / "folder").mkdir()
        given = _fill(ABSURD[value], arena, folder)
        messages = [option, given] if given and not given.startswith("-") else [f"{option}={given}"]
        endless = value in WORK and option.rpartition(".")[2].lstrip("-") in AMOUNTS
        ended = start(
            program,
            *(_fill(word, arena, folder) for word in words),
            *messages,
            folder=folder,
            text=b"the dog\n",
            limits=BOUNDS,
            moment=Moment(seconds=PATIENCE, signal=signal.SIGINT) if endless else None,
        )
        check(ended, 0, 1, 2, *([130] if endless else []))


def _fill(word: str, arena: Arena, scratch: Path) -> str:
    """Puts paths in the places that a word keeps for them."""
    for name in ("folder", "file"):
        word = word.replace(f"{{{name}}}", str(scratch / name))
    for name in ("finished", "prose"):
        word = word.replace(f"{{{name}}}", str(arena.ground(name).path)) if name in word else word
    return word.replace("{text}", str(arena.top / "text"))
