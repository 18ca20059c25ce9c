"""A model of 28 logits, its posterior by weighed draws of the prior, and chains of NUTS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyro
import torch
from pyro import poutine
from pyro.infer import MCMC, NUTS
from pyro.poutine.messenger import Messenger
from torch import Tensor

from latentheads.batch import Batch
from latentheads.names import TARGET
from tests.tiny import build

SOURCE, WORDS = (4, 6, 2), (5, 9, 2)
BLOCKS = "decoder-self,decoder-cross"


@dataclass(frozen=True)
class Means:
    """Means of what is identified.

    Attributes:
        prior: Before the target is known.
        posterior: Given it.
        error: Standard error of the posterior's.
        spread: Standard deviation of each quantity, given the target.
        effective: Draws that the weights are worth.
    """

    prior: Tensor
    posterior: Tensor
    error: Tensor
    spread: Tensor
    effective: float


class FromNoise(Messenger):
    """Sets logits to what the prior makes of given noise, around scores that lower heads move."""

    def __init__(self, noise: dict[str, Tensor]) -> None:
        super().__init__()
        self.noise = noise

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.noise:
            msg["value"] = msg["fn"].location + self.noise[msg["name"]]


class TinyModel:
    """One layer of two heads away from its start, so that the target says much of them."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        self.model: Any = build(heads=2, layers=1, blocks=BLOCKS).eval()
        for parameter in self.model.parameters():
            parameter.requires_grad_(False).mul_(1.5)
        trace = self._trace(1, {})
        self.sites = [block.site() for block in self.model.blocks]
        masks = [trace.nodes[site]["fn"].context.mask for site in self.sites]
        shapes = [trace.nodes[site]["value"].shape[1:] for site in self.sites]
        self.latent = [
            mask.latent[0].bool().expand(shape) for mask, shape in zip(masks, shapes, strict=True)
        ]
        self.bias = [mask.bias[0] for mask in masks]
        self.size = sum(int(tensor.sum()) for tensor in self.latent)

    def _trace(self, copies: int, noise: dict[str, Tensor]) -> Any:
        target, source = (torch.tensor(item).expand(copies, -1) for item in (WORDS, SOURCE))
        with pyro.validation_enabled(False), FromNoise(noise):
            return poutine.trace(self.model).get_trace(Batch(target, source))

    def unpack(self, noise: Tensor) -> dict[str, Tensor]:
        """The noise of every site; pairs that carry no latent have none, and nobody reads them."""
        parts = noise.split([int(tensor.sum()) for tensor in self.latent], -1)
        actual = {}
        for site, latent, part in zip(self.sites, self.latent, parts, strict=True):
            whole = noise.new_zeros(*noise.shape[:-1], *latent.shape)
            actual[site] = whole.masked_scatter(latent, part)
        return actual

    def potential(self, params: dict[str, Tensor]) -> Tensor:
        """Negative log p(y, noise | x), but for a constant."""
        noise = params["noise"]
        target = self._trace(1, self.unpack(noise[None])).nodes[TARGET]
        return noise.square().sum() / 2 - target["fn"].log_prob(target["value"]).sum()

    @torch.no_grad()
    def read_noise(self, noise: Tensor) -> Tensor:
        """What is identified, for each of many draws of noise."""
        nodes = self._trace(len(noise), self.unpack(noise)).nodes
        return self.identified({site: nodes[site]["value"] for site in self.sites})

    def identified(self, values: dict[str, Tensor]) -> Tensor:
        """Weights of attention and their squares, at the pairs that carry a latent."""
        computed_weights = []
        for site, latent, bias in zip(self.sites, self.latent, self.bias, strict=True):
            weights = (values[site] + bias).softmax(-1)
            computed_weights.append(weights[..., latent])
        flat = torch.cat(computed_weights, -1)
        return torch.cat([flat, flat.square()], -1)

    @torch.no_grad()
    def weigh_prior(self, draws: int, size: int = 20_000) -> Means:
        """Draws from the prior, weighed by the likelihood of the target."""
        values, log_weights = [], []
        while draws > 0:
            nodes = self._trace(min(draws, size), {}).nodes
            values.append(self.identified({site: nodes[site]["value"] for site in self.sites}))
            log_weights.append(nodes[TARGET]["fn"].log_prob(nodes[TARGET]["value"]))
            draws -= size
        joined, shares = torch.cat(values), torch.cat(log_weights).softmax(0)
        posterior = shares @ joined
        squares = (joined - posterior).square()
        error, spread = (shares.square() @ squares).sqrt(), (shares @ squares).sqrt()
        return Means(joined.mean(0), posterior, error, spread, 1 / shares.square().sum().item())


def run_chain(model: TinyModel, draws: int, warmup: int, seed: int) -> Tensor:
    """What is identified, along one chain of NUTS that starts anywhere."""
    pyro.set_rng_seed(seed)
    # the noise is nearly standard normal given the target too: a step's size is all to be learned
    kernel = NUTS(potential_fn=model.potential, max_tree_depth=5, adapt_mass_matrix=False)
    begin = {"noise": torch.randn(model.size, dtype=torch.float64)}
    chain = MCMC(kernel, draws, warmup, initial_params=begin, disable_progbar=True)
    chain.run()
    return model.read_noise(chain.get_samples()["noise"])
