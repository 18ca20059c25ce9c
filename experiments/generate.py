"""Continues text with a language model.

python experiments/generate.py runs/cascaded-seed0 --prompt "The road" --num_return_sequences 3
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial

import latentheads.experiments.cli.startup  # noqa: F401

import torch

from latentheads.experiments.cli.errors import (
    SkippedInputs,
    error_handling,
    streaming,
    warn_unknown,
    write_stdout,
)
from latentheads.experiments.cli.inputs import read_chunks
from latentheads.experiments.cli.parser import (
    OF_RUNS,
    Options,
    Parser,
    add_run_options,
    open_any_run,
)
from latentheads.options import Count, OptionError, options_of
from latentheads.runs.generation import Sampling, continue_or_skip
from latentheads.runs.run import Run
from latentheads.runs.trained_model import check_is_stochastic

DESCRIPTION = (
    "Samples continuations of prompts from a language model.\n\n"
    "    python experiments/generate.py runs/coda-seed0 --prompt 'The road' "
    "--num_return_sequences 3\n\n"
    "Prompts come from --prompt, or from standard input, one per line; at a terminal without "
    "--prompt, the prompt is empty. A model of sentences generates one line per text, up to EOS. A "
    "model of running text generates --max_new_tokens tokens, over several lines, with an empty "
    "line after each text. The same options give the same text on the same machine. A prompt that "
    "is too long is reported on standard error, and its texts are empty; the exit status is then 1."
)
GROUPS = {
    "generation": ("prompt", "num_return_sequences", "max_new_tokens", "unknown"),
    "decoding": ("temperature", "top_k", "sample_heads", "context"),
    "the run": (*OF_RUNS, "help"),
}


def make_parser() -> Parser:
    """Makes the parser."""
    parser = Parser("generate.py", DESCRIPTION, GROUPS, "[options] RUN")
    parser.add_argument("run", help="folder of a language model that run.py wrote")
    parser.add_argument(
        "--prompt",
        action="append",
        help="text to continue, instead of standard input; may be given several times",
    )
    parser.add_argument(
        "--num_return_sequences", type=Count, default=1, help="continuations of each prompt"
    )
    parser.add_dataclass(Sampling)
    add_run_options(parser, "of sampling")
    return parser


def load(options: Options) -> tuple[Run, Sampling]:
    """Loads the run, and makes the options of sampling."""
    _check_unused(options)
    run = open_any_run(options.run, options, "generate.py")
    if options.sample_heads:
        check_is_stochastic([run], "sample_heads")
    sampling = Sampling(**{name: getattr(options, name) for name in options_of(Sampling)})
    sampling.sample(run, [])  # validates the options before input is read
    return run, sampling


def _check_unused(options: Options) -> None:
    """Checks for options of sampling that have no effect."""
    if options.temperature:
        return
    if options.top_k:
        raise OptionError("top_k", " has no effect here: temperature 0 takes the likeliest token")
    if not options.sample_heads and (options.num_return_sequences > 1 or options.seed):
        name = "num_return_sequences" if options.num_return_sequences > 1 else "seed"
        raise OptionError(name, " has no effect here: with temperature 0 all texts are the same")


def prompts(options: Options) -> Iterator[str]:
    """Yields the prompts."""
    if options.prompt:
        yield from options.prompt
    elif sys.stdin.isatty():
        yield ""
    else:
        any_lines = False
        for lines in read_chunks(sys.stdin.buffer, 1):
            any_lines = True
            yield from lines
        if not any_lines:
            raise ValueError(
                "standard input has no prompt: give --prompt TEXT, or --prompt= for an empty one"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with error_handling("generate.py"):
        run, sampling = load(options)
    torch.manual_seed(options.seed)
    end = "\n\n" if run.processor.block_size else "\n"
    skipped, warn = SkippedInputs("generate.py", "prompt"), partial(warn_unknown, "generate.py")
    with streaming("generate.py"):
        for prompt in prompts(options):
            goes_on, skipped_before = False, skipped.number
            for text in continue_or_skip(
                run,
                sampling,
                prompt,
                options.num_return_sequences,
                skipped.note,
                warn,
            ):
                write_stdout(f"{text}{end}")
                sys.stdout.buffer.flush()
                goes_on = goes_on or text != prompt
            if not goes_on and skipped.number == skipped_before:
                skipped.remark(0, "is not continued: EOS comes first")
            skipped.before += 1
    return int(skipped.number > 0)


if __name__ == "__main__":
    sys.exit(main())
