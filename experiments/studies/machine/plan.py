"""The plan: which jobs a machine is given, in which order, on which corpora."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from latentheads.experiments.studies.machine.jobs import Job, Part

PARTS = ("suite", "agreement", "bench", "length", "decoding", "speed", "compiled", "train", "large")
"""The parts by name, in their order."""

NEEDS = {
    "train": "a folder multi30k",
    "large": "train.en and train.de in a folder beside multi30k",
}
"""What a folder of corpora must hold for a part."""

RECIPES = (
    *("transformer", "coda", "cascaded", "cascaded+alignments", "coda-cs", "realformer"),
    *("exact+alignments", "tied+alignments", "mean-field", "autoregressive"),
)
"""The recipes that are trained, the most wanted first."""

SEEDS = (0, 1, 2)
PROGRAMS, STUDIES = "latentheads.experiments.", "latentheads.experiments.studies."
MULTI30K = "multi30k"


@dataclass(frozen=True)
class Order:
    """What was asked for.

    Attributes:
        out: Where results are written.
        device: Where to compute.
        data: A folder of corpora, each a folder of files; None: nothing real is trained on.
        smoke: Everything in miniature, on a grammar.
        at_once: Training runs that share the device.
    """

    out: Path
    device: str = "cuda"
    data: Path | None = None
    smoke: bool = False
    at_once: int = 4


def make_plan(order: Order, names: Sequence[str] = PARTS) -> list[Part]:
    """The parts that were asked for, in their order."""
    made = [*_measuring(order), _training(order), _large(order)]
    return [part for part in made if part.name in names and part.jobs]


def _measuring(order: Order) -> list[Part]:
    """The parts that end by themselves, each within its time."""
    device = ("--device", order.device)
    quick, small = (("--quick",), ("--small",)) if order.smoke else ((), ())
    beams = ("--recipe=coda", "--beam=2") if order.smoke else ()
    few = ("--rounds=2", "--warmup=1") if order.smoke else ()
    tests = ("tests/test_second_device.py", "-k", "no_recipe_waits and transformer")
    length = _length_words() if order.smoke else ("--precision=bf16", "--tokens=8192")

    def job(name: str, program: str, *words: str) -> list[Job]:
        written = ("--json", str(order.out / f"{name}.json"))
        return [Job(name, (STUDIES + program, *device, *written, *words))]

    suite = ("pytest", "-q", "-p", "no:cacheprovider", "-m", "device", *device)
    every = ("tests", "--continue-on-collection-errors")  # where a package of the tests is missing
    recipes = () if order.smoke else ("--recipe=transformer", "--recipe=coda", "--recipe=cascaded")
    return [
        Part("suite", [Job("suite", (*suite, *(tests if order.smoke else every)))], 300),
        Part("agreement", job("agreement", "machine.agreement", *small), 180),
        Part("bench", job("bench", "bench", "--adam", *recipes, *quick, *few), 180),
        Part("length", job("length", "bench_length", *length, *few), 180),
        Part("decoding", job("decoding", "bench_decoding", *quick, *beams, *few), 180),
        Part("speed", job("speed", "machine.speed", *small, *few[:1]), 180),
        Part(
            "compiled", [] if order.smoke else job("compiled", "machine.speed", "--compiled"), 300
        ),
    ]


def _length_words() -> tuple[str, ...]:
    sizes = {"width": 8, "feed_forward": 8, "layers": 2, "heads": 4, "vocabulary": 9, "tokens": 32}
    return "--length=8", *(f"--{name}={value}" for name, value in sizes.items())


def _training(order: Order) -> Part:
    """Multi30k to the end, seed after seed; in miniature a few steps on a grammar."""
    folder = None if order.data is None else order.data / MULTI30K
    if order.smoke:
        size = ("--network.width=8", "--network.feed_forward=8", "--network.heads=2")
        corpus = ("--data.sentences=60", "--data.held_out=12")
        brief = ("--train.steps=3", "--train.report_every=2", "--train.tokens=128", "--samples=2")
        return Part("train", _runs(order, (*corpus, *size, *brief), RECIPES[:1], SEEDS[:1]), 0, 2)
    if folder is None or not folder.is_dir():
        return Part("train", [])
    tokenised = folder / "tok"
    own = tokenised if tokenised.is_dir() else folder
    test = "test_2016_flickr"
    named = (f"--data.test_name={test}",) if (own / f"{test}.en").exists() else ()
    words = (
        "--preset=multi30k",
        f"--data={own}",
        f"--data.tokenised={str(own == tokenised).lower()}",
    )
    return Part("train", _runs(order, (*words, *named), RECIPES, SEEDS), 0, order.at_once)


def _large(order: Order) -> Part:
    """A network of IWSLT's size on the largest corpus at hand."""
    found = None if order.smoke or order.data is None else largest_corpus(order.data)
    if found is None:
        return Part("large", [])
    words = ("--preset=iwslt14", f"--data={found}", "--data.source=en", "--data.target=de")
    recipes = ("transformer", "coda", "cascaded+alignments")
    return Part("large", _runs(order, words, recipes, SEEDS[:1], found.name), 0, order.at_once)


def largest_corpus(data: Path) -> Path | None:
    """The folder with the most English and German text beside Multi30k's; None where none has."""
    sides = [(each / "train.en", each / "train.de") for each in sorted(data.iterdir())]
    sizes = {
        english.parent: english.stat().st_size + german.stat().st_size
        for english, german in sides
        if english.is_file() and german.is_file() and english.parent.name != MULTI30K
    }
    return max(sizes, key=lambda each: sizes[each], default=None)


def _runs(
    order: Order,
    words: Sequence[str],
    recipes: Sequence[str],
    seeds: Sequence[int],
    corpus: str = "",
) -> list[Job]:
    """A training run for every recipe and seed; the folder that it writes is the job's name."""
    jobs = []
    for seed in seeds:
        for recipe in recipes:
            name = "-".join([*([corpus] if corpus else []), recipe, f"seed{seed}"])
            own = (f"--recipe={recipe}", f"--seed={seed}", f"--out={order.out / 'runs' / name}")
            kept = () if order.smoke else (f"--data.cache={order.out / 'cache'}",)
            command = (PROGRAMS + "run", *words, *own, *kept, f"--device={order.device}")
            jobs.append(Job(name, command, max(1, (os.cpu_count() or 1) // order.at_once)))
    return jobs
