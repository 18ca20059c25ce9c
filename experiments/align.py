"""Aligns the words of two texts, and writes their links in the Pharaoh format.

python experiments/align.py text.en text.de --out links
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, nullcontext, suppress
from itertools import islice, zip_longest
from pathlib import Path
from typing import Annotated, TextIO

import latentheads.experiments.cli.startup  # noqa: F401

from annotated_types import Ge, Le

from latentheads.console import bars_shown, print_message
from latentheads.contrib.align.aligner import WordAligner
from latentheads.contrib.align.api import MAX_WORDS, Alignment, describe_unknown, start_alignment
from latentheads.contrib.align.dictionary import read_dictionary, write_dictionary
from latentheads.contrib.align.gold import (
    GoldLinks,
    check_gold_links,
    describe_gold_scores,
    read_gold_file,
)
from latentheads.contrib.align.kept import load_aligner, save_aligner
from latentheads.contrib.align.model import GUIDES
from latentheads.contrib.align.symmetrization import (
    SYMMETRIZATIONS,
    THRESHOLD,
    LinkPosterior,
    select_links,
)
from latentheads.contrib.align.tokenization import SPLITS, describe_long_words
from latentheads.contrib.align.training import AlignerOptions
from latentheads.contrib.align.workers import check_workers
from latentheads.corpora.text import decode_line, iterate_lines
from latentheads.errors import naming
from latentheads.experiments.cli.errors import (
    SkippedInputs,
    error_handling,
    print_result,
    streaming,
    warnings_as_notes,
)
from latentheads.experiments.cli.outputs import check_distinct_files, check_output_file
from latentheads.experiments.cli.parser import Options, Parser
from latentheads.files import atomic_write
from latentheads.metrics.alignment import Link, write_pharaoh
from latentheads.options import Count
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
    "training": (
        *("iterations", "null_probability", "agreement", "jump_smoothing", "leave_one_out"),
    ),
    "text": ("split", "max_words", "sample", "workers"),
    "the aligner": ("keep", "aligner", "continue", "lexicon", "write_lexicon", "runs"),
    "output": ("out", "probabilities", "scores", "gold", "quiet", "help"),
}
SEPARATORS = ("|||", "\t")
"""What separates the source and the target of a line of one file."""

STDIN = "-"

CHUNK = 10_000
"""Lines that a trained aligner aligns at once."""

TRAINING_OPTIONS = ("keep", "split", "sample", "lexicon")
"""Options of a training, besides those of the aligner."""

JUMP_OPTIONS = ("null_probability", "jump_smoothing")
"""Options of training that are those of jumps."""

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
        "whose lines are 'source ||| target', or have a tab between both; - is standard input",
    )
    _add_link_options(parser)
    parser.add_dataclass(AlignerOptions)
    parser.add_argument(
        "--split",
        choices=SPLITS,
        help="spaces: text is tokenised. punctuation: words and the punctuation attached to them "
        "are aligned separately; links are still those of words, without their punctuation. "
        "characters: every letter is aligned, for scripts without spaces (default: spaces)",
    )
    parser.add_argument(
        "--max_words", type=int, default=MAX_WORDS, help="most words of a line that is aligned"
    )
    parser.add_argument(
        "--sample",
        type=Count,
        help="train on that many lines, evenly spaced, and align all as new ones, in "
        "memory that does not grow with the text (default: train on all)",
    )
    parser.add_argument(
        "--workers",
        type=Count,
        default=1,
        help="processes that share the work, in training and aligning; each takes a table of "
        "counts more in memory, and links are the same but for rounding",
    )
    _add_aligner_options(parser)
    parser.add_argument("--out", help="file for the links (default: standard output)")
    parser.add_argument(
        "--probabilities",
        action="store_true",
        help="write the probability of each link after it, as 0-0:0.93",
    )
    parser.add_argument(
        "--scores",
        help="file for probabilities, one JSON object per line: links [source, target, "
        "probability], the probability that each word has no link (null_source, null_target), "
        "which is too high, and the log_probs of the target given the source and of the reverse, "
        "in nats; null where a line is not aligned: it is too long, or one side is empty",
    )
    parser.add_argument(
        "--gold",
        help="file of gold links of the first lines, counted from 0, as 0-0 and, possible ones, "
        "0?0 or 0p0: AER, precision, recall and F1 are printed, with 95 %% intervals over lines "
        "(too narrow for fewer than 30). A line without gold links is not scored",
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
        type=Annotated[float, Ge(0), Le(1)],
        help=f"least probability of a link; higher for fewer, surer links (default: {THRESHOLD})",
    )
    parser.add_argument(
        "--guide",
        choices=tuple(GUIDES),
        help="how links are inferred. exact: the posterior. filtered: given the link before "
        "and the word of each. lexical: from translations, without positions. viterbi: the "
        "likeliest links, with probability 1. tied: the prior (default: exact)",
    )


def _add_aligner_options(parser: Parser) -> None:
    parser.add_argument("--keep", help="file to keep the trained aligner in")
    parser.add_argument(
        "--aligner",
        help="align with an aligner that --keep wrote, without training unless --continue is given",
    )
    parser.add_argument(
        "--continue",
        action="store_true",
        help="train --aligner on with the lines: old and new ones count",
    )
    parser.add_argument(
        "--lexicon",
        help="a file of lines 'source target count', as if these words had been linked so often "
        "before",
    )
    parser.add_argument(
        "--write_lexicon", help="file for the word pairs that were linked, and how often"
    )
    parser.add_argument(
        "--runs",
        nargs=2,
        metavar=("FORWARD", "BACKWARD"),
        help="align with two translation runs that run.py wrote with --latents alignments, of the "
        "one direction, source to target, and of the other",
    )


def iterate_pairs(paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields the lines of both texts.

    Raises:
        ValueError: A file cannot be read, or the texts differ in their number of lines.
    """
    if len(paths) > 2:
        raise ValueError(f"give a file for each language, or one for both: got {len(paths)} files")
    if len(paths) == 1:
        (path,) = paths
        for number, line in enumerate(_iterate_lines(path), 1):
            yield _split_line(line, number, _name_text(path))
        return
    if paths[0] == paths[1] == STDIN:
        raise ValueError("only one text can be standard input")
    for number, (source, target) in enumerate(zip_longest(*map(_iterate_lines, paths))):
        if source is None or target is None:
            shorter = _name_text(paths[source is not None])
            raise ValueError(
                f"{shorter} ends after {number:,} lines: line n of one text must translate line n "
                "of the other"
            )
        yield source, target


