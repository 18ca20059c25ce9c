"""Speed of what may mix the positions of a language model, against attention, with the length.

    python experiments/studies/bench_mixers.py --threads 1 --figure mixers.png

Every row is the same network but for what mixes its positions, with about as many parameters, and
takes training steps without latents on batches of the same tokens: blocks get longer and fewer.
Rows take turns within every round, the order rotated; a row's time is its median over rounds.

    attention        every pair of tokens
    local            attention to the last n tokens, in bands
    ngram            n-grams of n tokens
    ngram, slices    the same, each head reading its own slice of every token
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import latentheads.experiments.cli.startup  # noqa: F401

import torch

from latentheads.experiments.cli.parser import Parser, positive
from latentheads.experiments.studies.benchmarks.baselines import Runner, Setting, Size, under
from latentheads.experiments.studies.benchmarks.growth import (
    Growth,
    begin,
    growth_parser,
    make_batch,
    race_at_all,
    report,
)
from latentheads.guides import Tied
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.logits.latent import Logits
from latentheads.models import LanguageModel
from latentheads.models.network import PreNorm

FULL = Growth(Size(heads=8), 5, 1, (64, 128, 256, 512, 1024, 2048), tokens=2048)
ROWS: dict[str, dict[str, Any]] = {
    "attention": {},
    "local": {"mixers": "local"},
    "ngram": {"mixers": "ngram"},
    "ngram, slices": {"mixers": "ngram", "ngram_slices": True},
}


def make_rows(window: int, size: Size, setting: Setting, precision: str) -> list[Runner]:
    """One network for each row."""
    batch, runners = make_batch(size, setting), []
    for name, options in ROWS.items():
        torch.manual_seed(setting.seed)
        windows: dict[str, Any] = {"windows": str(window)} if options else {}
        network = replace(size.network, norm=PreNorm(), **options, **windows)
        model: Any = LanguageModel(size.vocabulary, network, latents=[Logits(attention_types=())])
        model = model.to(setting.device)
        loss, parameters = under(Head_ELBO(analytic=True), model, Tied(model), batch)
        runners.append(Runner(name, loss, parameters, setting, precision))
    return runners


def make_parser() -> Parser:
    """Builds the command line."""
    parser = growth_parser("bench_mixers.py", __doc__, FULL)
    parser.add_argument("--window", type=positive, default=5, metavar="N", help="n; default: 5")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the benchmark."""
    options, growth, setting, facts = begin(make_parser(), arguments, FULL)
    points = race_at_all(partial(make_rows, options.window), growth, setting, options.precision)
    report(points, options, facts | {"window": options.window})


if __name__ == "__main__":
    main()
