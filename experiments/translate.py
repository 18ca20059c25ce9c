"""Translates text with a finished run, line by line.

python experiments/translate.py runs/coda-seed0 < text.en > text.de
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import latentheads.experiments.cli.beginning  # noqa: F401

import torch
from jsonargparse import Namespace

from latentheads.checks import check_least, check_seed
from latentheads.decoding.translate import Decoding
from latentheads.experiments.cli.errors import Losses, ending, streaming
from latentheads.experiments.cli.groups import OF_RUNS
from latentheads.experiments.cli.options import Parser, add_run_options, open_run
from latentheads.runs.run import Run
from latentheads.runs.writing import find_task, translate_lines

DESCRIPTION = (
    "Translates standard input with a finished run, line by line.\n\n"
    "    python experiments/translate.py runs/coda-seed0 < text.en > text.de\n\n"
    "One sentence a line, to standard output: as many lines, in the same order, an empty one "
    "for an empty one. Output comes while input is still being read. A line that is too long, "
    "for the run or for the machine, is named on standard error and stays empty; the status is "
    "then 1."
)


def make_parser() -> Parser:
    """Makes the parser."""
    parser = Parser(
        prog="translate.py", usage="translate.py [options] RUN < TEXT", description=DESCRIPTION
    )
    parser.sections = {
        "what to translate": ("direction", "buffer"),
        "decoding": ("beam", "draws", "length_penalty", "min_tokens", "max_tokens", "no_repeat"),
        "the run": (*OF_RUNS, "help"),
    }
    parser.add_argument("run", type=str, help="folder that run.py wrote")
    parser.add_argument(
        "--direction",
        type=str,
        help="which task of a run with several, as en-de, de or bible:en-de",
    )
    parser.add_argument("--beam", type=int, help="hypotheses of a sentence (default: the run's)")
    parser.add_argument(
        "--length_penalty",
        type=float,
        help="exponent of the length that log-probability is divided by (default: the run's)",
    )
    parser.add_argument(
        "--draws",
        type=int,
        help="draws of the heads, and of which of them speak, whose probabilities are averaged; 0: "
        "heads at their prior's location, the likeliest selection (default: the run's)",
    )
    parser.add_argument(
        "--min_tokens", type=int, help="fewest tokens, the end counted (default: the run's)"
    )
    parser.add_argument(
        "--max_tokens",
        type=int,
        help="most tokens, the end counted; 0: ten and twice the source's (default: the run's)",
    )
    parser.add_argument(
        "--no_repeat",
        type=int,
        help="no n-gram of so many tokens comes twice; 0: any may (default: the run's)",
    )
    parser.add_argument(
        "--buffer",
        type=int,
        default=512,
        help="lines read before they are translated together; 1 answers each line at once",
    )
    add_run_options(parser, "of the draws")
    return parser


def chunks(text: Iterable[bytes], size: int) -> Iterator[list[str]]:
    """So many lines at a time, cut as `latentheads.corpora.text.read_lines` cuts a file.

    Raises:
        ValueError: A line is no UTF-8; those before it have been given.
    """
    chunk: list[str] = []
    for number, line in enumerate(text, 1):
        line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        try:
            chunk.append(line.decode("utf-8").removesuffix("\n").removesuffix("\r"))
        except UnicodeDecodeError:
            yield chunk
            raise ValueError(f"line {number} of the input is no UTF-8") from None
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def load(options: Namespace) -> tuple[Run, Decoding, int | None]:
    """Loads the run and puts together how it decodes, and which of its tasks it does."""
    check_least(vars(options), buffer=1)
    check_seed(options.seed)
    run = open_run(options.run, options)
    names = ("beam", "length_penalty", "draws", "min_tokens", "max_tokens", "no_repeat")
    chosen = {name: options[name] for name in names if options[name] is not None}
    return run, replace(run.settings.decoding, **chosen), find_task(run, options.direction)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with ending("translate.py"):
        run, decoding, task = load(options)
    torch.manual_seed(options.seed)
    losses = Losses("translate.py", "line")
    with streaming("translate.py"):
        for lines in chunks(sys.stdin.buffer, options.buffer):
            for line in translate_lines(run, lines, decoding, task, losses.note):
                sys.stdout.buffer.write(f"{line}\n".encode())
            sys.stdout.buffer.flush()
            losses.before += len(lines)
    return int(losses.number > 0)


if __name__ == "__main__":
    sys.exit(main())
