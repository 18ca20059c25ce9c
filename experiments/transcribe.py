"""Transcribes or translates audio files with a speech run.

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

from latentheads.contrib.heads.word_alignment import check_alignments
from latentheads.contrib.speech.transcription import (
    check_is_speech,
    load_audio_files,
    time_words,
    transcribe_audio,
)
from latentheads.decoding.options import Decoding
from latentheads.experiments.cli.decoding import (
    DECODING_OPTIONS,
    add_decoding_options,
    choose_decoding,
)
from latentheads.experiments.cli.errors import (
    SkippedInputs,
    error_handling,
    streaming,
    write_stdout,
)
from latentheads.experiments.cli.outputs import check_distinct_files, open_output
from latentheads.experiments.cli.parser import (
    OF_RUNS,
    Options,
    Parser,
    add_run_options,
    open_any_run,
)
from latentheads.options import Count
from latentheads.runs.generation import sample_repeatedly, select_task
from latentheads.runs.run import Run
from latentheads.runs.trained_model import TrainedModel

DESCRIPTION = (
    "Transcribes audio files with a speech run.\n\n"
    "    python experiments/transcribe.py runs/digits a.wav b.flac\n\n"
    "Prints one line for each file, a translation if the run was trained to translate. A file that "
    "cannot be read, or is silent, or too long for the run or for memory, is reported on standard "
    "error and its line is empty; the exit status is then 1. With "
    "--num_return_sequences N there are N lines for each file, each with newly sampled "
    "heads. With --alignments FILE each word is written with its time in seconds, as one@0.12 "
    "two@0.56."
)
BATCH_SIZE = 64
"""Files that are loaded and transcribed together."""
GROUPS = {
    "data": ("direction", "num_return_sequences"),
    "decoding": DECODING_OPTIONS,
    "output": ("alignments",),
    "the run": (*OF_RUNS, "help"),
}


def make_parser() -> Parser:
    """Makes the parser."""
    parser = Parser("transcribe.py", DESCRIPTION, GROUPS, "[options] RUN FILE [FILE ...]")
    parser.add_argument("run", help="folder that run.py wrote")
    parser.add_argument("files", nargs="+", help="audio files: wav, FLAC, Ogg, Opus, MP3")
    parser.add_argument(
        "--direction",
        help="task of a run with several tasks, as de, de-en or ann:en",
    )
    parser.add_argument(
        "--num_return_sequences",
        type=Count,
        help="transcripts of each file, each with newly sampled heads and selection (default: one, "
        "as the run's test part was transcribed)",
    )
    add_decoding_options(parser)
    parser.add_argument(
        "--alignments",
        help="file for the words of each transcript with their times, from the likeliest alignment "
        "under the exact posterior. It needs a run with latent alignment heads",
    )
    add_run_options(parser, "of sampling")
    return parser


class _SkippedFiles(SkippedInputs):
    """Skipped files, reported by name."""

    def __init__(self, files: Sequence[str]) -> None:
        super().__init__("transcribe.py", "file")
        self.files = files

    def name(self, index: int) -> str:
        return self.files[index]


def load(options: Options) -> tuple[Run, Decoding, int | None]:
    """Loads the run; returns it with its decoding options and the task."""
    run = open_any_run(options.run, options, "transcribe.py")
    check_is_speech(run)
    return run, choose_decoding(run, options), select_task(run, options.direction)


def _transcribe(
    trained: TrainedModel,
    files: Sequence[str],
    decoding: Decoding,
    task: int | None,
    number: int,
    skipped: SkippedInputs,
    times: TextIO | None,
) -> None:
    """Transcribes some files a number of times; writes the lines, and the times of words."""
    audio = load_audio_files(trained, files, skipped.note, task)
    texts = sample_repeatedly(
        partial(transcribe_audio, trained, audio, decoding, skipped.note), number
    )
    for lines in texts:
        write_stdout("".join(f"{line}\n" for line in lines))
    sys.stdout.buffer.flush()
    if times is not None:
        timed = [
            time_words(trained, audio, lines, skipped.note) for lines in zip(*texts, strict=True)
        ]
        for words in chain.from_iterable(zip(*timed, strict=True)):
            print(" ".join(f"{word.word}@{word.seconds:.2f}" for word in words), file=times)
        times.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with ExitStack() as stack:
        with error_handling("transcribe.py"):
            inputs = (options.run, *options.files)
            check_distinct_files([("--alignments", options.alignments)], inputs)
            run, decoding, task = load(options)
            if options.alignments is not None:
                check_alignments(run)
            times = stack.enter_context(open_output("alignments", options.alignments))
        torch.manual_seed(options.seed)
        skipped, number = _SkippedFiles(options.files), options.num_return_sequences or 1
        with streaming("transcribe.py"):
            for start in range(0, len(options.files), BATCH_SIZE):
                files = options.files[start : start + BATCH_SIZE]
                _transcribe(run, files, decoding, task, number, skipped, times)
                skipped.before += len(files)
    return int(skipped.number > 0)


if __name__ == "__main__":
    sys.exit(main())
