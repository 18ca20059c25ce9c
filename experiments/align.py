"""Aligns the words of two texts, and writes their links in the Pharaoh format.

python experiments/align.py text.en text.de --out links
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import latentheads.experiments.cli.startup  # noqa: F401

from latentheads.contrib.align.aligner import WordAligner
from latentheads.contrib.align.api import MAX_WORDS, AlignedText, align
from latentheads.contrib.align.kept import load_aligner, save_aligner
from latentheads.contrib.align.model import GUIDES
from latentheads.contrib.align.networks import align_by_networks
from latentheads.contrib.align.symmetrization import SYMMETRIZATIONS, THRESHOLD, LinkPosterior
from latentheads.contrib.align.tokenization import SPLITS
from latentheads.contrib.align.training import AlignerOptions
from latentheads.corpora.text import pair_lines, read_lines
from latentheads.experiments.cli.errors import (
    SkippedInputs,
    check_streams,
    error_handling,
    streaming,
)
from latentheads.experiments.cli.outputs import check_distinct_files, check_output_file
from latentheads.experiments.cli.parser import Options, Parser
from latentheads.files import write_text
from latentheads.metrics.alignment import write_pharaoh
from latentheads.runs.loading import load_run
from latentheads.training.progress import ProgressDisplay

DESCRIPTION = (
    "Aligns the words of two texts, and gives every link its probability.\n\n"
    "    python experiments/align.py text.en text.de --out links\n"
    "    python experiments/align.py text.en text.de --out links --scores links.jsonl\n"
    "    python experiments/align.py text.en text.de --out links --keep en-de.aligner\n"
    "    python experiments/align.py new.en new.de --out links --aligner en-de.aligner\n\n"
    "It trains on the texts themselves and needs nothing else; more lines give better links. Line "
    "n of one text translates line n of the other; one text may hold both, as 'source ||| target'. "
    "Links are written as 0-0 1-2: a source and a target word, counted from 0, where words are "
    "what white space separates. An empty line has no links."
)
GROUPS = {
    "links": ("symmetrize", "threshold", "guide"),
    "training": ("iterations", "null_probability", "agreement", "jump_smoothing"),
    "text": ("split", "max_words"),
    "the aligner": ("keep", "aligner", "runs"),
    "output": ("out", "scores", "quiet", "help"),
}
SEPARATOR = "|||"

LEAST_PROBABILITY = 0.01
"""Links that are less likely are not written to --scores."""


def make_parser() -> Parser:
    """Makes the parser."""
    parser = Parser("align.py", DESCRIPTION, GROUPS, "[options] SOURCE [TARGET]")
    parser.add_argument(
        "texts",
        nargs="+",
        metavar="TEXT",
        help="a file for each language, one sentence per line (.gz is decompressed), or one file "
        "whose lines are 'source ||| target'",
    )
    _add_link_options(parser)
    parser.add_dataclass(AlignerOptions)
    parser.add_argument(
        "--split",
        choices=SPLITS,
        help="spaces: text is tokenised. punctuation: words and the punctuation attached to them "
        "are aligned separately; links are still those of words, without their punctuation "
        "(default: spaces)",
    )
    parser.add_argument(
        "--max_words", type=int, default=MAX_WORDS, help="most words of a line that is aligned"
    )
    _add_aligner_options(parser)
    parser.add_argument("--out", help="file for the links (default: standard output)")
    parser.add_argument(
        "--scores",
        help="file for probabilities, one JSON object per line: links [source, target, "
        "probability], the probability that each source_null and target_null word has no link, and "
        "the log_prob of the target given the source and of the reverse, in nats; null where a "
        "line is not aligned: it is too long, or one side is empty",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    return parser


def _add_link_options(parser: Parser) -> None:
    parser.add_argument(
        "--symmetrize",
        choices=tuple(SYMMETRIZATIONS),
        default="product",
        help="how both directions are joined. product: the geometric mean of both probabilities is "
        "at least --threshold. grow: also likely neighbours of such links, of words that have no "
        "link. others take the likeliest link of each word",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        help=f"least probability of a link; higher for fewer, surer links (default: {THRESHOLD})",
    )
    parser.add_argument(
        "--guide",
        choices=tuple(GUIDES),
        help="how links are inferred. exact: the posterior. filtered: given the words up to each. "
        "lexical: from translations, without positions. viterbi: the likeliest links, with "
        "probability 1. tied: the prior (default: exact)",
    )


def _add_aligner_options(parser: Parser) -> None:
    parser.add_argument("--keep", help="file to keep the trained aligner in")
    parser.add_argument(
        "--aligner", help="align with an aligner that --keep wrote, without training"
    )
    parser.add_argument(
        "--runs",
        nargs=2,
        metavar=("FORWARD", "BACKWARD"),
        help="align with two translation runs that run.py wrote with --latents alignments, of the "
        "one direction, source to target, and of the other",
    )


def read_texts(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Reads the lines of both texts.

    Raises:
        ValueError: A file cannot be read, or the texts differ in their number of lines.
    """
    if len(paths) > 2:
        raise ValueError(f"give a file for each language, or one for both: got {len(paths)} files")
    if len(paths) == 1:
        (path,) = paths
        pairs = [_split_line(line, n, path) for n, line in enumerate(read_lines(path), 1)]
    else:
        pairs = pair_lines(*paths)
    return [source for source, _ in pairs], [target for _, target in pairs]


def _split_line(line: str, number: int, path: str) -> tuple[str, str]:
    """The source and the target of a line of one file."""
    parts = line.split(SEPARATOR)
    if len(parts) != 2 and line.strip():
        raise ValueError(
            f"{path}, line {number}: a line of one file must be 'source ||| target', "
            f"got {len(parts) - 1} separators"
        )
    return parts[0], parts[-1] if len(parts) == 2 else ""


