"""What a step costs beside its arithmetic: operations, calls of Python functions, and their time.

    python experiments/studies/bench_host.py --threads 1 --json host.json

The networks are so small that arithmetic takes no time, so that the rows differ by what a GPU waits
for: the number of operations, and the Python between them. A step is forward, loss and backward.
Operations and calls are counted, and the same in every run. The time, with ``--threads 1`` that of
the processor, is the median over rounds in which all rows take turns, as a ratio to
``nn.Transformer``.

    nn.Transformer          PyTorch's own network, without latents
    no latents              the library's
    RECIPE                  the library's with latent heads
    RECIPE, plain PyTorch   the same in plain PyTorch
    RECIPE, same kernels    plain PyTorch with the library's dropout, softmax and output layer
    cascaded+alignments     two blocks of alignments above a network without latent logits
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import latentheads.experiments.cli.startup  # noqa: F401

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from latentheads.batch import Batch
from latentheads.experiments.cli.parser import Parser
from latentheads.experiments.studies.benchmarks import command_line
from latentheads.experiments.studies.benchmarks.baselines import (
    RECIPES,
    Made,
    Runner,
    Setting,
    Size,
    in_memory,
    make_batch,
    ours,
    with_same_kernels,
    without_latents,
)
from latentheads.experiments.studies.benchmarks.command_line import (
    begin,
    bench_parser,
    where,
    write,
)
from latentheads.experiments.studies.benchmarks.racing import progress, quartiles, race
from latentheads.experiments.studies.machine.agreement import ALIGNED
from latentheads.experiments.studies.machine.speed import FUSED, alignments, fused

FULL = command_line.Plan(Size(16, 16, 6, 4, 4, 8, 50), 60, 5)
NUMBERS = ("rounds", "warmup", "layers")
"""Numbers of the plan that have an option."""


@dataclass(frozen=True)
class Point:
    """A row as measured.

    Attributes:
        row: The network.
        operations: Operations of a step that compute something; views do not.
        calls: Calls of Python functions in a step.
        ms: Median milliseconds.
        ratio: Median of the ratios to ``nn.Transformer`` within each round.
        low: Their lower quartile.
        high: Their upper quartile.
    """

    row: str
    operations: int
    calls: int
    ms: float
    ratio: float
    low: float
    high: float


class CountedOperations(TorchDispatchMode):
    """Counts the operations of PyTorch that are no views."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Counts and calls an operation."""
        aliases = [returned.alias_info for returned in func._schema.returns]
        is_view = any(alias is not None and not alias.is_write for alias in aliases)
        self.number += not (is_view or func is torch.ops.aten._unsafe_view.default)
        return func(*args, **(kwargs or {}))


def count_operations(runner: Runner) -> int:
    """The operations of a step."""
    with CountedOperations() as counted:
        runner.step()
    return counted.number


def count_calls(runner: Runner) -> int:
    """The calls of Python functions of a step."""
    number = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal number
        number += event == "call"

    previous = sys.getprofile()
    sys.setprofile(count)
    try:
        runner.step()
    finally:
        sys.setprofile(previous)
    return number


def make_rows() -> dict[str, tuple[Callable[[str, Size, Setting, Batch], Made], str]]:
    """What makes each row, and the recipe that it is given."""
    rows: dict[str, tuple[Callable[[str, Size, Setting, Batch], Made], str]] = {
        FUSED: (fused, ""),
        "no latents": (without_latents, "transformer"),
    }
    for recipe in RECIPES:
        if recipe != "transformer":
            rows |= {
                recipe: (ours, recipe),
                f"{recipe}, plain PyTorch": (in_memory, recipe),
                f"{recipe}, same kernels": (with_same_kernels, recipe),
            }
    return rows | {ALIGNED: (alignments, "")}


def make_runners(size: Size, setting: Setting) -> list[Runner]:
    """A runner for each row, which has taken two steps."""
    batch = make_batch(size, setting)
    runners = [
        Runner(row, *make(recipe, size, setting, batch), setting, "fp32")
        for row, (make, recipe) in make_rows().items()
    ]
    for runner in runners:  # what is cached at first is not counted
        runner.step()
        runner.step()
    return runners


def measure(plan: command_line.Plan, setting: Setting) -> list[Point]:
    """Counts and times every row."""
    runners = make_runners(plan.size, setting)
    counts = [(count_operations(runner), count_calls(runner)) for runner in runners]
    with progress(len(runners) * (plan.rounds + plan.warmup)) as bar:
        race(runners, plan.rounds, plan.warmup, setting.seed, bar)
    base = runners[0].seconds
    points = []
    for runner, counted in zip(runners, counts, strict=True):
        low, ratio, high = quartiles([a / b for a, b in zip(runner.seconds, base, strict=True)])
        ms = 1e3 * statistics.median(runner.seconds)
        points.append(Point(runner.name, *counted, ms, ratio, low, high))
    return points


def show(points: Sequence[Point]) -> None:
    """Prints the table."""
    form = "{:<24} {:>10} {:>7} {:>8} {:>6} {:>11}"
    print(form.format("row", "operations", "calls", "ms", "ratio", "quartiles"))
    for p in points:
        spread = f"{p.low:.2f}-{p.high:.2f}"
        print(form.format(p.row, p.operations, p.calls, f"{p.ms:.1f}", f"{p.ratio:.2f}", spread))


def make_parser() -> Parser:
    """Builds the command line."""
    return bench_parser("bench_host.py", __doc__, FULL, NUMBERS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the benchmark."""
    options, plan, setting, facts = begin(
        make_parser(), arguments, lambda options: FULL.take(options, NUMBERS)
    )
    print(where(facts))
    points = measure(plan, setting)
    show(points)
    write(options.json, facts, points=points)


if __name__ == "__main__":
    main()