def _name_text(path: str) -> str:
    """What a text is called in messages."""
    return "standard input" if path == STDIN else path


def _iterate_lines(path: str) -> Iterator[str]:
    """Yields the lines of a file, or of standard input."""
    if path != STDIN:
        yield from iterate_lines(path)
        return
    for number, line in enumerate(sys.stdin.buffer, 1):
        yield decode_line(line, _name_text(path), number)


def _split_line(line: str, number: int, path: str) -> tuple[str, str]:
    """The source and the target of a line of one file."""
    separator = next((mark for mark in SEPARATORS if mark in line), SEPARATORS[0])
    parts = line.split(separator)
    if len(parts) != 2 and line.strip():
        raise ValueError(
            f"{path}, line {number}: a line of one file must be 'source ||| target', or have a tab "
            f"between both, got {len(parts) - 1} separators"
        )
    return parts[0], parts[-1] if len(parts) == 2 else ""


def check_options(options: Options) -> None:
    """Checks the options before a file is read."""
    threshold = options.threshold
    if threshold is not None and options.symmetrize not in ("product", "grow"):
        raise ValueError(
            f"--threshold is for --symmetrize product and grow, not {options.symmetrize}"
        )
    check_workers(options.workers)
    if options.workers > 1 and options.runs is not None:
        raise ValueError("--workers has no effect with --runs: networks align in one process")
    if options.max_words != MAX_WORDS and options.runs is not None:
        raise ValueError("--max_words has no effect with --runs: networks have limits of their own")
    if options.runs is not None and options.aligner is not None:
        raise ValueError("--aligner and --runs both say what aligns: give one")
    if options.gold is not None and options.out is None:
        raise ValueError("--gold prints scores: name a file for the links by --out")
    if options.sample is not None and STDIN in options.texts:
        raise ValueError("--sample reads the text twice, which standard input cannot")
    _check_training(options)