def check_options(options: Options) -> None:
    """Checks the options before a file is read.

    Raises:
        ValueError: One is out of range, or has no effect.
    """
    threshold = options.threshold
    if threshold is not None and not 0 <= threshold <= 1:
        raise ValueError(f"--threshold must lie in [0, 1], got {threshold}")
    if threshold is not None and options.symmetrize not in ("product", "grow"):
        raise ValueError(
            f"--threshold is for --symmetrize product and grow, not {options.symmetrize}"
        )
    if options.runs is not None and options.aligner is not None:
        raise ValueError("--aligner and --runs both say what aligns: give one")
    trained = "--runs" if options.runs is not None else "--aligner"
    given, defaults = vars(options), vars(AlignerOptions())
    idle = [name for name, value in defaults.items() if given[name] != value]
    idle += [name for name in ("keep", "split") if given[name] is not None]
    idle += ["guide"] if options.runs is not None and options.guide is not None else []
    if idle and (options.runs is not None or options.aligner is not None):
        reason = "runs have their posterior" if idle[0] == "guide" else "nothing is trained"
        raise ValueError(f"--{idle[0]} has no effect with {trained}: {reason}")


def find_outputs(options: Options) -> dict[str, Path]:
    """The files to write by their options, with links resolved, so that a link stays one.

    Raises:
        ValueError: One cannot be written, is read too, or is another one.
    """
    if options.out is None:
        check_streams("stdout")
    given = {name: vars(options)[name] for name in ("out", "scores", "keep")}
    named = {name: value for name, value in given.items() if value is not None}
    inputs = (*options.texts, options.aligner, *(options.runs or ()))
    check_distinct_files(((f"--{name}", path) for name, path in named.items()), inputs)
    return {name: check_output_file(Path(path), f"--{name}") for name, path in named.items()}


def align_texts(source: list[str], target: list[str], options: Options) -> AlignedText:
    """Trains an aligner where none is given, and aligns the lines."""
    if options.runs is not None:
        forward, backward = (load_run(folder).trained_model for folder in options.runs)
        return align_by_networks(source, target, forward, backward)
    aligner: WordAligner | None = None
    settings: dict[str, Any] = {}
    if options.aligner is not None:
        aligner = load_aligner(options.aligner)
    else:
        training = AlignerOptions(
            **{name: getattr(options, name) for name in vars(AlignerOptions())}
        )
        settings = {"options": training, "split": options.split or SPLITS[0]}
    with _Progress(options.quiet, aligner is None) as progress:
        return align(
            source,
            target,
            aligner=aligner,
            guide=options.guide or "exact",
            max_words=options.max_words,
            report=progress.show,
            **settings,
        )


class _Progress:
    """A progress bar for training, unless there is an aligner, and another for aligning.

    Args:
        quiet: Show nothing.
        trains: Whether an aligner is trained.
    """

    def __init__(self, quiet: bool, trains: bool) -> None:
        self._quiet = quiet
        self._units = ["alignment step", "training step"] if trains else ["alignment step"]
        self._display: ProgressDisplay | None = None

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._display is not None:
            self._display.__exit__(None, None, None)

    def show(self, done: int, total: int) -> None:
        """Shows that some batches of all are done."""
        if self._display is None or done <= self._display.done:
            self.__exit__()
            display = ProgressDisplay(total, quiet=self._quiet, unit=self._units.pop())
            self._display = display.__enter__()
        self._display.advance(done)


def format_scores(posteriors: Sequence[LinkPosterior]) -> Iterator[str]:
    """Yields the line of ``--scores`` of every sentence pair."""
    for posterior in posteriors:
        product = posterior.product
        shown = zip(*(product >= LEAST_PROBABILITY).nonzero(), strict=True)
        facts = {
            "links": [[int(s), int(t), _round(product[s, t])] for s, t in shown],
            "source_null": [_round(p) for p in posterior.null_source],
            "target_null": [_round(p) for p in posterior.null_target],
            "log_prob": [_round(value) for value in posterior.log_probs],
        }
        yield f"{json.dumps(facts)}\n"


def _round(value: float) -> float | None:
    """A number with four digits after the point; None if it is not known."""
    return None if math.isnan(value) else round(float(value), 4)


def write_results(aligned: AlignedText, options: Options, files: dict[str, Path]) -> None:
    """Writes links, then the aligner and probabilities, each even if another cannot be written."""
    with ExitStack() as steps:  # it calls them from the last to the first
        if "scores" in files:
            steps.callback(_write_scores, files["scores"], aligned)
        if "keep" in files and aligned.aligner is not None:
            steps.callback(save_aligner, files["keep"], aligned.aligner)
        _write_links(aligned, options, files.get("out"))


def _write_links(aligned: AlignedText, options: Options, out: Path | None) -> None:
    threshold = THRESHOLD if options.threshold is None else options.threshold
    links = aligned.select(options.symmetrize, threshold)
    text = "".join(f"{write_pharaoh(line)}\n" for line in links)
    if out is not None:
        write_text(out, text)
        return
    with streaming("align.py"):
        sys.stdout.write(text)
        sys.stdout.flush()


def _write_scores(out: Path, aligned: AlignedText) -> None:
    write_text(out, "".join(format_scores(aligned.posteriors)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    skipped = SkippedInputs("align.py", "line")
    with error_handling("align.py"):
        check_options(options)
        files = find_outputs(options)
        aligned = align_texts(*read_texts(options.texts), options)
        for index, reason in aligned.skipped.items():
            skipped.note(index, reason)
        write_results(aligned, options, files)
    return int(skipped.number > 0)


if __name__ == "__main__":
    sys.exit(main())
