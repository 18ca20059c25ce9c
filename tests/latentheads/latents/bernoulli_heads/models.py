"""Tiny models with gates of heads, shared by the tests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor

import latentheads as lh
from latentheads.guides import GUIDES
from latentheads.latents.bernoulli_heads.latent import BernoulliHeads
from latentheads.latents.bernoulli_heads.options import BernoulliHeadsOptions
from latentheads.latents.network import Choice
from latentheads.models import LanguageModel, Translation
from tests.tiny import SOURCE_TYPES, TARGET_TYPES, jiggle, sizes, small_batch

BLOCKS = "decoder.0.self,decoder.1.cross"
"""Two blocks in two layers, of three heads each: 64 subsets."""


def build(blocks: str = BLOCKS, prior: str = "cascaded", **changes: Any) -> Any:
    """A translation model in float64 whose parameters are all away from their start."""
    options = BernoulliHeadsOptions(blocks, prior, **changes.pop("options", {}))
    names = ("label_smoothing", "adapters")
    own = {name: changes.pop(name) for name in names if name in changes}
    network = sizes(**changes)
    model = Translation(SOURCE_TYPES, TARGET_TYPES, network, latents=[options], **own)
    return jiggle(model, 0.4).double().eval()


def language_model(blocks: str = "decoder.0.self", **changes: Any) -> Any:
    options = BernoulliHeadsOptions(blocks, "autoregressive")
    model = LanguageModel(TARGET_TYPES, sizes(**changes), latents=[options])
    return jiggle(model, 0.4).double().eval()


def texts() -> lh.data.Batch:
    batch = small_batch()
    return lh.data.Batch(batch.target, index=batch.index)


def attach(model: Any, name: str = "cascaded", **options: Any) -> Any:
    """A guide away from its start."""
    return jiggle(GUIDES[name](model, **options).double(), 0.4).eval()


def gates_of(model: Any) -> BernoulliHeads:
    latent = model.find_latent(BernoulliHeads)
    assert latent is not None
    return latent


def every_subset(heads: int) -> Iterator[tuple[float, ...]]:
    """Gates in the order of the tables: the lowest bit is the first head."""
    for bits in product((0.0, 1.0), repeat=heads):
        yield bits[::-1]


def log_likelihood_by_hand(model: Any, batch: lh.data.Batch, gates: tuple[float, ...]) -> Tensor:
    """Log p(y | x, b) of every sentence: a pass of its own, of the whole network."""
    row, choices = torch.tensor(gates, dtype=torch.float64), {}
    for block in gates_of(model).addresses:
        choices[block.name], row = Choice(row[: block.heads]), row[block.heads :]
    tokens = model.likelihood(model.states(batch, choices), batch)
    return tokens.log_prob(batch.scored)


def log_prior_by_hand(model: Any, gates: tuple[float, ...]) -> Tensor:
    """Log p(b), a logit at a time."""
    prior, total = gates_of(model).prior, torch.zeros((), dtype=torch.float64)
    blocks = [i for i, number in enumerate(prior.heads) for _ in range(number)]
    structure = gates_of(model).structure
    for head, gate in enumerate(gates):
        logit = prior.logits[head]
        for before in range(head):
            same = blocks[before] == blocks[head]
            is_read = same if structure == "autoregressive" else not same
            if structure != "independent" and is_read:
                logit = logit + prior.weight[head, before] * gates[before]
        total = total + torch.nn.functional.logsigmoid(logit if gate else -logit)
    return total


def log_joint_by_hand(model: Any, batch: lh.data.Batch) -> Tensor:
    """Log p(y, b | x) of every sentence and subset."""
    subsets = every_subset(sum(gates_of(model).heads))
    rows = [log_likelihood_by_hand(model, batch, b) + log_prior_by_hand(model, b) for b in subsets]
    return torch.stack(rows, -1)
