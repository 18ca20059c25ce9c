"""Growth of a language model's training step with the length of its blocks: time and memory.

    python experiments/studies/bench_length.py --recipe cascaded --figure length.png

Blocks get longer and fewer, so that every batch has the same tokens: what grows is attention, which
knows every pair of tokens. A step is forward, loss, backward and clearing the gradients. Rows take
turns within every round, the order rotated; a row's time is its median over rounds.

    transformer            no noise
    cascaded               the posterior reads the logits below through the fusion
    cascaded, fusion kept  the same, the fusion's hidden activations kept for the backward pass
    transformer+group      H of 2H candidates for one task: the weights of the chosen are gathered
    transformer+selection  all 2H candidates computed, half of them masked
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, cast

import latentheads.experiments.cli.startup  # noqa: F401

import torch
from torch import nn

from latentheads.batch import Batch
from latentheads.experiments.cli.parser import Parser
from latentheads.experiments.studies.benchmarks.baselines import (
    RECIPES,
    Runner,
    Setting,
    Size,
    under,
)
from latentheads.experiments.studies.benchmarks.growth import (
    KEPT,
    begin,
    growth_parser,
    make_batch,
    race_at_all,
    report,
)
from latentheads.families.fusion import Fusion
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.logits.latent import Logits
from latentheads.latents.selection.strategies import STRATEGIES, Strategy, make_selector
from latentheads.models import LanguageModel, make_prior
from latentheads.models.network import PreNorm


def make_rows(recipes: Sequence[str], size: Size, setting: Setting, precision: str) -> list[Runner]:
    """The rows of all recipes, on one batch."""
    batch = make_batch(size, setting)
    made = (_rows_of(recipe, size, setting, precision, batch) for recipe in recipes)
    return [runner for some in made for runner in some]


def _rows_of(
    recipe: str, size: Size, setting: Setting, precision: str, batch: Batch
) -> list[Runner]:
    """A recipe, and where it has a fusion the same with all activations kept."""
    torch.manual_seed(setting.seed)
    name, _, strategy = recipe.partition("+")
    prior, guide_of = RECIPES[name]
    network = replace(size.network, norm=PreNorm())
    slots = size.heads, 2 * size.heads
    latents = [make_selector(cast(Strategy, strategy), *slots)] if strategy else []
    model: Any = LanguageModel(
        size.vocabulary, network, latents=[Logits(make_prior(prior)), *latents]
    )
    model = model.to(setting.device)
    guide: Any = guide_of(model).to(setting.device)
    pairs = {recipe: (model, guide)}
    if _fusions_of(model, guide):
        kept = pairs[recipe + KEPT] = deepcopy((model, guide))
        for fusion in _fusions_of(*kept):
            fusion.store_activations = True
    made = {name: under(Head_ELBO(analytic=True), *pair, batch) for name, pair in pairs.items()}
    return [Runner(name, *each, setting, precision) for name, each in made.items()]


def _fusions_of(*networks: nn.Module) -> list[Fusion]:
    return [each for part in networks for each in part.modules() if isinstance(each, Fusion)]


def make_parser() -> Parser:
    """Builds the command line."""
    parser = growth_parser("bench_length.py", __doc__)
    parser.add_argument(
        "--recipe",
        action="append",
        choices=[
            *RECIPES,
            *(f"{recipe}+{strategy}" for recipe in RECIPES for strategy in STRATEGIES),
        ],
        metavar="RECIPE",
        help=f"{', '.join(RECIPES)}, behind a + a selection strategy: {', '.join(STRATEGIES)}; may "
        "be repeated; default: transformer, cascaded",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the benchmark."""
    options, growth, setting, facts = begin(make_parser(), arguments)
    recipes = list(dict.fromkeys(options.recipe or ("transformer", "cascaded")))
    points = race_at_all(partial(make_rows, recipes), growth, setting, options.precision)
    report(points, options, facts)


if __name__ == "__main__":
    main()
