r"""Word aligners on manual links: error rates, calibration, a ladder of guides, CPU time.

    python experiments/studies/bench_aligner.py data/hansards --pairs 50000 --sample 0 \
        --systems latentheads,eflomal --rivals venv/bin/python --json results.json

The folder holds train, trial and test in both languages, as train.en and train.fr, and the links of
trial and test, as trial.links: 0-0 is a sure link, 0?0 a possible one. Aligners are trained on the
text of trial and test, without links, and on some lines of train. The samples of a number of lines
are disjoint: training is not random, so that they take the place of seeds.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import latentheads.experiments.cli.startup  # noqa: F401

import torch

from latentheads.checks import check_choice, split_items
from latentheads.contrib.align.aligner import WordAligner
from latentheads.contrib.align.api import align, start_alignment
from latentheads.contrib.align.model import GUIDES
from latentheads.contrib.align.symmetrization import THRESHOLD
from latentheads.contrib.align.training import AlignerOptions
from latentheads.corpora.text import read_lines
from latentheads.experiments.cli.errors import error_handling
from latentheads.experiments.cli.outputs import check_distinct_files
from latentheads.experiments.cli.parser import Parser, positive, writable
from latentheads.experiments.studies.word_aligners.measures import (
    Gold,
    calibrate,
    fit_scale,
    guide_gaps,
    measure_posteriors,
    measure_rival,
    read_gold,
)
from latentheads.experiments.studies.word_aligners.rivals import RIVALS, run_rival
from latentheads.experiments.studies.word_aligners.speed import measure_speed, measure_workers
from latentheads.experiments.studies.word_aligners.standing import measure_standing
from latentheads.files import write_text
from latentheads.metrics.alignment import Links
from latentheads.options import Size

PARTS = ("test", "trial")
"""Parts with manual links, in the order in which their lines come first."""

OWN = "latentheads"

NEW_LINES = 5_000
"""Lines that a trained aligner is timed on."""

THRESHOLDS = (0.2, 0.3, 0.4, 0.5, 0.6)
GROUPS = {
    "data": ("source", "target", "pairs", "sample"),
    "aligners": ("measure", "rivals", "systems", "workers"),
    "output": ("json", "help"),
}

Text = tuple[list[str], list[str]]


def make_parser() -> Parser:
    """Builds the command line."""
    parser = Parser("bench_aligner.py", __doc__, GROUPS, "[options] FOLDER")
    parser.add_argument("run", metavar="FOLDER", type=Path, help="the folder of the text")
    parser.add_argument("--source", default="en", help="ending of files (default: en)")
    parser.add_argument("--target", default="fr", help="ending of files (default: fr)")
    parser.add_argument("--pairs", type=Size, default=50_000, help="lines of train to train on")
    parser.add_argument("--sample", type=Size, default=0, help="which lines of train (default: 0)")
    parser.add_argument(
        "--rivals",
        type=Path,
        default=Path(sys.executable),
        metavar="PYTHON",
        help="the Python of an environment with eflomal and sil-thot (default: this one)",
    )
    parser.add_argument(
        "--systems",
        default=OWN,
        metavar="NAME,NAME",
        help=f"of {OWN}, {', '.join(RIVALS)} (default: {OWN})",
    )
    parser.add_argument(
        "--measure",
        choices=tuple(MEASURES),
        default="systems",
        help="systems: error rates of --systems. standing: of the aligner, of eflomal and of that "
        "of sil-thot, with intervals. speed: of the aligner and of eflomal in turn. workers: of "
        "--workers and of one process, in turn (default: systems)",
    )
    parser.add_argument(
        "--workers", type=positive, default=2, help="of --measure workers (default: 2)"
    )
    parser.add_argument("--json", type=writable, metavar="FILE", help="write all results")
    return parser


def read_text(options: Namespace) -> tuple[Text, dict[str, int]]:
    """The lines of all parts in lower case, and the number of lines of those with links."""
    sides: list[list[str]] = []
    lengths: dict[str, int] = {}
    parts = [part for part in PARTS if (options.run / f"{part}.links").exists()]
    for language in (options.source, options.target):
        lines: list[str] = []
        for part in parts:
            part_lines = read_lines(options.run / f"{part}.{language}")
            lengths[part] = len(part_lines)
            lines += part_lines
        begin = options.sample * options.pairs
        train = read_lines(options.run / f"train.{language}")[begin : begin + options.pairs]
        if len(train) < options.pairs:
            raise ValueError(f"sample {options.sample} of {options.pairs:,} lines ends after train")
        sides.append([line.lower() for line in [*lines, *train]])
    return (sides[0], sides[1]), lengths


def _split(values: Sequence[Any], lengths: dict[str, int]) -> dict[str, Sequence[Any]]:
    """What belongs to the lines of each part with links."""
    split, begin = {}, 0
    for part in PARTS:
        split[part] = values[begin : begin + lengths[part]]
        begin += lengths[part]
    return split


def measure_own(text: Text, gold: dict[str, Gold], lengths: dict[str, int]) -> dict[str, Any]:
    """Trains an aligner, and measures its links, its probabilities and its guides."""
    known = sum(lengths.values())
    before = time.process_time()
    alignment = start_alignment(*text)
    first = list(islice(alignment.posteriors, known))  # the lines with links come first
    for _ in alignment.posteriors:
        pass
    seconds = time.process_time() - before
    posteriors = _split(first, lengths)
    scale = fit_scale(posteriors["trial"], gold["trial"])
    before = time.process_time()
    align(text[0][:known], text[1][:known], aligner=alignment.aligner)
    return {
        "cpu_seconds": round(seconds, 1),
        "peak_rss_gb": round(peak_rss(), 2),
        "pairs": len(text[0]),
        "new_lines": known,
        "new_lines_cpu_seconds": round(time.process_time() - before, 2),
        "scores": {p: measure_posteriors(posteriors[p], gold[p], THRESHOLDS) for p in PARTS},
        "calibration": {part: calibrate(posteriors[part], gold[part]) for part in PARTS},
        "scaled_on_trial": {"scale": scale, **calibrate(posteriors["test"], gold["test"], scale)},
        "guides": measure_guides(alignment.aligner, text, gold, lengths),
    }


def peak_rss() -> float:
    """The most memory that this process has held, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def measure_guides(
    aligner: WordAligner, text: Text, gold: dict[str, Gold], lengths: dict[str, int]
) -> dict[str, Any]:
    """The gap of every guide on test, and the links that it gives, by one trained aligner."""
    source, target = (side[: lengths["test"]] for side in text)
    pairs = [(left.split(), right.split()) for left, right in zip(source, target, strict=True)]
    gaps = guide_gaps(aligner, pairs)
    results: dict[str, Any] = {}
    for guide in GUIDES:
        other = align(source, target, aligner=aligner, guide=guide)
        scores = measure_posteriors(other.posteriors, gold["test"], [THRESHOLD])
        results[guide] = {"gap": gaps[guide], "aer": {k: v["aer"] for k, v in scores.items()}}
    return results


