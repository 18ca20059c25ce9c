"""A latent of one's own that is sampled: a temperature of each sentence, without decoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pyro
import torch
from pyro.distributions import LogNormal
from torch import nn

from latentheads.batch import Batch
from latentheads.latents.latent import Latent, LatentPosterior
from latentheads.latents.options import LatentOptions, ModelShape

NAME = "temperature"
SITE = "decoder.0.alignment.temperature"


class Temperature(Latent):
    """The states above the decoder are multiplied by a number with a log-normal prior."""

    name = NAME
    sites = (SITE,)

    def token_distribution(self, model: Any, batch: Batch, choices: Any) -> Any:
        states = model.states(batch, choices)
        location = states.new_zeros(len(states))
        temperature = pyro.sample(SITE, LogNormal(location, location + 0.3))
        return model.likelihood(states * temperature[..., None, None], batch)

    def make_posterior(self, model: Any, structure: Any, condition_on: Any) -> TemperaturePosterior:
        assert condition_on in ("source", "prefix", "target")
        return TemperaturePosterior(model.vocabulary_sizes["target"])


class TemperaturePosterior(LatentPosterior):
    """A log-normal of which each target token moves location and scale."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.evidence = nn.Embedding(vocab_size, 2)
        nn.init.zeros_(self.evidence.weight)

    def posterior_of(self, prior: LogNormal, batch: Batch) -> LogNormal:
        evidence = self.evidence(batch.scored) * batch.scored_mask[..., None]
        location, scale = torch.unbind(evidence.sum(-2), -1)
        return LogNormal(prior.loc + location, prior.scale * scale.exp())


@dataclass(frozen=True)
class TemperatureOptions(LatentOptions):
    """Its options, which say that guides have a posterior of it."""

    kind: ClassVar[type[Latent]] = Temperature

    def make(self, shape: ModelShape) -> Temperature:
        return Temperature()
