"""Several networks that decode as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.batch import Batch
from latentheads.decoding.translate import Decoding, search
from latentheads.guide import ModelGuide, WithSelection
from latentheads.inference.evaluation import eval_no_grad
from latentheads.layers.numeric import full_precision
from latentheads.model import Decoder

__all__ = ["ensemble_search"]


class _Together:
    """Several networks of one vocabulary as one that decodes: the mean of their laws.

    Args:
        models: The networks, on one device.
        guides: Whose likeliest selections of heads are used, one for each network.
    """

    def __init__(self, models: Sequence[Decoder], guides: Sequence[ModelGuide | None]) -> None:
        self.pairs = list(zip(models, guides, strict=True))

    @property
    def density_dtype(self) -> torch.dtype:
        """The widest of the networks'."""
        kinds = [model.density_dtype for model, _ in self.pairs]
        return torch.float64 if torch.float64 in kinds else torch.float32

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
        every = [
            full_precision(model.step(tokens, state)).log_softmax(-1)
            for (model, _), state in zip(self.pairs, states, strict=True)
        ]
        return torch.stack(every).logsumexp(0)


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
    """The tokens of the best hypothesis of every sentence by the mean law of several networks.

    Each stands at the location of its heads, with the likeliest of its guide's selections: draws
    are not looked at.
    """
    with eval_no_grad(*models):
        return search(_Together(models, guides), batch.to(models[0].device), decoding, 0)
