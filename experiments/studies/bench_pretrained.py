"""Cost of latent heads in a network of Hugging Face, against its own attention.

    python experiments/studies/bench_pretrained.py --threads 1 --json pretrained.json

Every row is the same GPT-2 of a few layers and takes training steps on the same blocks of tokens,
guide and all. Rows take turns within every round, the order rotated; a row's time is its median
over rounds.

    eager        the network's own attention, in plain products
    sdpa         the network's own attention, in the kernel that it takes by itself
    delta        latent heads without noise
    tied         latent heads, sampled from the prior
    cascaded     latent heads, sampled from a posterior given the logits below
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import latentheads.experiments.cli.startup  # noqa: F401

import torch
from torch import Tensor
from torch.nn import functional as F

from latentheads.batch import Batch
from latentheads.contrib.hf import latent
from latentheads.experiments.cli.parser import Parser
from latentheads.experiments.studies.benchmarks.baselines import Made, Runner, Setting, Size, under
from latentheads.experiments.studies.benchmarks.growth import (
    Growth,
    begin,
    growth_parser,
    make_batch,
    race_at_all,
    report,
)
from latentheads.guides import Cascaded, Tied
from latentheads.inference.objective import Head_ELBO

SIZE = Size(width=768, feed_forward=3072, layers=2, heads=12)
FULL = Growth(SIZE, 5, 1, (128, 256), tokens=512)
ROWS: dict[str, tuple[str, Any] | None] = {
    "eager": None,
    "sdpa": None,
    "delta": ("delta", Tied),
    "tied": ("independent", Tied),
    "cascaded": ("independent", Cascaded),
}
"""Prior and guide of the rows that are latent."""


def make_rows(size: Size, setting: Setting, precision: str) -> list[Runner]:
    """One network for each row."""
    batch = make_batch(size, setting)
    made = ((name, _make_step(name, size, setting, batch)) for name in ROWS)
    return [Runner(name, *parts, setting, precision) for name, parts in made]


def _make_step(name: str, size: Size, setting: Setting, batch: Batch) -> Made:
    """A row's loss to call and the parameters it trains."""
    import transformers

    torch.manual_seed(setting.seed)
    sizes = {"n_embd": size.width, "n_inner": size.feed_forward, "n_layer": size.layers}
    dropout = dict.fromkeys(("attn_pdrop", "resid_pdrop", "embd_pdrop"), 0.1)
    ends = {"bos_token_id": 1, "eos_token_id": 2}
    config = transformers.GPT2Config(
        vocab_size=size.vocabulary,
        n_positions=size.length,
        n_head=size.heads,
        **sizes,
        **dropout,
        **ends,
    )
    network = transformers.GPT2LMHeadModel(config).to(setting.device).train()
    chosen = ROWS[name]
    if chosen is not None:
        model = latent(network, chosen[0])
        guide = chosen[1](model).to(setting.device)
        model_batch = model.batch({"input_ids": batch.target})
        return under(Head_ELBO(analytic=True), model.train(), guide, model_batch)
    network.set_attn_implementation(name)

    def loss() -> Tensor:
        logits = network(input_ids=batch.target, use_cache=False).logits[:, :-1]
        return F.cross_entropy(logits.flatten(0, 1), batch.target[:, 1:].flatten())

    return loss, list(network.parameters())


def make_parser() -> Parser:
    """Builds the command line."""
    return growth_parser("bench_pretrained.py", __doc__, FULL)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the benchmark."""
    options, growth, setting, facts = begin(make_parser(), arguments, FULL)
    report(race_at_all(make_rows, growth, setting, options.precision), options, facts)


if __name__ == "__main__":
    main()
