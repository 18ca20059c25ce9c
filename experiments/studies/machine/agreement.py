"""Agreement: the bound of every recipe on a device in each precision, against the CPU's in float64.

Values of all latents are sampled once, on the CPU, and set everywhere: what differs is rounding.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass

import latentheads.experiments.cli.startup  # noqa: F401

import torch
from torch import Tensor

from latentheads.experiments.cli.parser import writable
from latentheads.experiments.studies.benchmarks.baselines import Setting, Size, make_batch
from latentheads.files import write_text
from latentheads.guide import ModelGuide
from latentheads.guides import GUIDES, RECIPES
from latentheads.handlers import SharedSamples
from latentheads.inference.bound import terms
from latentheads.inference.evaluation import eval_no_grad
from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.latent import Latent
from latentheads.latents.logits.latent import Logits
from latentheads.latents.options import LatentOptions
from latentheads.models import Translation, make_prior
from latentheads.names import SENTENCES

ALIGNED = "cascaded+alignments"
FULL = Size(256, 512, 4, 4, 32, 28, 10000)
SMALL = Size(8, 8, 2, 2, 3, 5, 11)
KINDS: dict[str, torch.dtype | None] = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Agreement:
    """The bound of a recipe in one precision, in nats a token.

    Attributes:
        recipe: Its name.
        device: Where it was computed.
        precision: fp32, or autocast to bf16 or fp16.
        bound: The bound.
        off: How far it is from the CPU's in float64.
        worst: How far that of a sentence is, at most.
    """

    recipe: str
    device: str
    precision: str
    bound: float
    off: float
    worst: float


def make_recipe(name: str, size: Size) -> tuple[Translation, ModelGuide]:
    """Model and guide of a recipe, with weights of a seed."""
    torch.manual_seed(0)
    words = size.vocabulary
    latents: list[Latent | LatentOptions]
    if name == ALIGNED:
        latents, guide = [AlignmentOptions(2, 1, "cascaded")], "cascaded"
    else:
        prior, guide = RECIPES[name]
        latents = [Logits(make_prior(prior))]
    model = Translation(words, words, size.network, latents=latents)
    return model, GUIDES[guide](model)


def measure(recipe: str, device: str, size: Size) -> list[Agreement]:
    """Computes the bound of a recipe on the CPU and on a device at the same latent values."""
    pair = make_recipe(recipe, size)
    batch = make_batch(size, Setting("cpu"))
    exact = copy.deepcopy(pair)
    for module in exact:
        module.double()
    with eval_no_grad(*exact):
        values = exact[1](batch).items()
        sampled = {name: value for name, value in values if name != SENTENCES}
        with SharedSamples(sampled):
            wanted = terms(*exact, batch)
    found = []
    for where in dict.fromkeys(("cpu", device)):
        for module in pair:
            module.to(where)
        narrow = {name: _narrowed(value).to(where) for name, value in sampled.items()}
        for precision, kind in KINDS.items():
            if where == "cpu" and kind is torch.float16:
                continue
            cast = torch.autocast(where, kind) if kind else nullcontext()
            with eval_no_grad(*pair), cast, SharedSamples(narrow):
                elbo = terms(*pair, batch.to(where)).elbo.double().cpu()
            off = (elbo - wanted.elbo) / wanted.tokens
            bound = float(elbo.sum() / wanted.tokens.sum())
            figures = bound, float((elbo - wanted.elbo).sum() / wanted.tokens.sum())
            found.append(Agreement(recipe, where, precision, *figures, float(off.abs().max())))
    return found


def _narrowed(value: Tensor) -> Tensor:
    return value.float() if value.is_floating_point() else value


def make_parser() -> argparse.ArgumentParser:
    """Builds the command line."""
    parser = argparse.ArgumentParser("agreement", description=__doc__)
    parser.add_argument("--device", required=True)
    parser.add_argument("--json", type=writable, required=True)
    parser.add_argument("--small", action="store_true")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures all recipes and writes what it found."""
    options = make_parser().parse_args(arguments)
    size = SMALL if options.small else FULL
    rows = []
    for recipe in (*RECIPES, ALIGNED):
        rows += [asdict(each) for each in measure(recipe, options.device, size)]
        write_text(options.json, json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
