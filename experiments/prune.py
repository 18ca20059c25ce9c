"""Prunes the heads of a finished run and measures what is left.

python experiments/prune.py runs/transformer-seed0 --keep_heads 16,8 --out runs/pruned
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import latentheads.experiments.cli.startup  # noqa: F401

from jsonargparse import Namespace

from latentheads.checks import check_least, check_seed, whole_numbers
from latentheads.corpora import Corpus
from latentheads.experiments.cli.errors import error_handling, tell
from latentheads.experiments.cli.groups import OF_RUNS
from latentheads.experiments.cli.options import Parser, add_run_options, open_run
from latentheads.experiments.cli.outputs import make_folder
from latentheads.experiments.cli.tables import aligned
from latentheads.experiments.pruning.curve import (
    By,
    Laws,
    count_closed,
    find_stops,
    prune_to,
    rank_heads,
)
from latentheads.experiments.pruning.networks import (
    Pruned,
    folder_of,
    networks_in,
    point,
    time_all,
)
from latentheads.files import locked_folder, write_text
from latentheads.metrics.scores import SCORES, chief_score, format_value
from latentheads.names import ATTENTION_TYPES, attention_type_of, parse_attention_types
from latentheads.pruning import all_heads, fold_gates
from latentheads.runs.folder import WRITTEN
from latentheads.runs.run import Run
from latentheads.values import finite

STAGED = ".networks-"
"""What the name of a folder of networks begins with until they are whole."""

DESCRIPTION = (
    "Removes the least important heads of a finished run, and measures the rest.\n\n"
    "    python experiments/prune.py runs/transformer-seed0 --keep_heads 16,8\n\n"
    "Of attention and of n-grams. Measured at every step: the plug-in likelihood and the bound "
    "on validation, BLEU on test, and the speed. Removal is real: a pruned network has smaller "
    "matrices, and the same outputs as one whose heads are silent. Where a prior or a posterior "
    "mixes heads, as a cascade does, the logits of removed heads are still drawn, and less time "
    "is won. Writes curve.json, curve.png and, for every number of heads, a run folder that "
    "translate.py, generate.py, score.py and analyse.py accept. The run itself is not changed."
)


def make_parser() -> Parser:
    """Makes the parser."""
    usage = "prune.py [options] RUN"
    parser = Parser(prog="prune.py", usage=usage, description=DESCRIPTION)
    parser.sections = {
        "what to remove": ("keep_heads", "by", "chains", "normalise"),
        "what to measure": ("sentences", "timed", "rounds"),
        "output": ("out", "overwrite"),
        "the run": (*OF_RUNS, "help"),
    }
    parser.add_argument("run", type=str, help="folder that run.py wrote")
    parser.add_argument(
        "--by",
        type=By,
        default="gradient",
        help="what makes a head important: gradient, the mean over sentences of |dL/dmask| as "
        "Michel et al. 2019; gates, how likely the gate is open that a run with --gates learned; "
        "random, chance",
    )
    parser.add_argument(
        "--keep_heads",
        type=str,
        default="",
        help="numbers of heads that stay in the whole model, comma between (default: from nine "
        "tenths down to none of those that may go; with gates, those whose gate is open)",
    )
    parser.add_argument(
        "--chains",
        type=str,
        default="all",
        help=f"chains whose heads may go: all, or some of {','.join(ATTENTION_TYPES)}",
    )
    parser.add_argument(
        "--normalise",
        type=bool,
        default=True,
        help="divide importance by its l2 norm over the heads of a block, as the paper does",
    )
    parser.add_argument(
        "--sentences",
        type=int,
        default=0,
        help="how many of validation and of test are read, the first ones; of running text blocks; "
        "0: all",
    )
    parser.add_argument(
        "--timed",
        type=int,
        default=64,
        help="how many of the test part, the first ones, are decoded to measure the speed, along "
        "their references, so that all networks do the same work",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="times that the speed is measured, all networks in turns; the median counts",
    )
    parser.add_argument("--out", type=str, help="where everything goes (default: RUN-pruned)")
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace a curve that is there already, and its networks",
    )
    add_run_options(parser, "of chance")
    return parser


def _make_curve(
    run: Run, corpus: Corpus, options: Namespace, laws: Laws, stops: Sequence[int], out: Path
) -> list[Pruned]:
    """Prunes, reports and times, one number of heads after the other."""
    ranked = options.by, laws, options.normalise, options.seed
    importance = rank_heads(run, corpus.valid, *ranked)
    chains, every = _chains(options, laws), []
    for found in prune_to(run, corpus, importance, stops, out, chains, options.by):
        print(_line(found), flush=True)
        every.append(found)
    time_all(every, run, corpus.test.first(options.timed), options.rounds)
    return every


def _stops(run: Run, options: Namespace, laws: Laws) -> list[int]:
    """The numbers of heads to stop at; with gates, those whose gate is open."""
    chains = _chains(options, laws)
    keep = whole_numbers("keep_heads", options.keep_heads) if options.keep_heads else []
    if options.by == "gates" and not keep:
        keep = [sum(map(len, all_heads(run.model).values())) - count_closed(laws, chains)]
    return find_stops(run.model, keep, chains)


def _first(corpus: Corpus, number: int) -> Corpus:
    """What is read of a corpus: the first of validation and of test, or all."""
    if not number:
        return corpus
    return replace(corpus, valid=corpus.valid.first(number), test=corpus.test.first(number))


def _chains(options: Namespace, laws: Laws) -> tuple[str, ...]:
    """The chains whose heads may go; with gates, those that have some."""
    chains = parse_attention_types(options.chains) or ATTENTION_TYPES
    if options.by != "gates":
        return chains
    return tuple(chain for chain in chains if chain in {attention_type_of(name) for name in laws})


def _check_run(run: Run, options: Namespace, laws: Laws) -> None:
    """Refuses a run of which nothing could be removed in the way asked for."""
    if run.model.selecting_blocks:
        raise ValueError(
            f"{run.path} selects its heads for every task: no candidate can be removed"
        )
    chains = _chains(options, laws)
    where = "" if options.chains == "all" else f" in {options.chains}"
    if options.by != "gates":
        there = all_heads(run.model).items()
        if not any(heads for name, heads in there if attention_type_of(name) in chains):
            raise ValueError(f"{run.path} has no heads{where}: none can be removed")
        return
    if not chains:
        raise ValueError(
            f"{run.path} has no gates{where}: train it with --gates, or prune by gradient"
        )
    if not options.keep_heads and not count_closed(laws, chains):
        raise ValueError(
            f"{run.path} has no closed gate, so there is nothing to remove: train it with a larger "
            "--gate_penalty or with --gate_heads, or say by --keep_heads how many stay"
        )


def _line(found: Pruned) -> str:
    valid, test = found.results.valid, found.results.test
    plug_in, elbo = (format_value(valid[name]) for name in ("plug_in", "elbo"))
    parts = [
        f"{found.heads} heads, {found.parameters:,} parameters",
        f"validation {plug_in or '?'} plug-in, {elbo or '?'} bound",
    ]
    if score := chief_score(test):
        parts.append(f"{SCORES[score].heading} {test[score]:.2f}")
    return "; ".join(parts)


def table(points: Sequence[dict[str, Any]]) -> str:
    """The curve as aligned text."""
    score = chief_score(points[0]["test"])
    title = SCORES[score or "bleu"].heading
    titles = ("heads", "parameters", "plug-in", "bound", title, "tokens/s", "speed")
    return aligned([titles, *(_row(point, score) for point in points)])


def _row(point: dict[str, Any], score: str | None) -> tuple[str, ...]:
    return (
        str(point["heads"]),
        f"{point['parameters']:,}",
        format_value(point["valid"]["plug_in"]),
        format_value(point["valid"]["elbo"]),
        format_value(point["test"].get(score or ""), "%"),
        f"{point['tokens_per_second']:,.0f}",
        f"{point['speed']:.2f}",
    )


def write(
    run: Run, corpus: Corpus, every: Sequence[Pruned], options: Namespace, out: Path
) -> list[dict[str, Any]]:
    """Writes the curve and its figure."""
    timed = int(corpus.test.first(options.timed).targets.lengths.sum())
    points = [point(found, every[0], timed) for found in every]
    asked = ("by", "chains", "normalise", "sentences", "seed", "checkpoint")
    facts = {name: options[name] for name in asked}
    said = {"run": str(run.path), "corpus": corpus.name, **facts, "rounds": options.rounds}
    said["decoding"] = asdict(run.settings.decoding)
    said["device"] = run.model.device.type
    text = json.dumps(finite({**said, "curve": points}), indent=2) + "\n"
    write_text(out / "curve.json", text)
    from latentheads.plot import draw_pruning, save  # takes long to load

    save(draw_pruning(points, run.settings.title), out / "curve.png")
    return points


def _replace_networks(out: Path, staged: Path, every: Sequence[Pruned]) -> None:
    """Moves the smaller networks to their place, where no other stays; what is not theirs does."""
    for before in networks_in(out):
        for name in WRITTEN:
            (before / name).unlink(missing_ok=True)
        shutil.rmtree(before / "checkpoints", ignore_errors=True)
        with suppress(OSError):
            before.rmdir()
    for found in every:
        place = folder_of(out, found.heads)
        place.mkdir(exist_ok=True)
        for each in folder_of(staged, found.heads).iterdir():
            each.replace(place / each.name)


def _check(options: Namespace) -> None:
    """Refuses figures out of range, and what acts on nothing."""
    check_least(vars(options), sentences=0, timed=1, rounds=1)
    check_seed(options.seed)
    if parse_attention_types(options.chains) == ():
        raise ValueError(f"chains must name a chain: all, or some of {','.join(ATTENTION_TYPES)}")
    if options.by != "gradient" and not options.normalise:
        raise ValueError("--normalise acts on nothing here: it needs --by gradient")
    if options.by != "random" and options.seed:
        raise ValueError("--seed acts on nothing here: it needs --by random")


def _make_folder(options: Namespace) -> Path:
    """Makes the folder of the results, where nothing else is."""
    run = Path(options.run)
    run = run if run.name not in ("", "..") else run.resolve()  # beside the run, never within
    out = Path(options.out or run.with_name(f"{run.name}-pruned"))
    if (out / "config.yaml").exists():
        raise ValueError(f"{out} is a run folder: choose another --out")
    there = networks_in(out)
    if run.resolve() in (path.resolve() for path in there):
        raise ValueError(f"{out} holds {run}, the run itself: choose another --out")
    if (there or (out / "curve.json").exists()) and not options.overwrite:
        raise ValueError(f"{out} holds a curve already: choose another --out or --overwrite")
    return make_folder(out, "curve.json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with error_handling("prune.py", stopped="the run is as it was"):
        _check(options)
        run = open_run(options.run, options, finished=True)
        corpus = _first(run.corpus, options.sentences)
        laws = fold_gates(run.model, run.guide)
        _check_run(run, options, laws)
        stops = _stops(run, options, laws)
        out = _make_folder(options)
        with locked_folder(out), TemporaryDirectory(prefix=STAGED, dir=out) as staged:
            for left in out.glob(f"{STAGED}*"):  # by a process that was killed
                if left != Path(staged):
                    shutil.rmtree(left)
            every = _make_curve(run, corpus, options, laws, stops, Path(staged))
            _replace_networks(out, Path(staged), every[1:])
            points = write(run, corpus, every, options, out)
    title = (
        "Nats per target token on validation; scores and speed on test, speed by the first row's."
    )
    tell("prune.py", f"{title}\n{table(points)}\nwritten to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