def measure_systems(options: Namespace) -> dict[str, Any]:
    """The results of every system on the same lines."""
    text, lengths = read_text(options)
    gold = {part: read_gold(options.run / f"{part}.links") for part in PARTS}
    results: dict[str, Any] = {}
    if OWN in split_items(options.systems):
        results[OWN] = measure_own(text, gold, lengths)
        print(format_row(OWN, results[OWN]), flush=True)
    for name in [name for name in split_items(options.systems) if name != OWN]:
        links, seconds = run_rival(name, options.rivals, *text)
        split: list[dict[str, Sequence[Links]]] = [_split(side, lengths) for side in links]
        scores = {p: measure_rival(split[0][p], split[1][p], gold[p]) for p in PARTS}
        results[name] = {"cpu_seconds": round(seconds, 1), "scores": scores}
        print(format_row(name, results[name]), flush=True)
    return results


def time_both(options: Namespace) -> dict[str, Any]:
    """The speed of the aligner and of eflomal; lines of the next sample are new."""
    text, lengths = read_text(options)
    others, _ = read_text(Namespace(**{**vars(options), "sample": options.sample + 1}))
    begin = sum(lengths.values())
    new = others[0][begin:][:NEW_LINES], others[1][begin:][:NEW_LINES]
    return {"speed": measure_speed(text, new, options.rivals, partial(print, flush=True))}


def time_workers(options: Namespace) -> dict[str, Any]:
    """The speed of the aligner by one process and by several."""
    text, _ = read_text(options)
    report = partial(print, flush=True)
    return {"workers": measure_workers(text, options.workers, report)}


def measure_beside_others(options: Namespace) -> dict[str, Any]:
    """The aligner, eflomal and eflomal of sil-thot on the same lines, with intervals."""
    text, _ = read_text(options)
    gold = read_gold(options.run / "test.links")
    return {"standing": measure_standing(text, gold, options.rivals, partial(print, flush=True))}


MEASURES = {
    "systems": measure_systems,
    "standing": measure_beside_others,
    "speed": time_both,
    "workers": time_workers,
}


def format_row(name: str, result: dict[str, Any]) -> str:
    """One line of a system: AER on test by symmetrization, and CPU seconds."""
    scores = result["scores"]["test"]
    cells = "  ".join(f"{key} {100 * value['aer']:.1f}" for key, value in scores.items())
    return f"{name}: {cells}  ({result['cpu_seconds']:.0f} CPU s)"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the study."""
    options = make_parser().parse_args(arguments)
    torch.set_num_threads(1)
    with error_handling("bench_aligner.py"):
        for name in split_items(options.systems):
            check_choice("system", name, (OWN, *RIVALS))
        languages = (options.source, options.target)
        inputs = [
            options.run / f"{part}.{name}" for part in ("train", *PARTS) for name in languages
        ]
        check_distinct_files([("--json", options.json)], inputs)
        results = MEASURES[options.measure](options)
        facts = {"pairs": options.pairs, "sample": options.sample, **vars(AlignerOptions())}
        passes = AlignerOptions().passes(options.pairs)
        facts |= zip(("iterations", "leave_one_out"), passes, strict=True)
        facts |= {"torch": torch.__version__, "threads": 1}
        if options.json is not None:
            text_of_results = json.dumps({"metadata": facts, **results}, indent=1)
            write_text(options.json, f"{text_of_results}\n")


if __name__ == "__main__":
    main()
