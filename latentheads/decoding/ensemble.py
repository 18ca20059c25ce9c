"""Ensemble decoding: beam search under the mean distribution of several networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.batch import Batch
from latentheads.decoding.options import Decoding
from latentheads.decoding.translate import search
from latentheads.guide import ModelGuide
from latentheads.inference.evaluation import eval_no_grad
from latentheads.latents.handlers import WithSelection
from latentheads.layers.numeric import full_precision
from latentheads.model import Decoder


class _EnsembleModel:
    """An ensemble of networks of one vocabulary, as one decoder."""

    def __init__(self, models: Sequence[Decoder], guides: Sequence[ModelGuide | None]) -> None:
        self.pairs = list(zip(models, guides, strict=True))

    @property
    def density_dtype(self) -> torch.dtype:
        """The widest ``density_dtype`` of the networks."""
        dtypes = [model.density_dtype for model, _ in self.pairs]
        return torch.float64 if torch.float64 in dtypes else torch.float32

    def begin(self, batch: Batch) -> _States:
        """Prepares every network."""
        states = _States()
        for model, guide in self.pairs:
            with WithSelection(guide):
                states.append(model.begin(batch.to(model.device)))
        return states

    def step(
        self, tokens: Int[Tensor, "batch *hypothesis new"], states: _States
    ) -> Float[Tensor, "batch *hypothesis new vocab"]:
        """The log of the sum of all networks' probabilities of every next token."""
        log_probs = [
            full_precision(model.step(tokens, state)).log_softmax(-1)
            for (model, _), state in zip(self.pairs, states, strict=True)
        ]
        return torch.stack(log_probs).logsumexp(0)


class _States(list[Any]):
    """The states of all networks while they decode."""

    def select(self, sentences: Tensor | None, hypotheses: Tensor | None = None) -> None:
        """Keeps, repeats or reorders sentences, and the hypotheses of each."""
        for state in self:
            state.select(sentences, hypotheses)


def ensemble_search(
    models: Sequence[Decoder],
    guides: Sequence[ModelGuide | None],
    batch: Batch,
    decoding: Decoding,
) -> list[list[int]]:
    """Returns the tokens of the best hypothesis under the mean distribution of several networks.

    Heads are set to their prior's location, with the likeliest selection of each guide;
    ``decoding.num_samples`` is ignored.
    """
    with eval_no_grad(*models):
        return search(_EnsembleModel(models, guides), batch.to(models[0].device), decoding, 0)
