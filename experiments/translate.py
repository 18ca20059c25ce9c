"""Translates text with a finished run, line by line.

python experiments/translate.py runs/coda-seed0 < text.en > text.de
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import latentheads.experiments.cli.startup  # noqa: F401

import torch
from jsonargparse import Namespace

from latentheads.checks import check_least, check_seed
from latentheads.decoding.translate import Decoding
from latentheads.experiments.cli.decoding import (
    DECODING,
    add_decoding_options,
    choose_decoding,
)
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
from latentheads.experiments.cli.outputs import open_output
from latentheads.metrics.alignment import write_pharaoh
from latentheads.runs.alignment import align_lines, check_alignments
from latentheads.runs.generation import check_ensemble, select_task, translate_lines, unknown_words
from latentheads.runs.run import Run

if TYPE_CHECKING:
    from latentheads.runs.confidence import ConfidenceEstimator

DESCRIPTION = (
    "Translates standard input with one finished run or several, line by line.\n\n"
    "    python experiments/translate.py runs/coda-seed0 < text.en > text.de\n"
    "    python experiments/translate.py runs/coda-seed? < text.en > text.de\n\n"
    "One sentence a line, to standard output: as many lines, in the same order, an empty one "
    "for an empty one. Output comes while input is still being read. A line that is too long, "
    "for the run or for the machine, is named on standard error and stays empty; the status is "
    "then 1. With --alignments FILE the words of each line and of its translation are linked, a "
    "line for each line, as 0-0 1-2. With --confidence FILE there is for each line the share of "
    "its translation's tokens that is expected to be right, and the translation with its doubtful "
    "words in brackets."
)


def make_parser() -> Parser:
    """Makes the parser."""
    parser = Parser(
        prog="translate.py",
        usage="translate.py [options] RUN [RUN ...] < TEXT",
        description=DESCRIPTION,
    )
    parser.sections = {
        "what to translate": ("direction", "buffer"),
        "decoding": DECODING,
        "output": ("alignments", "confidence", "doubt"),
        "the run": (*OF_RUNS, "help"),
    }
    parser.add_argument(
        "runs",
        type=str,
        nargs="+",
        metavar="RUN",
        help="folder that run.py wrote; several of one corpus write together, by the mean of their "
        "laws, as the first decodes",
    )
    parser.add_argument(
        "--direction",
        type=str,
        help="which task of a run with several, as en-de, de or bible:en-de",
    )
    add_decoding_options(parser, "sentence", "ten and twice the source's")
    parser.add_argument(
        "--buffer",
        type=int,
        default=512,
        help="lines read before they are translated together; 1 answers each line at once",
    )
    parser.add_argument(
        "--alignments",
        type=str,
        help="file for the alignment of each translation with its line, in Pharaoh format: a word "
        "of the line, a dash and a word of the translation, counted from 0 where spaces cut them. "
        "Every token points at the likeliest under the exact posterior, by each head; words are "
        "linked where a token of one points at one of the other. It needs a run with heads of "
        "alignments",
    )
    parser.add_argument(
        "--confidence",
        type=str,
        help="file for how sure the run is of each translation: the share of its tokens that is "
        "expected to be right, fitted on the run's validation text, a tab, and the translation "
        "with its doubtful words in brackets",
    )
    parser.add_argument(
        "--doubt",
        type=float,
        help="a word is doubtful that is right with less than this probability (default: 0.5)",
    )
    add_run_options(parser, "of the draws")
    return parser


def load(options: Namespace) -> tuple[list[Run], Decoding, int | None]:
    """Loads the runs and puts together how the first decodes, and which of its tasks it does."""
    check_least(vars(options), buffer=1)
    check_seed(options.seed)
    runs = [open_run(folder, options) for folder in options.runs]
    decoding, task = choose_decoding(runs[0], options), select_task(runs[0], options.direction)
    check_ensemble(runs[0], runs[1:], decoding)
    if options.seed and not decoding.draws and options.confidence is None:
        raise ValueError("seed acts on nothing here: it needs --draws or --confidence")
    return runs, decoding, task


def _check_files(run: Run, options: Namespace) -> None:
    """Refuses files that nothing can be written to, before one is opened."""
    said = [name for name in (options.alignments, options.confidence) if name is not None]
    if said and len(options.runs) > 1:
        raise ValueError(f"--alignments and --confidence are of one RUN, got {len(options.runs)}")
    if options.alignments is not None:
        check_alignments(run)
    if len(said) > len({Path(name).resolve() for name in said}):
        raise ValueError(f"--alignments and --confidence need a file each, both name {said[0]}")
    if options.doubt is None:
        return
    if options.confidence is None:
        raise ValueError("--doubt is for --confidence FILE")
    if not 0 <= options.doubt <= 1:
        raise ValueError(f"doubt must lie in [0, 1], got {options.doubt}")


def _unknown_to(run: Run, lines: list[str], before: set[str]) -> list[str]:
    """The words of some lines that a run does not know, and that were not told before."""
    assert run.source is not None
    new = [word for word in unknown_words(run.source, "\n".join(lines)) if word not in before]
    before.update(new)
    return new


def _write_links(
    run: Run, lines: list[str], written: list[str], task: int | None, losses: Losses, file: TextIO
) -> None:
    """Writes the alignments of some lines, and an empty one for a line that has none."""
    for links in align_lines(run, lines, written, task, losses.note):
        file.write(f"{write_pharaoh(links)}\n")
    file.flush()


def _make_confidant(
    run: Run, decoding: Decoding, task: int | None, options: Namespace
) -> ConfidenceEstimator:
    """Fits what a run says of its translations on its validation text."""
    from latentheads.runs.confidence import ConfidenceEstimator  # brings all measures with it

    return ConfidenceEstimator(run, decoding, task, options.seed)


def _write_confidence(
    confidant: ConfidenceEstimator,
    lines: list[str],
    written: list[str],
    doubt: float,
    losses: Losses,
    file: TextIO,
) -> None:
    """Writes a score and the marked translation of some lines, and nothing for an empty one."""
    from latentheads.runs.confidence import bracket_doubtful_words

    judged = confidant.estimate(lines, written, losses.note)
    for text, confidence in zip(written, judged, strict=True):
        score = "" if confidence.score is None else f"{confidence.score:.3f}"
        file.write(
            f"{score}\t{bracket_doubtful_words(text, confidence, doubt)}\n" if score else "\n"
        )
    file.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with ExitStack() as stack:
        with error_handling("translate.py"):
            check_streams("stdin", "stdout")
            (run, *others), decoding, task = load(options)
            _check_files(run, options)
            file = stack.enter_context(open_output("alignments", options.alignments))
            sure = stack.enter_context(open_output("confidence", options.confidence))
            confidant = None if sure is None else _make_confidant(run, decoding, task, options)
        torch.manual_seed(options.seed)
        losses = Losses("translate.py", "line")
        unlinked = Losses("translate.py", "alignment of line")
        unsure = Losses("translate.py", "confidence of line")
        doubt = 0.5 if options.doubt is None else options.doubt
        strange: set[str] = set()
        with streaming("translate.py"):
            for lines in chunks(sys.stdin.buffer, options.buffer):
                if new := _unknown_to(run, lines, strange):
                    warn_unknown("translate.py", new)
                written = translate_lines(run, lines, decoding, task, losses.note, others)
                for line in written:
                    write_stdout(f"{line}\n")
                sys.stdout.buffer.flush()
                if file is not None:
                    _write_links(run, lines, written, task, unlinked, file)
                if sure is not None and confidant is not None:
                    _write_confidence(confidant, lines, written, doubt, unsure, sure)
                losses.before += len(lines)
                unlinked.before = unsure.before = losses.before
    return int(losses.number + unlinked.number + unsure.number > 0)


if __name__ == "__main__":
    sys.exit(main())
