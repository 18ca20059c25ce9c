"""Writes what is said in files of sound, with a finished run of speech.

python experiments/transcribe.py runs/digits a.wav b.flac
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import TextIO

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
    write_stdout,
)
from latentheads.experiments.cli.groups import OF_RUNS
from latentheads.experiments.cli.options import Parser, add_run_options, open_run
from latentheads.experiments.cli.outputs import open_output
from latentheads.runs.alignment import check_alignments
from latentheads.runs.generation import sample_repeatedly, select_task
from latentheads.runs.run import Run
from latentheads.runs.transcription import (
    check_is_speech,
    load_audio_files,
    time_words,
    transcribe_audio,
)

DESCRIPTION = (
    "Writes what is said in files of sound with a finished run of speech.\n\n"
    "    python experiments/transcribe.py runs/digits a.wav b.flac\n\n"
    "A line for each file, or its translation where the run was trained to translate, to standard "
    "output, in their order. A file that cannot be read, or is silent, or too long for the run or "
    "for the machine, is named on standard error and its line stays empty; the status is then 1. "
    "With --number N there are N lines for each file, each with the heads drawn anew. "
    "With --alignments FILE each word is written with the second at which it is heard, a line for "
    "each line, as one@0.12 two@0.56."
)
BATCH_SIZE = 64
"""Files that are heard before they are transcribed together."""


def make_parser() -> Parser:
    """Makes the parser."""
    parser = Parser(
        prog="transcribe.py",
        usage="transcribe.py [options] RUN FILE [FILE ...]",
        description=DESCRIPTION,
    )
    parser.sections = {
        "what is heard": ("direction", "number"),
        "decoding": DECODING,
        "output": ("alignments",),
        "the run": (*OF_RUNS, "help"),
    }
    parser.add_argument("run", type=str, help="folder that run.py wrote")
    parser.add_argument(
        "files", type=str, nargs="+", help="files of sound: wav, FLAC, Ogg, Opus, MP3"
    )
    parser.add_argument(
        "--direction",
        type=str,
        help="which task of a run with several, as de, de-en or ann:en",
    )
    parser.add_argument(
        "--number",
        type=int,
        default=0,
        help="transcripts of each file, every one with heads, and which of them speak, drawn anew; "
        "0: one, as the run's test part was transcribed",
    )
    add_decoding_options(parser, "text", "ten and as many as there are positions of 40 ms")
    parser.add_argument(
        "--alignments",
        type=str,
        help="file for the words of each transcript with the second at which each is heard, where "
        "the likeliest alignment under the exact posterior points. It needs a run with heads of "
        "alignments",
    )
    add_run_options(parser, "of the draws")
    return parser


class _FileLosses(Losses):
    """The same of files, which have names.

    Args:
        files: All files.
    """

    def __init__(self, files: Sequence[str]) -> None:
        super().__init__("transcribe.py", "file")
        self.files = files

    def name(self, place: int) -> str:
        """The file."""
        return self.files[place]


def load(options: Namespace) -> tuple[Run, Decoding, int | None]:
    """Loads the run and puts together how it decodes, and which of its tasks it does."""
    check_least(vars(options), number=0)
    check_seed(options.seed)
    run = open_run(options.run, options)
    check_is_speech(run)
    return run, choose_decoding(run, options), select_task(run, options.direction)


def _transcribe(
    run: Run,
    files: Sequence[str],
    decoding: Decoding,
    task: int | None,
    number: int,
    losses: Losses,
    times: TextIO | None,
) -> None:
    """Writes a number of lines for each of some files, and when their words are heard."""
    heard = load_audio_files(run, files, losses.note, task)
    written = sample_repeatedly(
        partial(transcribe_audio, run, heard, decoding, losses.note), number
    )
    for lines in written:
        write_stdout("".join(f"{line}\n" for line in lines))
    sys.stdout.buffer.flush()
    if times is not None:
        timed = [time_words(run, heard, lines, losses.note) for lines in zip(*written, strict=True)]
        for words in chain.from_iterable(zip(*timed, strict=True)):
            print(" ".join(f"{each.word}@{each.seconds:.2f}" for each in words), file=times)
        times.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with ExitStack() as stack:
        with error_handling("transcribe.py"):
            check_streams("stdout")
            run, decoding, task = load(options)
            if options.alignments is not None:
                check_alignments(run)
            times = stack.enter_context(open_output("alignments", options.alignments))
        torch.manual_seed(options.seed)
        losses = _FileLosses(options.files)
        with streaming("transcribe.py"):
            for start in range(0, len(options.files), BATCH_SIZE):
                some = options.files[start : start + BATCH_SIZE]
                _transcribe(run, some, decoding, task, max(options.number, 1), losses, times)
                losses.before += len(some)
    return int(losses.number > 0)


if __name__ == "__main__":
    sys.exit(main())
