"""The plan: which jobs a machine is given, in which order, on which corpora."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from latentheads.experiments.studies.machine.jobs import Job

PARTS = (
    *("suite", "agreement", "bench", "length", "decoding", "speed", "graphs", "compiled"),
    *("train", "large"),
)
"""The jobs by name, in their order."""

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

STUDIES = "latentheads.experiments.studies."
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


def make_plan(order: Order, names: Sequence[str] = PARTS) -> list[Job]:
    """The jobs that were asked for, in their order."""
    made = [*_measuring(order), *_training(order), *_large(order)]
    return [job for job in made if job.name in names]


def _measuring(order: Order) -> list[Job]:
    """The jobs that end by themselves, each within its time."""
    device = ("--device", order.device)
    quick, small = (("--quick",), ("--small",)) if order.smoke else ((), ())
    beams = ("--recipe=coda", "--beam=2") if order.smoke else ()
    few = ("--rounds=2", "--warmup=1") if order.smoke else ()
    tests = ("tests/test_second_device.py", "-k", "no_recipe_waits and transformer")
    length = _length_words() if order.smoke else ("--precision=bf16", "--tokens=8192")

    def job(name: str, program: str, *words: str, seconds: float = 180.0) -> Job:
        written = ("--json", str(order.out / f"{name}.json"))
        return Job(name, (STUDIES + program, *device, *written, *words), seconds)

    suite = ("pytest", "-q", "-p", "no:cacheprovider", "-m", "device", *device)
    every = ("tests", "--continue-on-collection-errors")  # where a package of the tests is missing
    recipes = () if order.smoke else ("--recipe=transformer", "--recipe=coda", "--recipe=cascaded")
    modes = [
        job("graphs", "machine.speed", "--mode=graphs"),
        job("compiled", "machine.speed", "--mode=compiled", seconds=300.0),
    ]
    return [
        Job("suite", (*suite, *(tests if order.smoke else every)), 300.0),
        job("agreement", "machine.agreement", *small),
        job("bench", "bench", "--adam", *recipes, *quick, *few),
        job("length", "bench_length", *length, *few),
        job("decoding", "bench_decoding", *quick, *beams, *few),
        job("speed", "machine.speed", *small, *few[:1]),
        *([] if order.smoke else modes),
    ]


def _length_words() -> tuple[str, ...]:
    sizes = {"width": 8, "feed_forward": 8, "layers": 2, "heads": 4, "vocabulary": 9, "tokens": 32}
    return "--length=8", *(f"--{name}={value}" for name, value in sizes.items())


def _training(order: Order) -> list[Job]:
    """Multi30k to the end, seed after seed; in miniature a few steps on a grammar."""
    folder = None if order.data is None else order.data / MULTI30K
    if order.smoke:
        size = ("--network.width=8", "--network.feed_forward=8", "--network.heads=2")
        corpus = ("--data.sentences=60", "--data.held_out=12")
        brief = (
            "--train.steps=3",
            "--train.report_every=2",
            "--train.tokens=128",
            "--num_samples=2",
        )
        return [_compare(order, "train", (*corpus, *size, *brief), RECIPES[:1], "0")]
    if folder is None or not folder.is_dir():
        return []
    tokenised = folder / "tok"
    own = tokenised if tokenised.is_dir() else folder
    test = "test_2016_flickr"
    named = (f"--data.test_name={test}",) if (own / f"{test}.en").exists() else ()
    words = (
        "--preset=multi30k",
        f"--data={own}",
        f"--data.tokenised={str(own == tokenised).lower()}",
    )
    return [_compare(order, "train", (*words, *named), RECIPES, "0,1,2")]


def _large(order: Order) -> list[Job]:
    """A network of IWSLT's size on the largest corpus at hand."""
    found = None if order.smoke or order.data is None else largest_corpus(order.data)
    if found is None:
        return []
    words = ("--preset=iwslt14", f"--data={found}", "--data.source=en", "--data.target=de")
    recipes = ("transformer", "coda", "cascaded+alignments")
    return [_compare(order, "large", words, recipes, "0")]


def largest_corpus(data: Path) -> Path | None:
    """The folder with the most English and German text beside Multi30k's; None where none has."""
    sides = [(each / "train.en", each / "train.de") for each in sorted(data.iterdir())]
    sizes = {
        english.parent: english.stat().st_size + german.stat().st_size
        for english, german in sides
        if english.is_file() and german.is_file() and english.parent.name != MULTI30K
    }
    return max(sizes, key=lambda each: sizes[each], default=None)


def _compare(
    order: Order, name: str, words: Sequence[str], recipes: Sequence[str], seeds: str
) -> Job:
    """A comparison of recipes, in a folder of its own below ``runs``."""
    own = (
        f"--recipes={','.join(recipes)}",
        f"--seeds={seeds}",
        f"--out={order.out / 'runs' / name}",
    )
    beside = (
        () if order.smoke else (f"--data.cache={order.out / 'cache'}", f"--jobs={order.at_once}")
    )
    program = "latentheads.experiments.compare"
    return Job(name, (program, *words, *own, *beside, f"--device={order.device}"))
