"""Continues text with a finished language model.

python experiments/generate.py runs/cascaded-seed0 --prompt "The road" --number 3
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

import latentheads.experiments.cli.startup  # noqa: F401

import torch
from jsonargparse import Namespace

from latentheads.checks import check_least, check_seed
from latentheads.experiments.cli.errors import (
    Losses,
    check_streams,
    error_handling,
    streaming,
    warn_unknown,
    write_stdout,
)
from latentheads.experiments.cli.groups import OF_RUNS
from latentheads.experiments.cli.inputs import chunks
from latentheads.experiments.cli.options import Parser, add_run_options, open_run
from latentheads.runs.generation import Sampling, continue_or_skip
from latentheads.runs.run import Run
from latentheads.runs.sampling_checks import check_is_stochastic

DESCRIPTION = (
    "Continues prompts with a finished language model, token by token.\n\n"
    "    python experiments/generate.py runs/coda-seed0 --prompt 'The road' --number 3\n\n"
    "Prompts come from --prompt, or from standard input, one a line; at a terminal, where "
    "neither is given, text begins from nothing. A model of sentences writes one line a text, "
    "ended where the model ends the sentence. A model of running text writes as many tokens as "
    "it is asked for, over several lines, and an empty line behind each text. The same options "
    "give the same text on the same machine. A prompt that is too long is named on standard "
    "error and its texts stay empty; the status is then 1."
)


def make_parser() -> Parser:
    """Makes the parser."""
    usage = "generate.py [options] RUN"
    parser = Parser(prog="generate.py", usage=usage, description=DESCRIPTION)
    parser.sections = {
        "what to write": ("prompt", "number", "length", "unknown"),
        "decoding": ("temperature", "top_k", "draws", "context"),
        "the run": (*OF_RUNS, "help"),
    }
    parser.add_argument("run", type=str, help="folder of a language model that run.py wrote")
    parser.add_argument(
        "--prompt",
        type=str,
        action="append",
        help="text to continue, instead of standard input; may be given several times",
    )
    parser.add_argument("--number", type=int, default=1, help="continuations of each prompt")
    parser.add_argument(
        "--length", type=int, default=100, help="tokens written behind a prompt, at most"
    )
    parser.add_argument(
        "--temperature",
        type=float,
        default=1.0,
        help="what logits are divided by: 1 draws from the model's law, less is safer, more is "
        "wilder, 0 always takes the likeliest token",
    )
    parser.add_argument(
        "--top_k", type=int, default=0, help="number of likeliest tokens to draw among; 0: all"
    )
    parser.add_argument(
        "--context",
        type=int,
        help="tokens of running text kept when the model's block is full (default: the run's own "
        "context, or half a block)",
    )
    parser.add_argument(
        "--unknown", action="store_true", help="let the unknown word come; else it never does"
    )
    parser.add_argument(
        "--draws",
        type=Literal[0, 1],
        default=0,
        help="1: draw the heads from their prior as each token is written; 0: they are at its "
        "location. Which of them speak is the likeliest in either case",
    )
    add_run_options(parser, "of the draws")
    return parser


def load(options: Namespace) -> tuple[Run, Sampling]:
    """Loads the run and puts together how it is drawn from."""
    check_least(vars(options), number=1)
    check_seed(options.seed)
    _check_unused(options)
    for prompt in options.prompt or ():
        if any("\ud800" <= character <= "\udfff" for character in prompt):
            raise ValueError("prompt is no UTF-8")
    run = open_run(options.run, options)
    if options.draws:
        check_is_stochastic([run], "--draws")
    names = ("length", "temperature", "top_k", "context", "unknown")
    how = Sampling(**{name: options[name] for name in names}, drawn=bool(options.draws))
    how.sample(run, [])  # refuses a wrong option before anything is read
    return run, how


def _check_unused(options: Namespace) -> None:
    """Refuses options of drawing where nothing is drawn."""
    if options.temperature:
        return
    if options.top_k:
        raise ValueError("top_k acts on nothing here: temperature 0 takes the likeliest token")
    if not options.draws and (options.number > 1 or options.seed):
        name = "number" if options.number > 1 else "seed"
        raise ValueError(f"{name} acts on nothing here: with temperature 0 all texts are the same")


def prompts(options: Namespace) -> Iterator[str]:
    """The texts to continue, each when it is asked for.

    Raises:
        ValueError: Standard input has no line, or one that is no UTF-8.
    """
    if options.prompt:
        yield from options.prompt
    elif sys.stdin is not None and sys.stdin.isatty():
        yield ""
    else:
        found = False
        for lines in chunks(sys.stdin.buffer, 1) if sys.stdin is not None else ():
            found = True
            yield from lines
        if not found:
            raise ValueError(
                "standard input has no prompt: give --prompt TEXT, or --prompt= to begin from "
                "nothing"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with error_handling("generate.py"):
        check_streams("stdout")
        run, how = load(options)
    torch.manual_seed(options.seed)
    end = "\n\n" if run.block else "\n"
    losses, tell = Losses("generate.py", "prompt"), partial(warn_unknown, "generate.py")
    with streaming("generate.py"):
        for prompt in prompts(options):
            given = (run, how, prompt, options.number, losses.note, tell)
            for text in continue_or_skip(*given):
                write_stdout(f"{text}{end}")
                sys.stdout.buffer.flush()
            losses.before += 1
    return int(losses.number > 0)


if __name__ == "__main__":
    sys.exit(main())
