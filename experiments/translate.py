"""Translates text with a run, line by line.

python experiments/translate.py runs/coda-seed0 < text.en > translated.de
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import latentheads.experiments.cli.startup  # noqa: F401
from latentheads.experiments.cli.startup import name_program

import torch
from annotated_types import Ge, Le

from latentheads.console import print_message
from latentheads.contrib.heads.word_alignment import align_lines, check_alignments
from latentheads.contrib.uncertainty.confidence import (
    ConfidenceEstimator,
    ConfidenceScores,
    bracket_doubtful_words,
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
    warn_unknown,
    write_stdout,
)
from latentheads.experiments.cli.inputs import read_chunks
from latentheads.experiments.cli.outputs import check_distinct_files, check_output_file, open_output
from latentheads.experiments.cli.parser import (
    OF_RUNS,
    Options,
    Parser,
    add_run_options,
    open_any_run,
)
from latentheads.experiments.cli.tables import UNINFORMED
from latentheads.metrics.alignment import write_pharaoh
from latentheads.metrics.scores import is_uninformed
from latentheads.options import Count
from latentheads.runs.generation import check_ensemble, select_task, translate_lines, unknown_words
from latentheads.runs.run import Run

DESCRIPTION = (
    "Translates standard input with one run or several, line by line.\n\n"
    "    python experiments/translate.py runs/coda-seed0 < text.en > translated.de\n"
    "    python experiments/translate.py runs/coda-seed? < text.en > translated.de\n\n"
    "One sentence per line; the translation of an empty line is empty. Several runs are an "
    "ensemble. Output is written while input is still being read. A line that is too long for the "
    "run or for memory is reported on standard error, and its translation is empty; the exit "
    "status is then 1. --alignments FILE writes the word alignment of each line with its "
    "translation, as 0-0 1-2. --confidence FILE writes for each line the expected share of correct "
    "tokens, and the translation with its doubtful words in brackets."
)
GROUPS = {
    "data": ("direction", "buffer"),
    "decoding": DECODING_OPTIONS,
    "output": ("alignments", "split_punctuation", "confidence", "calibration", "doubt"),
    "the run": (*OF_RUNS, "help"),
}


def make_parser() -> Parser:
    """Makes the parser."""
    parser = Parser("translate.py", DESCRIPTION, GROUPS, "[options] RUN [RUN ...] < TEXT")
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="folder that run.py wrote; several of one corpus are an ensemble: the mean of "
        "their next-token distributions, with the options of decoding of the first",
    )
    parser.add_argument(
        "--direction",
        help="which task of a run with several, as en-de, de or bible:en-de",
    )
    add_decoding_options(parser)
    parser.add_argument(
        "--buffer",
        type=Count,
        default=512,
        help="lines that are read and translated together; 1 translates each line at once",
    )
    parser.add_argument(
        "--alignments",
        help="file for the word alignments in Pharaoh format: a word of the line, a dash and a "
        "word of the translation, counted from 0, words separated by spaces. Each token is aligned "
        "with the likeliest one under the exact posterior of each head; words are linked if any "
        "of their tokens are. It needs a run with latent alignment heads, or with copy heads, "
        "which link only words all of whose tokens are copied from one word",
    )
    parser.add_argument(
        "--split_punctuation",
        type=bool,
        default=False,
        help="count punctuation before or after a word as a word of its own in --alignments; "
        "otherwise words are what lies between spaces",
    )
    parser.add_argument(
        "--confidence",
        help="file for the confidence of each translation: the expected share of correct tokens, "
        "calibrated on the run's validation text, a tab, and the translation with its doubtful "
        "words in brackets",
    )
    parser.add_argument(
        "--calibration",
        help="file that keeps the calibration of --confidence: it is read if it is there, which "
        "needs no corpus, and otherwise written",
    )
    parser.add_argument(
        "--doubt",
        type=Annotated[float, Ge(0), Le(1)],
        help="a word is doubtful if its probability of being correct is below this (default: 0.5)",
    )
    add_run_options(parser, "of sampling")
    return parser


def load(options: Options) -> tuple[list[Run], Decoding, int | None]:
    """Loads the runs; returns them with the decoding options and the task of the first."""
    runs = [open_any_run(folder, options, "translate.py") for folder in options.runs]
    first, *others = runs
    decoding, task = choose_decoding(first, options), select_task(first, options.direction)
    check_ensemble(first, others, decoding)
    if options.seed and not decoding.num_samples and options.confidence is None:
        raise ValueError("seed has no effect here: it needs --num_samples or --confidence")
    return runs, decoding, task


def _check_files(run: Run, options: Options) -> None:
    """Checks the options of output files before one is opened."""
    outputs = [name for name in (options.alignments, options.confidence) if name is not None]
    if outputs and len(options.runs) > 1:
        raise ValueError(f"--alignments and --confidence are for one RUN, got {len(options.runs)}")
    if options.alignments is not None:
        check_alignments(run)
    elif options.split_punctuation:
        raise ValueError("--split_punctuation is for --alignments FILE")
    names = ("alignments", "confidence", "calibration")
    check_distinct_files(((f"--{name}", getattr(options, name)) for name in names), options.runs)
    for name in ("doubt", "calibration"):
        if getattr(options, name) is not None and options.confidence is None:
            raise ValueError(f"--{name} is for --confidence FILE")


def _make_estimator(
    run: Run, decoding: Decoding, task: int | None, options: Options
) -> ConfidenceEstimator:
    """The estimator with the calibration that is kept, or one that is fitted, and kept."""
    path = options.calibration
    if path is not None and Path(path).exists():
        return ConfidenceEstimator.load(run, path, decoding, task, options.seed)
    out = None if path is None else check_output_file(path, "--calibration")
    estimator = ConfidenceEstimator.of(run, decoding, task, options.seed)
    if out is not None:
        estimator.save(out)
    return estimator


def _new_unknown_words(run: Run, lines: list[str], reported: set[str]) -> list[str]:
    """The words of some lines that are not in the vocabulary, and were not reported before."""
    assert run.source is not None
    new = [word for word in unknown_words(run.source, "\n".join(lines)) if word not in reported]
    reported.update(new)
    return new


def _format_confidence(translation: str, confidence: ConfidenceScores, doubt: float) -> str:
    """The confidence and the bracketed translation of a line; empty if it was skipped."""
    if confidence.score is None:
        return "\n"
    bracketed = bracket_doubtful_words(translation, confidence, doubt)
    return f"{confidence.score:.3f}\t{bracketed}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with ExitStack() as stack:
        with error_handling("translate.py"):
            runs, decoding, task = load(options)
            run, *others = runs
            _check_files(run, options)
            alignment_file = stack.enter_context(open_output("alignments", options.alignments))
            confidence_file = stack.enter_context(open_output("confidence", options.confidence))
            estimator = (
                None if confidence_file is None else _make_estimator(run, decoding, task, options)
            )
        if alignment_file and run.results and is_uninformed(run.results.test):
            note = f"note: {UNINFORMED}; align.py needs no network"
            print_message(f"{name_program('translate.py')}: {note}", sys.stderr)
        torch.manual_seed(options.seed)
        skipped = SkippedInputs("translate.py", "line")
        skipped_alignments = SkippedInputs("translate.py", "alignment of line")
        skipped_confidence = SkippedInputs("translate.py", "confidence of line")
        threshold = 0.5 if options.doubt is None else options.doubt
        reported: set[str] = set()
        with streaming("translate.py"):
            for lines in read_chunks(sys.stdin.buffer, options.buffer):
                if unknown := _new_unknown_words(run, lines, reported):
                    warn_unknown("translate.py", unknown)
                translations = translate_lines(run, lines, decoding, task, skipped.note, others)
                for line in translations:
                    write_stdout(f"{line}\n")
                sys.stdout.buffer.flush()
                if alignment_file is not None:
                    links = align_lines(
                        run,
                        lines,
                        translations,
                        task,
                        skipped_alignments.note,
                        options.split_punctuation,
                    )
                    alignment_file.writelines(f"{write_pharaoh(line)}\n" for line in links)
                    alignment_file.flush()
                if confidence_file is not None and estimator is not None:
                    scores = estimator.estimate(lines, translations, skipped_confidence.note)
                    for text, confidence in zip(translations, scores, strict=True):
                        confidence_file.write(_format_confidence(text, confidence, threshold))
                    confidence_file.flush()
                skipped.before += len(lines)
                skipped_alignments.before = skipped_confidence.before = skipped.before
    return int(skipped.number + skipped_alignments.number + skipped_confidence.number > 0)


if __name__ == "__main__":
    sys.exit(main())