def _check_training(options: Options) -> None:
    """Checks the options of training, and of what aligns without it."""
    values = vars(options)
    changed = [name for name, default in vars(AlignerOptions()).items() if values[name] != default]
    if options.lexicon is not None and options.aligner is not None:
        raise ValueError("--lexicon and --aligner both say what training begins with: give one")
    if values["continue"]:
        if options.aligner is None:
            raise ValueError("--continue trains an aligner on: name it by --aligner")
        unused = [name for name in JUMP_OPTIONS if name in changed]
        option, reason = "--continue", "the jumps of a kept aligner stay as they are"
    elif options.runs is not None and options.guide is not None:
        unused, option, reason = ["guide"], "--runs", "runs have their posterior"
    elif options.runs is not None or options.aligner is not None:
        option = "--aligner" if options.runs is None else "--runs"
        names = [*TRAINING_OPTIONS, *(["write_lexicon"] if options.runs is not None else [])]
        unused = [*changed, *(name for name in names if values[name] is not None)]
        reason = "nothing is trained"
    else:
        return
    if unused:
        raise ValueError(f"--{unused[0]} has no effect with {option}: {reason}")


def find_outputs(options: Options) -> dict[str, Path]:
    """The files to write by their options, with links resolved, so that a link stays one.

    Raises:
        ValueError: One cannot be written, is read too, or is another one.
    """
    outputs = {name: vars(options)[name] for name in ("out", "scores", "keep", "write_lexicon")}
    named = {name: path for name, path in outputs.items() if path is not None}
    texts = (path for path in options.texts if path != STDIN)
    inputs = (*texts, options.aligner, options.lexicon, options.gold, *(options.runs or ()))
    check_distinct_files(((f"--{name}", path) for name, path in named.items()), inputs)
    return {name: check_output_file(path, f"--{name}") for name, path in named.items()}


Aligned = tuple[WordAligner | None, Iterator[LinkPosterior]]
"""The aligner, if one was trained or read, and the posterior of each line."""


def align_texts(options: Options, skipped: SkippedInputs) -> Aligned:
    """Trains an aligner where none is given, and aligns lines as their links are asked for."""
    if options.runs is not None:
        return _align_by_runs(options, skipped)
    if options.aligner is not None and not vars(options)["continue"]:
        aligner = load_aligner(options.aligner)
        return aligner, _align_chunks(aligner, options, skipped)
    if options.sample is None:
        alignment = _train(iterate_pairs(options.texts), options)
        return alignment.aligner, _noting_skipped(alignment, skipped)
    aligner = _train(_sample_pairs(options), options).aligner
    return aligner, _align_chunks(aligner, options, skipped)


def _train(pairs: Iterable[tuple[str, str]], options: Options) -> Alignment:
    """Trains an aligner on some lines."""
    source, target = _unzip(pairs)
    if options.split != "characters":
        for name, lines in (("source", source), ("target", target)):
            if message := describe_long_words(lines):
                print_message(f"align.py: note: {name}: {message}", sys.stderr)
    training = AlignerOptions(**{name: getattr(options, name) for name in vars(AlignerOptions())})
    progress = _Progress(options.quiet, ["alignment step", "training step"])
    start: WordAligner | None = None
    if options.aligner is not None:
        start = load_aligner(options.aligner)
    elif options.lexicon is not None:
        start = read_dictionary(options.lexicon)
    if start is not None:
        _note_unknown(start, source, target)
    return start_alignment(
        source,
        target,
        options=training,
        split=options.split,
        guide=options.guide or "exact",
        max_words=options.max_words,
        report=progress.show,
        start=start,
        workers=options.workers,
    )


def _note_unknown(aligner: WordAligner, source: Sequence[str], target: Sequence[str]) -> None:
    """Says on standard error if an aligner does not know most words of a text."""
    if message := describe_unknown(aligner, source, target):
        print_message(f"align.py: note: {message}", sys.stderr)


