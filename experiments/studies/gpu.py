"""Measures all that needs a GPU: tests, agreement, speed, training, and a report.

    python experiments/studies/gpu.py --out gpu --data FOLDER --minutes 25

FOLDER holds corpora, each a folder of files as run.py takes them: multi30k, and others with
train.en and train.de. Part after part, each job a process of its own:

    suite       the tests marked device
    agreement   the bound in float32, bfloat16 and float16 against the CPU's in float64
    bench, length, decoding   the benchmarks
    speed       a step beside nn.Transformer with fused attention, and waits of the CPU within it
    graphs      the same, each row replayed as a CUDA graph, nn.Transformer too
    compiled    the same, each row given to torch.compile, nn.Transformer too
    train       compare.py on Multi30k to the end, recipe after recipe, seed after seed
    large       a network of IWSLT's size on the largest corpus at hand

What is written lies in OUT: jobs.json, report.md after every job, a log of each, and runs/ that
compare.py goes on from. A job that is done is not done again; an OUT whose jobs were done
otherwise, as with --smoke or on another device, is refused. One that fails is reported, and the
others go on. When the minutes are over, what runs is ended as by Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import latentheads.experiments.cli.startup  # noqa: F401

import torch

from latentheads.checks import split_items
from latentheads.experiments.cli.errors import error_handling, interrupted_by_signals
from latentheads.experiments.cli.parser import Parser, positive
from latentheads.experiments.studies.benchmarks.command_line import BENCH_GROUPS
from latentheads.experiments.studies.machine.jobs import (
    Journal,
    Launch,
    carry_out,
    held,
    run_process,
)
from latentheads.experiments.studies.machine.plan import NEEDS, PARTS, Order, make_plan
from latentheads.experiments.studies.machine.report import write_report

MARGIN = 15.0
"""Seconds before the end that are kept for ending what runs, and for the report."""


def parts(text: str) -> list[str]:
    """Names of parts, comma between."""
    names = split_items(text)
    for name in names:
        if name not in PARTS:
            raise argparse.ArgumentTypeError(f"no part {name!r}: choose from {', '.join(PARTS)}")
    return names


def make_parser() -> Parser:
    """Builds the command line."""
    parser = Parser("gpu.py", __doc__, BENCH_GROUPS)
    parser.add_argument("--out", type=Path, default=Path("gpu"), help="default: gpu")
    parser.add_argument(
        "--minutes", type=positive, default=25, metavar="N", help="in all; default: 25"
    )
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="of corpora, one a folder")
    parser.add_argument(
        "--parts",
        type=parts,
        help="of those above, comma between; default: all but those that lack a corpus",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="default: cuda")
    parser.add_argument(
        "--at_once", type=positive, default=4, metavar="N", help="training runs; default: 4"
    )
    parser.add_argument("--smoke", action="store_true", help="everything in miniature")
    return parser


def refuse_empty(parser: Parser, options: argparse.Namespace, planned: Sequence[str]) -> None:
    """Raises an error for a part that was named and has no jobs."""
    for name in options.parts or []:
        if name not in planned:
            left_out = "--smoke leaves it out"
            why = left_out if options.smoke else f"it needs --data with {NEEDS[name]}"
            parser.error(f"--parts {name}: {why}")


def main(arguments: Sequence[str] | None = None, launch: Launch = run_process) -> int:
    """Runs the plan and returns the exit status: 1 where a job has failed."""
    deadline = time.monotonic() - MARGIN
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.data is not None and not options.data.is_dir():
        parser.error(f"--data: no folder {str(options.data)!r}")
    deadline += 60 * options.minutes
    with (
        error_handling("gpu.py", on_interrupt=f"what is done is in {options.out}"),
        interrupted_by_signals(),
    ):
        if options.device == "cuda" and not torch.cuda.is_available():
            parser.error("--device cuda: PyTorch sees no CUDA device here")
        out = options.out.resolve()
        data = None if options.data is None else options.data.resolve()
        order = Order(out, options.device, data, options.smoke, options.at_once)
        plan = make_plan(order, options.parts or PARTS)
        asked = [job.name for job in plan]
        refuse_empty(parser, options, asked)
        with held(out):
            journal = Journal.open(out)
            journal.refuse_others(make_plan(order))

            def report() -> None:
                write_report(journal, options.device, asked)

            carry_out(plan, journal, deadline, launch, lambda said: print(said, flush=True), report)
            print(f"written to {write_report(journal, options.device, asked)}")
    return int(any(d.state == "failed" for n, d in journal.found.items() if n in asked))


if __name__ == "__main__":
    sys.exit(main())
