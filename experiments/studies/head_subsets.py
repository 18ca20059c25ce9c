"""Subsets of heads with exact posteriors: rankings for pruning, sets, pairs, and gaps of guides.

    python experiments/studies/head_subsets.py ranking RUN RUN RUN --out ranking.json

Each part takes trained networks without latents, such as those of several seeds; encoder takes the
folder of a network of transformers.

ranking: nats lost on test after removing heads, ranked by the posterior over subsets of each block
and by every other importance that the library computes, given resampled validation sentences; and
how much rankings of resamples agree. sets: the joint posterior of two blocks; its most probable
subsets against rankings of single heads, and whether covariances predict how pairs of heads
interact on test; and the gaps of the structures of guides. ladder: gates for each sentence of the
frozen network; the exact gaps of guides that are trained until their bound no longer increases.
objectives: the gap of a guide by loss, steps and CPU seconds. inclusion: heads that each block of a
run needs; encoder: the same of a sentence encoder that finds paraphrases. All but ranking and
objectives plot a figure beside the JSON file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import latentheads.experiments.cli.startup

import torch

import latentheads as lh
from latentheads.checks import check_least
from latentheads.experiments.cli.errors import error_handling
from latentheads.experiments.cli.outputs import check_distinct_files
from latentheads.experiments.cli.parser import Parser, writable
from latentheads.experiments.studies.subsets.guides import ladder
from latentheads.experiments.studies.subsets.inclusion import encoder, inclusion
from latentheads.experiments.studies.subsets.joint import sets
from latentheads.experiments.studies.subsets.objectives import objectives
from latentheads.experiments.studies.subsets.rankings import METHODS, ranking
from latentheads.files import finite, write_text
from latentheads.noise import fixed_noise
from latentheads.options import Count, Probability
from latentheads.runs.run import Run

PARTS: Mapping[str, Callable[[Run, Any], dict[str, Any]]] = {
    "ranking": ranking,
    "sets": sets,
    "ladder": ladder,
    "objectives": objectives,
    "inclusion": inclusion,
}
GROUPS = {
    "the study": ("sentences", "resamples"),
    "ranking": ("methods", "removed", "tau", "noise_steps", "gate_steps"),
    "sets, ladder and objectives": ("rate",),
    "ladder and objectives": ("train_sentences", "steps"),
    "ladder, objectives and encoder": ("blocks",),
    "encoder": ("english", "german", "answers", "batch"),
    "output": ("out", "help"),
}


def make_parser() -> Parser:
    """Makes the parser."""
    parser = Parser("head_subsets.py", __doc__, GROUPS, "[options] PART RUN [RUN ...]")
    add = parser.add_argument
    add("part", choices=(*PARTS, "encoder"))
    add("runs", nargs="+", help="run folders of networks without latents; folders of encoders")
    add("--out", type=writable, required=True, help="JSON file to write; a figure beside it")
    add("--sentences", type=Count, default=300, help="first ones of validation and test")
    add("--resamples", type=Count, default=3, help="resamples of validation")
    add("--methods", default="", help=f"some of {', '.join(METHODS)} (default: all)")
    add("--removed", type=tuple[Count, ...], default="4,8,12", help="how many heads to remove")
    add("--tau", type=float, default=1.0, help="temperature of the posterior")
    add("--noise_steps", type=Count, default=60, help="steps of learned noise")
    add("--gate_steps", type=Count, default=200, help="steps of Hard Concrete gates")
    add("--blocks", default="", help="blocks with gates (default: the top one; encoder: each)")
    add("--rate", type=Probability, default=0.8, help="prior probability of a head")
    add("--train_sentences", type=Count, default=3000, help="sentences that guides are trained on")
    add("--steps", type=Count, default=4000, help="most steps of a guide")
    add("--english", default="", help="sentences, one a line")
    add("--german", default="", help="the translation of each")
    add(
        "--answers", type=Count, default=500, help="answers among which that of a question is found"
    )
    add("--batch", type=Count, default=32, help="questions of a batch")
    return parser


def _result(path: str, options: Any) -> dict[str, Any]:
    """The result of a part for one network."""
    torch.manual_seed(0)
    if options.part == "encoder":
        return encoder(path, options)
    run = lh.load_run(path)
    with fixed_noise(0, run.model.device):
        return PARTS[options.part](run, options)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with error_handling("head_subsets.py"):
        if options.part == "ranking":  # which measures the overlap of pairs
            check_least(vars(options), resamples=2)
        figure = options.out.with_suffix(".png")
        outputs = (("--out", options.out), ("the figure of --out", figure))
        texts = (options.english or None, options.german or None)
        check_distinct_files(outputs, (*options.runs, *texts))
        results = [{"run": Path(path).name, **_result(path, options)} for path in options.runs]
        files = {name: Path(vars(options)[name]).name for name in ("out", "english", "german")}
        names = {"runs": [result["run"] for result in results], **files}
        record = {"options": vars(options) | names, "networks": results}
        write_text(options.out, json.dumps(finite(record)) + "\n")
        from latentheads.contrib.plot import save
        from latentheads.experiments.studies.subsets.figures import FIGURES  # slow to import

        if options.part in FIGURES:
            save(FIGURES[options.part](results), figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