def _unzip(pairs: Iterable[tuple[str, str]]) -> tuple[list[str], list[str]]:
    source: list[str] = []
    target: list[str] = []
    for left, right in pairs:
        source.append(left)
        target.append(right)
    return source, target


def _sample_pairs(options: Options) -> Iterator[tuple[str, str]]:
    """Yields the lines of ``--sample``, evenly spaced."""
    total = sum(1 for _ in iterate_pairs(options.texts))
    taken = 0
    for index, pair in enumerate(iterate_pairs(options.texts)):
        if index * options.sample >= taken * total and taken < options.sample:
            taken += 1
            yield pair


def _align_chunks(
    aligner: WordAligner, options: Options, skipped: SkippedInputs
) -> Iterator[LinkPosterior]:
    """Aligns lines by a trained aligner, some at a time, so that memory stays as it is."""
    pairs = iterate_pairs(options.texts)
    while chunk := list(islice(pairs, CHUNK)):
        source, target = _unzip(chunk)
        if options.aligner is not None and skipped.before == 0:
            _note_unknown(aligner, source, target)
        progress = _Progress(options.quiet or skipped.before > 0, ["alignment step"])
        alignment = start_alignment(
            source,
            target,
            aligner=aligner,
            guide=options.guide or "exact",
            max_words=options.max_words,
            report=progress.show,
            workers=options.workers,
        )
        yield from _noting_skipped(alignment, skipped)
        skipped.before += len(chunk)


def _noting_skipped(alignment: Alignment, skipped: SkippedInputs) -> Iterator[LinkPosterior]:
    yield from alignment.posteriors
    for index, reason in sorted(alignment.skipped.items()):
        skipped.note(index, reason)


def _align_by_runs(options: Options, skipped: SkippedInputs) -> Aligned:
    """Aligns all lines by two translation runs."""
    from latentheads.contrib.align.networks import align_by_networks  # slow to import

    with warnings_as_notes("align.py"):
        aligned = align_by_networks(*_unzip(iterate_pairs(options.texts)), *options.runs)
    for index, reason in aligned.skipped.items():
        skipped.note(index, reason)
    return None, iter(aligned.posteriors)


class _Progress:
    """Progress bars of the steps of a text, each shown until its last batch is done.

    Args:
        quiet: Show nothing.
        units: What the steps are called, the last one first.
    """

    def __init__(self, quiet: bool, units: list[str]) -> None:
        self._quiet, self._units = quiet, units
        self._display: ProgressDisplay | None = None

    def show(self, done: int, total: int) -> None:
        """Shows that some batches of all are done."""
        if self._display is None:
            display = ProgressDisplay(total, quiet=self._quiet, unit=self._units.pop())
            self._display = display.__enter__()
        self._display.advance(done)
        if done == total:
            self._display.__exit__(None, None, None)
            self._display = None


def format_scores(posterior: LinkPosterior) -> str:
    """The line of ``--scores`` of a sentence pair."""
    product = posterior.product
    likely = zip(*(product >= LEAST_PROBABILITY).nonzero(), strict=True)
    scores = {
        "links": [[int(s), int(t), _round(product[s, t])] for s, t in likely],
        "null_source": [_round(p) for p in posterior.null_source],
        "null_target": [_round(p) for p in posterior.null_target],
        "log_probs": [_round(value) for value in posterior.log_probs],
    }
    return f"{json.dumps(scores)}\n"


def _round(value: float) -> float | None:
    """A number with four digits after the point; None if it is not known."""
    return None if math.isnan(value) else round(float(value), 4)


def format_links(posterior: LinkPosterior, options: Options) -> str:
    """The line of links of a sentence pair."""
    links = sorted(_links_of(posterior, options))
    if not options.probabilities:
        return f"{write_pharaoh(links)}\n"
    product = posterior.product
    return " ".join(f"{s}-{t}:{product[s, t]:.2f}" for s, t in links) + "\n"


def _links_of(posterior: LinkPosterior, options: Options) -> frozenset[Link]:
    threshold = THRESHOLD if options.threshold is None else options.threshold
    return frozenset(select_links(posterior, options.symmetrize, threshold))


