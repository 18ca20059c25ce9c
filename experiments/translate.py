"""Translates text with a finished run, line by line.

python experiments/translate.py runs/coda-seed0 < text.en > text.de
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import latentheads.experiments.cli.beginning  # noqa: F401

import numpy as np
import torch
from jsonargparse import Namespace

from latentheads.checks import check_least, check_seed
from latentheads.corpora import Part
from latentheads.corpora.mixed import tag_of
from latentheads.corpora.options import CHARACTERS
from latentheads.decoding.translate import Decoding, Lose, translate_part
from latentheads.experiments.cli.errors import Losses, UnfinishedError, ending, streaming
from latentheads.experiments.cli.groups import OF_RUNS
from latentheads.experiments.cli.options import Parser, add_run_options
from latentheads.runs.loading import Loaded, load_run

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


def translate_lines(
    run: Loaded,
    lines: list[str],
    decoding: Decoding,
    task: int | None = None,
    lose: Lose | None = None,
) -> list[str]:
    """Translates lines and keeps their order; an empty one stays empty, and one that is lost.

    A newline that the model writes, as a byte like any other, becomes a space.

    Args:
        run: The run.
        lines: The text.
        decoding: How to search.
        task: The place of the lines' task, where the run has tasks.
        lose: Called with the place of a line that is too long for the run or for the machine, and
            why; None ends the work.

    Raises:
        UnfinishedError: A line is lost.
    """
    lose = lose or _end
    found, full = [""] * len(lines), []
    for place, line in enumerate(lines):
        if why := too_wide(run, line):
            lose(place, why)
        elif line.strip():
            full.append(place)
    part = encode(run, [lines[place] for place in full], task)
    most = run.settings.data.max_line or int(part.lengths.max(initial=0))
    for place in np.flatnonzero(part.lengths > most).tolist():
        lose(full[place], f"{part.lengths[place]:,} tokens, more than max_line {most:,}")
    kept = np.flatnonzero(part.lengths <= most).tolist()
    places = [full[place] for place in kept]
    written = translate_part(
        run.model,
        run.guide,
        run.target,
        part.take(kept),
        decoding,
        lambda place, why: lose(places[place], why),
    )
    for place, line in zip(places, written, strict=True):
        found[place] = line
    return found


def _end(place: int, why: str) -> None:
    raise UnfinishedError(f"line {place + 1}: {why}")


def too_wide(run: Loaded, line: str) -> str:
    """Why a line has too many tokens, where its characters tell: they cost no memory to count."""
    data = run.settings.data
    if data.max_source or not 0 < CHARACTERS * data.max_line < len(line):
        return ""
    return f"{len(line):,} characters, too many for max_line {data.max_line:,}"


def encode(run: Loaded, lines: list[str], task: int | None) -> Part:
    """The lines as a part of a corpus, without targets of their own."""
    assert run.source is not None
    rows, mixture = run.source.encode_all(lines), run.settings.data.mixture
    if run.settings.data.max_source:
        rows = rows.shortened(run.settings.data.max_source)
    if mixture is None or task is None:
        return Part(rows, rows)
    if mixture.tags and len(rows):
        rows = rows.led(tag_of(run.source, mixture.tasks[task]))
    return Part(rows, rows, task=np.full(len(rows), task, np.int32), mixture=mixture)


def find_task(run: Loaded, named: str | None) -> int | None:
    """The place of the task that the command line names; None where the run has none."""
    data = run.settings.data
    if data.mixture is None:
        if named is not None:
            raise ValueError(f"{run.path} has one direction alone: drop --direction")
        return None
    if named is None and len(data.mixture.tasks) > 1:
        names = ", ".join(data.mixture.names)
        raise ValueError(f"{run.path} has several tasks: give --direction, one of {names}")
    return 0 if named is None else data.mixture.find(named, data.begin)


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


def load(options: Namespace) -> tuple[Loaded, Decoding, int | None]:
    """Loads the run and puts together how it decodes, and which of its tasks it does."""
    check_least(vars(options), buffer=1)
    check_seed(options.seed)
    run = load_run(Path(options.run), options.checkpoint, options.device, options.trust)
    if run.source is None:
        raise ValueError(f"{options.run} is a language model: it has nothing to translate from")
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
