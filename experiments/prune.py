"""Prunes the heads of a finished run, and evaluates the pruned networks.

python experiments/prune.py runs/transformer-seed0 --keep_heads 16,8 --out runs/pruned
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import latentheads.experiments.cli.startup  # noqa: F401

from latentheads.corpora.corpus import Corpus
from latentheads.experiments.cli.errors import error_handling, print_result
from latentheads.experiments.cli.outputs import make_output_folder
from latentheads.experiments.cli.parser import OF_RUNS, Options, Parser, add_run_options, open_run
from latentheads.experiments.cli.tables import aligned
from latentheads.experiments.pruning.curve import (
    By,
    GateDistributions,
    count_closed,
    prune_to,
    rank_heads,
    select_stops,
)
from latentheads.experiments.pruning.networks import (
    Pruned,
    curve_point,
    pruned_folder,
    pruned_networks,
    time_all,
)
from latentheads.files import locked_folder, write_json
from latentheads.metrics.scores import SCORES, format_value, primary_score
from latentheads.names import ATTENTION_TYPES, attention_type_of, parse_attention_types
from latentheads.options import Count, Size
from latentheads.packages import package_versions
from latentheads.pruning import all_heads, fold_selection
from latentheads.runs.folder import RUN_FILES
from latentheads.runs.run import Run

STAGING_PREFIX = ".networks-"
"""Prefix of the temporary folder of networks until all are complete."""

REPLACED = "replaced"
"""The folder within it of networks that are replaced."""

DESCRIPTION = (
    "Removes the least important heads of a finished run, and evaluates the rest.\n\n"
    "    python experiments/prune.py runs/transformer-seed0 --keep_heads 16,8\n\n"
    "Attention heads and n-gram heads. For every number of heads: the log-likelihood (exact if "
    "latents are summed out, else plug-in) and the bound on validation, BLEU on test, and the "
    "speed. A pruned network has smaller matrices, and the same outputs as one whose heads are "
    "masked. Where a prior or a posterior mixes heads, as "
    "a cascade does, the logits of removed heads are still sampled, and the speed-up is smaller. "
    "Writes curve.json, curve.png and, for every number of heads, a run folder that translate.py, "
    "generate.py, score.py and analyse.py accept. The run itself is not changed."
)
GROUPS = {
    "pruning": ("keep_heads", "by", "blocks", "normalise"),
    "evaluation": ("sentences", "timed", "rounds"),
    "output": ("out", "overwrite"),
    "the run": (*OF_RUNS, "help"),
}


def make_parser() -> Parser:
    """Makes the parser."""
    parser = Parser("prune.py", DESCRIPTION, GROUPS, "[options] RUN")
    parser.add_argument("run", help="folder that run.py wrote")
    parser.add_argument(
        "--by",
        type=By,
        default="gradient",
        help="importance of a head: gradient, the mean over sentences of |dL/dmask| as in Michel "
        "et al. 2019; posterior, the log-odds that the head is in the subset of its block's heads, "
        "given validation, with all other heads active: a pass of the layers above for each "
        "subset; gates, the probability that a gate of a run with gates is open; random",
    )
    parser.add_argument(
        "--keep_heads",
        type=tuple[int, ...],
        default=(),
        help="numbers of heads that remain in the whole model, separated by commas (default: from "
        "90 %% to 0 of the heads that may be removed; with gates, those whose gate is open)",
    )
    parser.add_argument(
        "--blocks",
        default="all",
        help=f"attention types to prune: all, or some of {','.join(ATTENTION_TYPES)}",
    )
    parser.add_argument(
        "--normalise",
        type=bool,
        default=True,
        help="divide importance by its L2 norm over the heads of a block, as in the paper; false "
        "lost much less on three small networks (docs/pruning.md)",
    )
    parser.add_argument(
        "--sentences",
        type=Size,
        default=0,
        help="number of sentences of validation and of test, the first ones; for running text "
        "blocks; 0: all",
    )
    parser.add_argument(
        "--timed",
        type=Count,
        default=64,
        help="number of test sentences for measuring the speed, the first ones; their references "
        "are decoded, so that all networks do the same work",
    )
    parser.add_argument(
        "--rounds",
        type=Count,
        default=3,
        help="rounds of measuring the speed, all networks in turns; the median counts",
    )
    parser.add_argument("--out", help="output folder (default: RUN-pruned)")
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace an existing curve and its networks",
    )
    add_run_options(parser, "of random importance")
    return parser


def _make_curve(
    run: Run,
    corpus: Corpus,
    options: Options,
    gate_distributions: GateDistributions,
    stops: Sequence[int],
    out: Path,
) -> list[Pruned]:
    """Prunes to each number of heads, evaluates, and measures the speed."""
    ranking = options.by, gate_distributions, options.normalise, options.seed
    importance = rank_heads(run, corpus.valid, *ranking)
    attention_types, networks = _attention_types(options, gate_distributions), []
    for network in prune_to(run, corpus, importance, stops, out, attention_types, options.by):
        print(_format_line(network), flush=True)
        networks.append(network)
    time_all(networks, run, corpus.test.first(options.timed), options.rounds)
    return networks


def _select_stops(run: Run, options: Options, gate_distributions: GateDistributions) -> list[int]:
    """The numbers of remaining heads; with gates, by default those whose gate is open."""
    attention_types = _attention_types(options, gate_distributions)
    keep_heads = [*options.keep_heads]
    if options.by == "gates" and not keep_heads:
        keep_heads = [
            sum(map(len, all_heads(run.model).values()))
            - count_closed(gate_distributions, attention_types)
        ]
    return select_stops(run.model, keep_heads, attention_types)


def _first_sentences(corpus: Corpus, number: int) -> Corpus:
    """The first sentences of validation and test, or all."""
    if not number:
        return corpus
    return replace(corpus, valid=corpus.valid.first(number), test=corpus.test.first(number))


def _attention_types(options: Options, gate_distributions: GateDistributions) -> tuple[str, ...]:
    """The attention types to prune; with gates, those that have gates."""
    attention_types = parse_attention_types(options.blocks) or ATTENTION_TYPES
    if options.by != "gates":
        return attention_types
    return tuple(
        attention_type
        for attention_type in attention_types
        if attention_type in {attention_type_of(name) for name in gate_distributions}
    )


def _check_run(run: Run, options: Options, gate_distributions: GateDistributions) -> None:
    """Checks that heads of the run can be removed with these options."""
    if run.model.selecting_blocks:
        raise ValueError(
            f"{run.path} selects its heads for every task: no candidate can be removed"
        )
    attention_types = _attention_types(options, gate_distributions)
    for latent in run.model.latents.values():
        for name in latent.fixed_blocks:
            if attention_type_of(name) in attention_types:
                raise ValueError(
                    f"{run.path} has latents {latent.name} of the heads of {name}: none can be "
                    "removed, so name other attention types by --blocks"
                )
    where = "" if options.blocks == "all" else f" in {options.blocks}"
    if options.by != "gates":
        blocks = all_heads(run.model).items()
        if not any(heads for name, heads in blocks if attention_type_of(name) in attention_types):
            raise ValueError(f"{run.path} has no heads{where}: none can be removed")
        return
    if not attention_types:
        raise ValueError(
            f"{run.path} has no gates{where}: train it with --latents gates, or prune by gradient"
        )
    if not options.keep_heads and not count_closed(gate_distributions, attention_types):
        raise ValueError(
            f"{run.path} has no closed gate, so there is nothing to remove: train it with a larger "
            "--gates.penalty or with --gates.heads, or give --keep_heads"
        )


def _format_line(network: Pruned) -> str:
    valid, test = network.results.valid, network.results.test
    name, value = _log_likelihood(valid)
    elbo = format_value(valid["elbo"]) or "?"
    parts = [
        f"{network.heads} heads, {network.parameters:,} parameters",
        f"validation: {name} {value or '?'}, bound {elbo} nats/token",
    ]
    if score := primary_score(test):
        parts.append(f"test: {SCORES[score].heading} {test[score]:.2f}")
    return "; ".join(parts)


def _log_likelihood(valid: Mapping[str, Any]) -> tuple[str, str]:
    """Name and value of the log-likelihood: exact if it is known, else plug-in."""
    name = "plug_in" if valid.get("exact") is None else "exact"
    return SCORES[name].heading.removesuffix(" (no bound)"), format_value(valid[name])


def table(points: Sequence[dict[str, Any]]) -> str:
    """Formats the curve as a table."""
    score = primary_score(points[0]["test"])
    scores = [SCORES[score].heading] if score else []
    name, _ = _log_likelihood(points[0]["valid"])
    titles = ("heads", "parameters", name, "bound", *scores, "tokens/s", "speed")
    return aligned([titles, *(_row(point, score) for point in points)])


def _row(point: dict[str, Any], score: str | None) -> tuple[str, ...]:
    return (
        str(point["heads"]),
        f"{point['parameters']:,}",
        _log_likelihood(point["valid"])[1],
        format_value(point["valid"]["elbo"]),
        *([format_value(point["test"][score], "%")] if score else []),
        f"{point['tokens_per_second']:,.0f}",
        f"{point['speed']:.2f}",
    )


def write(
    run: Run, corpus: Corpus, networks: Sequence[Pruned], options: Options, folder: Path
) -> list[dict[str, Any]]:
    """Writes the curve and its figure into a folder."""
    timed = int(corpus.test.first(options.timed).targets.lengths.sum())
    points = [curve_point(network, networks[0], timed) for network in networks]
    pruning, evaluation = GROUPS["pruning"], ("sentences", "timed", "seed", "checkpoint")
    facts = {name: getattr(options, name) for name in (*pruning, *evaluation)}
    record = {"run": str(run.path), "corpus": corpus.name, **facts, "rounds": options.rounds}
    record["decoding"] = asdict(run.settings.decode)
    record["versions"] = package_versions()
    record["device"] = run.model.device.type
    write_json(folder / "curve.json", {**record, "curve": points})
    from latentheads.contrib.plot import draw_pruning, save  # slow to import

    save(draw_pruning(points, run.settings.title), folder / "curve.png")
    return points


@contextmanager
def _staging_folder(out: Path) -> Iterator[Path]:
    """A temporary folder for all that is written; what a process that was killed left is removed.

    It stays if moving from it into the output folder fails: then the same command goes on.
    """
    for leftover in out.glob(f"{STAGING_PREFIX}*"):
        _return_other_files(leftover / REPLACED, out)
        shutil.rmtree(leftover)
    staged = Path(tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=out))
    try:
        yield staged
    finally:
        if not (staged / REPLACED).exists():
            shutil.rmtree(staged, ignore_errors=True)


def _replace_networks(out: Path, staged: Path, new_names: Sequence[str]) -> None:
    """Replaces the old networks and their curve by the new ones; other files are kept.

    Every network is a whole folder at all times, or is not there: it is renamed, never filled.
    """
    replaced = staged / REPLACED
    replaced.mkdir()
    (out / "curve.json").unlink(missing_ok=True)
    for path in {*pruned_networks(out), *(out / name for name in new_names)}:
        if path.exists():
            path.rename(replaced / path.name)
    for name in new_names:
        (staged / name).rename(out / name)
    _return_other_files(replaced, out)
    for name in ("curve.png", "curve.json"):
        (staged / name).replace(out / name)
    shutil.rmtree(replaced)


def _return_other_files(replaced: Path, out: Path) -> None:
    """Moves files that belong to no network back into the output folder."""
    for path in sorted(replaced.glob("*/*")):
        folder = out / path.parent.name
        if path.name not in (*RUN_FILES, "checkpoints") and not (folder / path.name).exists():
            folder.mkdir(exist_ok=True)
            path.rename(folder / path.name)


def _check_options(options: Options) -> None:
    """Checks for options that have no effect."""
    if parse_attention_types(options.blocks) == ():
        raise ValueError(f"blocks must be all, or some of {','.join(ATTENTION_TYPES)}")
    if options.by != "gradient" and not options.normalise:
        raise ValueError("--normalise has no effect here: it needs --by gradient")
    if options.by != "random" and options.seed:
        raise ValueError("--seed has no effect here: it needs --by random")


def _make_folder(options: Options) -> Path:
    """Creates the output folder, unless it contains a curve."""
    run = Path(options.run)
    run = run if run.name not in ("", "..") else run.resolve()  # beside the run, never within
    out = Path(options.out or run.with_name(f"{run.name}-pruned"))
    existing = pruned_networks(out)
    if run.resolve() in (path.resolve() for path in existing):
        raise ValueError(f"{out} holds {run}, the run itself: choose another --out")
    is_unfinished = any(out.glob(f"{STAGING_PREFIX}*/{REPLACED}"))  # by a process that was killed
    is_used = (out / "curve.json").exists() or (existing and not is_unfinished)
    if is_used and not options.overwrite:
        raise ValueError(f"{out} holds a curve already: choose another --out or --overwrite")
    return make_output_folder(out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with error_handling("prune.py", on_interrupt="the run is as it was"):
        _check_options(options)
        run = open_run(options.run, options, finished=True)
        corpus = _first_sentences(run.corpus, options.sentences)
        gate_distributions = fold_selection(run.model, run.guide)
        _check_run(run, options, gate_distributions)
        stops = _select_stops(run, options, gate_distributions)
        out = _make_folder(options)
        with locked_folder(out), _staging_folder(out) as staged:
            networks = _make_curve(run, corpus, options, gate_distributions, stops, staged)
            points = write(run, corpus, networks, options, staged)
            new_names = [pruned_folder(out, network.heads).name for network in networks[1:]]
            _replace_networks(out, staged, new_names)
    title = "Nats per target token on validation; scores and relative speed on test."
    print_result("prune.py", f"{title}\n{table(points)}\nwritten to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