def _read_gold(options: Options) -> list[GoldLinks]:
    """The gold links, which have to be those of the words of the first lines."""
    gold = read_gold_file(options.gold)
    if STDIN in options.texts:
        return gold
    pairs = [*islice(iterate_pairs(options.texts), len(gold))]
    if len(pairs) < len(gold):
        lines = f"{len(gold):,} lines, the text {len(pairs):,}"
        raise ValueError(f"--gold {options.gold} has {lines}")
    if options.aligner is None and options.split != "characters":  # else links may be of letters
        for number, (pair, links) in enumerate(zip(pairs, gold, strict=True), 1):
            with naming(f"--gold {options.gold}, line {number}"):
                check_gold_links(links, *(len(text.split()) for text in pair))
    return gold


def _linking(
    posteriors: Iterable[LinkPosterior], most: int, options: Options, links: list[frozenset[Link]]
) -> Iterator[LinkPosterior]:
    """Hands posteriors on, and notes the links of the first lines."""
    for posterior in posteriors:
        if len(links) < most:
            links.append(_links_of(posterior, options))
        yield posterior


class _Sink:
    """Lines of a file that are written as they are made; what cannot be written stops no other.

    Args:
        path: The file, which takes the place of an older one when it is whole; None: standard
            output.
        format_line: Makes the line of a posterior.
    """

    def __init__(self, path: Path | None, format_line: Callable[[LinkPosterior], str]) -> None:
        self._format, self._stack = format_line, ExitStack()
        self.error: OSError | None = None
        self._file: TextIO = sys.stdout
        if path is not None:
            temporary = self._stack.enter_context(atomic_write(path))
            opened = temporary.open("w", encoding="utf-8", newline="")
            self._file = self._stack.enter_context(opened)

    def write(self, posterior: LinkPosterior) -> None:
        """Writes a line."""
        if self.error is None:
            self._attempt(lambda: self._file.write(self._format(posterior)))

    def close(self, error: BaseException | None) -> None:
        """Puts the file in its place, unless there was an error."""
        if error is None and self.error is None:
            self._attempt(self._file.flush)
        error = error or self.error
        if error is None:
            self._attempt(self._stack.close)
        else:
            with suppress(type(error)):
                self._stack.__exit__(type(error), error, error.__traceback__)

    def _attempt(self, step: Callable[[], object]) -> None:
        try:
            step()
        except OSError as reason:
            self.error = reason


def write_results(
    posteriors: Iterable[LinkPosterior], options: Options, files: dict[str, Path]
) -> None:
    """Writes the links and probabilities of each line as it is aligned."""
    sinks = {"out": _Sink(files.get("out"), lambda posterior: format_links(posterior, options))}
    if "scores" in files:
        sinks["scores"] = _Sink(files["scores"], format_scores)
    error: BaseException | None = None
    try:
        for posterior in posteriors:
            for sink in sinks.values():
                sink.write(posterior)
    except BaseException as reason:
        error = reason
        raise
    finally:
        for sink in sinks.values():
            sink.close(error)
    for name, sink in sinks.items():
        with streaming("align.py") if name not in files else nullcontext():
            if sink.error is not None:
                raise sink.error


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    skipped = SkippedInputs("align.py", "line")
    with error_handling("align.py"):
        check_options(options)
        files = find_outputs(options)
        gold = [] if options.gold is None else _read_gold(options)
        with bars_shown(not options.quiet):
            aligner, posteriors = align_texts(options, skipped)
        with ExitStack() as stack:  # what cannot be written stops nothing else
            if "keep" in files and aligner is not None:
                stack.callback(save_aligner, aligner, files["keep"])
            if "write_lexicon" in files and aligner is not None:
                stack.callback(write_dictionary, aligner, files["write_lexicon"])
            links: list[frozenset[Link]] = []
            write_results(_linking(posteriors, len(gold), options, links), options, files)
        if gold:
            print_result("align.py", describe_gold_scores(links, gold))
    return 0


if __name__ == "__main__":
    sys.exit(main())
