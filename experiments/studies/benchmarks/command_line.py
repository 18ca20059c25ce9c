"""The frame of a benchmark: its options, its plan, where it runs, and the file that it writes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import pyro
import torch

from latentheads.batch import SPECIALS
from latentheads.experiments.cli.outputs import check_distinct_files
from latentheads.experiments.cli.parser import Groups, Parser, positive, writable
from latentheads.experiments.studies.benchmarks.baselines import Setting, Size
from latentheads.experiments.studies.benchmarks.racing import metadata
from latentheads.files import write_text

BENCH_GROUPS: Groups = {
    "what to do": ("minutes", "parts", "data", "at_once", "smoke"),
    "what to time": (
        *("recipe", "task", "rows", "decode", "beam", "window", "length", "adam", "precision"),
        "limit",
    ),
    "the network and its batch": (
        *("width", "feed_forward", "layers", "heads", "vocabulary", "cutoffs", "batch", "tokens"),
    ),
    "how often, and where": ("rounds", "warmup", "quick", "device", "threads", "seed"),
    "output": ("out", "json", "figure", "help"),
}
"""The names of the options of benchmarks and of the plan for a GPU, by the title of a group."""

SIZES = tuple(field.name for field in fields(Size))
"""The names of the numbers of a size."""


@dataclass(frozen=True)
class Plan:
    """How much is run.

    Attributes:
        size: Of the network and its batch.
        rounds: Timed rounds.
        warmup: Rounds before those.
    """

    size: Size
    rounds: int
    warmup: int

    def take(self, options: argparse.Namespace, numbers: Sequence[str]) -> Self:
        """The plan with the numbers that were asked for, of a size that can be run."""
        asked = {name: getattr(options, name) for name in numbers if getattr(options, name)}
        size = {name: asked.pop(name) for name in SIZES if name in asked}
        plan = replace(self, size=replace(self.size, **size), **asked)
        check_size(plan.size)
        return plan


AnyPlan = TypeVar("AnyPlan", bound=Plan)


def bench_parser(
    name: str, description: str | None, full: Plan | None = None, numbers: Sequence[str] = ()
) -> Parser:
    """Builds the options that all benchmarks share, and those of some numbers of a plan."""
    parser = Parser(name, description, BENCH_GROUPS)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: cpu")
    parser.add_argument("--json", type=writable, metavar="FILE", help="write rows and metadata")
    parser.add_argument("--seed", type=positive, default=1, help="default: 1")
    parser.add_argument("--threads", type=positive, help="of the processor; default: PyTorch's")
    sizes = {**vars(full), **vars(full.size)} if full else {}
    for number in numbers:
        text = f"default: {sizes[number]}"
        parser.add_argument(f"--{number}", type=positive, metavar="N", help=text)
    return parser


def check_size(size: Size) -> None:
    """Validates the sizes of the network and of the batch."""
    if size.vocabulary <= len(SPECIALS):
        raise ValueError(
            f"--vocabulary must exceed the {len(SPECIALS)} special tokens, got {size.vocabulary}"
        )
    _ = size.network


def begin(
    parser: Parser,
    arguments: Sequence[str] | None,
    make_plan: Callable[[argparse.Namespace], AnyPlan],
) -> tuple[argparse.Namespace, AnyPlan, Setting, dict[str, Any]]:
    """Reads the command line, sets up the machine, and gathers the facts that figures depend on."""
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch sees no CUDA device here")
    try:
        outputs = (("--json", options.json), ("--figure", getattr(options, "figure", None)))
        check_distinct_files(outputs)
        plan = make_plan(options)
    except ValueError as reason:
        parser.error(str(reason))
    torch.set_num_threads(options.threads or torch.get_num_threads())
    pyro.enable_validation(False)
    setting = Setting(options.device, options.seed, getattr(options, "adam", False))
    return options, plan, setting, metadata(asdict(plan), setting)


def where(facts: dict[str, Any]) -> str:
    """The machine that a benchmark runs on, in words."""
    return "{device}, {threads} threads, torch {torch}, pyro {pyro}".format(**facts)


def write(path: Path | None, facts: dict[str, Any], **measured: Any) -> None:
    """Writes the measured figures and the facts that they depend on, where a file is asked for."""
    if path is not None:
        written = {"metadata": facts, **measured}
        write_text(path, json.dumps(written, indent=1, default=asdict) + "\n")
