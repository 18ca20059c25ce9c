"""Speed of trained networks against fresh ones of the same size: neither should be slower.

    python experiments/studies/bench_trained.py runs/first runs/second --threads 1

A trained network has sharp posteriors, so numbers that are nearly 0, which some processors are slow
at. For each run, precision and kind of work its own weights and fresh ones take turns on one batch
of its corpus; the ratio is the median over rounds of trained over fresh.

    training     forward, loss and backward, as the run was trained
    evaluation   the terms of the bound
    decoding     beam search for as many tokens with either
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import latentheads.experiments.cli.startup  # noqa: F401

import pyro
import torch

from latentheads.batch import Batch
from latentheads.corpora.batches import batches
from latentheads.decoding.options import Decoding
from latentheads.decoding.translate import search
from latentheads.experiments.cli.errors import error_handling
from latentheads.experiments.cli.outputs import check_distinct_files
from latentheads.experiments.cli.parser import Parser, positive
from latentheads.experiments.studies.benchmarks.baselines import (
    PRECISIONS,
    Forward,
    Runner,
    Setting,
)
from latentheads.experiments.studies.benchmarks.command_line import bench_parser, write
from latentheads.experiments.studies.benchmarks.racing import metadata, progress, quartiles, race
from latentheads.inference.bound import terms
from latentheads.inference.evaluation import eval_no_grad
from latentheads.runs.build import make_model
from latentheads.runs.loading import load_run
from latentheads.runs.run import Run
from latentheads.training.engine import make_loss

WARMUP = 2
LENGTH = 12
"""Tokens that beam search writes."""


@dataclass(frozen=True)
class Point:
    """A kind of work of one run in one precision; times in milliseconds."""

    run: str
    work: str
    precision: str
    trained: float
    fresh: float
    ratio: float
    low: float
    high: float


def make_runners(
    work: str, run: Run, setting: Setting, precision: str, batch: Batch
) -> list[Runner]:
    """The run's own network at work, and a fresh one."""
    torch.manual_seed(run.settings.seed)
    fresh: Any = make_model(run.settings, run.target, run.source).to(setting.device)
    fresh_guide = run.settings.pair.make_guide(fresh).to(setting.device)
    pairs = {"trained": (run.model, run.guide), "fresh": (fresh, fresh_guide)}
    runners = []
    for name, (model, guide) in pairs.items():
        loss, kind = WORK[work](model, guide, run, batch)
        runners.append(kind(name, loss, list(model.parameters()), setting, precision))
    return runners


def _train(model: Any, guide: Any, run: Run, batch: Batch) -> tuple[Any, type[Runner]]:
    objective = make_loss(run.settings.train, model)(model.train(), guide.train())
    return (lambda: objective(batch)), Runner


def _evaluate(model: Any, guide: Any, run: Run, batch: Batch) -> tuple[Any, type[Runner]]:
    def forward() -> None:
        with eval_no_grad(model, guide):
            terms(model, guide, batch)

    return forward, Forward


def _decode(model: Any, guide: Any, run: Run, batch: Batch) -> tuple[Any, type[Runner]]:
    decoding = Decoding(num_beams=5, min_new_tokens=LENGTH - 1, max_new_tokens=LENGTH - 1)

    def forward() -> None:
        with eval_no_grad(model):
            search(model, batch, decoding, 0)

    return forward, Forward


WORK: dict[str, Callable[[Any, Any, Run, Batch], tuple[Any, type[Runner]]]] = {
    "training": _train,
    "evaluation": _evaluate,
    "decoding": _decode,
}


def measure(run: Run, setting: Setting, rounds: int) -> Iterator[Point]:
    """Times every kind of work of a run in every precision."""
    part = list(batches(run.corpus.train, run.settings.train.tokens, shuffle=False))
    batch = part[len(part) // 2].to(setting.device)
    for precision in PRECISIONS:
        for work in WORK:
            if work == "decoding" and batch.source is None:
                continue
            runners = make_runners(work, run, setting, precision, batch)
            with progress(2 * (rounds + WARMUP)) as bar:
                race(runners, rounds, WARMUP, setting.seed, bar)
            trained, fresh = (quartiles(runner.seconds)[1] * 1e3 for runner in runners)
            pairs = zip(*(runner.seconds for runner in runners), strict=True)
            low, ratio, high = quartiles([mine / other for mine, other in pairs])
            yield Point(run.path.name, work, precision, trained, fresh, ratio, low, high)


def make_parser() -> Parser:
    """Builds the command line."""
    parser = bench_parser("bench_trained.py", __doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a finished run folder")
    parser.add_argument("--rounds", type=positive, default=10, metavar="N", help="default: 10")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the benchmark."""
    options = make_parser().parse_args(arguments)
    form = "{:<28} {:<11} {:<5} {:>10} {:>9} {:>7} {:>13}"
    with error_handling("bench_trained.py"), pyro.validation_enabled(False):
        check_distinct_files([("--json", options.json)], options.runs)
        torch.set_num_threads(options.threads or torch.get_num_threads())
        setting = Setting(options.device, options.seed)
        print(form.format("run", "work", "", "trained ms", "fresh ms", "ratio", "quartiles"))
        points = []
        for folder in options.runs:
            for p in measure(load_run(folder, device=options.device), setting, options.rounds):
                cells = f"{p.trained:.1f}", f"{p.fresh:.1f}", f"{p.ratio:.2f}"
                print(form.format(p.run, p.work, p.precision, *cells, f"{p.low:.2f}-{p.high:.2f}"))
                points.append(p)
        plan = {"runs": [Path(run).name for run in options.runs], "rounds": options.rounds}
        write(options.json, metadata(plan, setting), points=points)


if __name__ == "__main__":
    main()
